//! What a downloaded file is called. Names come from outside, so they are made harmless here: one component of a path,
//! visible, and creatable on any system. Pure: text in, text out.

use unicode_normalization::UnicodeNormalization as _;
use url::Url;

/// The longest name in bytes. Leaves room for `.part.json` where a name may have 255.
pub const NAME_BYTES_MAX: usize = 200;
/// The name of what has none.
const NAMELESS: &str = "download";
/// Names that mean a device on some systems, whatever their extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
/// Endings that are ours while a download is under way.
const OURS: [&str; 2] = [".part", ".part.json"];

/// The name that a URL suggests: the last part of its path.
pub(super) fn of_url(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut parts| parts.next_back().map(str::to_owned));
    let decoded = percent_decoded(&last.unwrap_or_default());
    sane(&decoded).unwrap_or_else(|| NAMELESS.to_owned())
}

/// The suggestion made harmless; nothing if nothing is left of it.
///
/// ```
/// use redrive_server::download::sane_name;
///
/// assert_eq!(sane_name("../../etc/passwd").as_deref(), Some("passwd"));
/// assert_eq!(sane_name(".."), None);
/// ```
pub fn sane(suggestion: &str) -> Option<String> {
    let base = suggestion.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = base.chars().filter(|c| !is_unwanted(*c)).nfc().collect();
    // A leading dot hides a file, a trailing one or a space is lost on some systems.
    let trimmed = visible.trim_start_matches(['.', ' ', '-', '~']).trim_end_matches(['.', ' ']);
    let mut name = shortened(trimmed);
    if OURS.iter().any(|ending| name.to_ascii_lowercase().ends_with(ending)) {
        name = shortened(&format!("{name}.file"));
    }
    if is_device(&name) {
        name.insert(0, '_');
    }
    (!name.is_empty()).then_some(name)
}

/// What separates parts of a path somewhere, what does something instead of being seen, and what stands for a byte that
/// was no text.
fn is_unwanted(c: char) -> bool {
    matches!(c, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' | '\u{fffd}')
        || matches!(crate::printable(c.encode_utf8(&mut [0; 4])), std::borrow::Cow::Owned(_))
}

fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let numbered = ["com", "lpt"].iter().filter_map(|device| stem.strip_prefix(device));
    DEVICES.contains(&stem.as_str())
        || numbered.into_iter().any(|rest| {
            matches!(rest, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
        })
}

/// At most [`NAME_BYTES_MAX`] bytes, with its extension if that is short.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let extension = name.rfind('.').map_or("", |dot| &name[dot..]);
    let extension = if extension.len() <= 16 { extension } else { "" };
    let room = NAME_BYTES_MAX - extension.len();
    let end = (0..=room).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    format!("{}{extension}", name[..end].trim_end_matches(['.', ' ']))
}

/// The file name in a `Content-Disposition`, made harmless. The form with a character set wins, as RFC 6266 has it.
pub(super) fn of_disposition(header: &str) -> Option<String> {
    let mut plain = None;
    for (name, value) in parameters(header) {
        match name.as_str() {
            "filename*" => {
                let (charset, rest) = value.split_once('\'')?;
                let (_, encoded) = rest.split_once('\'')?;
                if charset.eq_ignore_ascii_case("utf-8") {
                    return sane(&percent_decoded(encoded));
                }
            }
            // The first of two: what differs between readers is what an attacker writes.
            "filename" if plain.is_none() => plain = Some(value),
            _ => {}
        }
    }
    sane(&plain?)
}

/// `name=value` and `name="va\"lue"`, after the first word.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = header.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', '\t', ';']).to_ascii_lowercase();
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let (value, next) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), next)
            }
        };
        found.push((name, value));
        rest = next;
    }
    found
}

/// What stands before the closing quotation mark, and what stands behind it.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return (value, &text[at + 1..]),
            _ => {
                value.push(c);
                escaped = false;
            }
        }
    }
    (value, "")
}

/// Once, not until nothing is left to decode: `%252f` is the text `%2f`. What is no UTF-8 is marked as such.
fn percent_decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            (byte, _, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn from_url(url: &str) -> String {
        of_url(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_url_names_its_file_by_the_last_part_of_its_path() {
        for (url, name) in [
            ("https://a.example/dir/file.iso", "file.iso"),
            ("https://a.example/file.iso?token=x#part", "file.iso"),
            ("https://a.example/", "download"),
            ("https://a.example", "download"),
            ("https://a.example/dir/", "download"),
            ("https://a.example/a%20b.txt", "a b.txt"),
            ("https://a.example/caf%C3%A9.txt", "café.txt"),
            ("https://a.example/cafe%CC%81.txt", "café.txt"),
        ] {
            assert_eq!(from_url(url), name, "{url}");
        }
    }

    #[test]
    fn no_suggestion_leads_out_of_the_folder_or_hides() {
        for (suggestion, name) in [
            ("../../etc/passwd", Some("passwd")),
            ("..\\..\\windows\\win.ini", Some("win.ini")),
            ("/etc/shadow", Some("shadow")),
            ("C:\\autoexec.bat", Some("autoexec.bat")),
            ("C:autoexec.bat", Some("Cautoexec.bat")),
            ("file.txt:stream", Some("file.txtstream")),
            (".bashrc", Some("bashrc")),
            ("...", None),
            ("..", None),
            (".", None),
            ("", None),
            ("   ", None),
            ("a/..", None),
            ("a\0b", Some("ab")),
            ("a\nb\u{1b}[31m", Some("ab[31m")),
            ("user\u{202e}txt.exe", Some("usertxt.exe")),
            ("-rf", Some("rf")),
            ("~root", Some("root")),
            ("name. . ", Some("name")),
            ("CON", Some("_CON")),
            ("con.txt", Some("_con.txt")),
            ("nul .tar.gz", Some("_nul .tar.gz")),
            ("COM1", Some("_COM1")),
            ("lpt9.log", Some("_lpt9.log")),
            ("COM10", Some("COM10")),
            ("console.log", Some("console.log")),
            ("x.part", Some("x.part.file")),
            ("x.PART.json", Some("x.PART.json.file")),
            ("\u{fffd}\u{fffd}/etc", Some("etc")),
            ("日本語.pdf", Some("日本語.pdf")),
        ] {
            assert_eq!(sane(suggestion).as_deref(), name, "{suggestion:?}");
        }
    }

    #[test]
    fn encoded_separators_in_a_url_separate_nothing() {
        for url in [
            "https://a.example/..%2f..%2fetc%2fpasswd",
            "https://a.example/%2e%2e%2fpasswd",
            "https://a.example/%2e%2e%5cpasswd",
            "https://a.example/..%c0%af..%c0%afpasswd",
            "https://a.example/%252e%252e%252fpasswd",
        ] {
            let name = from_url(url);
            assert!(!name.contains(['/', '\\']) && !name.starts_with('.'), "{url}: {name}");
        }
    }

    #[test]
    fn a_disposition_is_a_suggestion_like_any_other() {
        for (header, name) in [
            ("attachment; filename=report.pdf", Some("report.pdf")),
            ("attachment; filename=\"a \\\"quoted\\\" name.pdf\"", Some("a quoted name.pdf")),
            ("attachment; filename=\"semi;colon.pdf\"; size=3", Some("semi;colon.pdf")),
            ("attachment; filename=\"../../x\"", Some("x")),
            (
                "attachment; filename=fallback.txt; filename*=UTF-8''na%C3%AFve%20file.txt",
                Some("naïve file.txt"),
            ),
            ("attachment; filename*=utf-8'en'%2e%2e%2fevil.sh", Some("evil.sh")),
            ("attachment; filename*=ISO-8859-1''x%E4.txt; filename=y.txt", Some("y.txt")),
            ("attachment; filename=first.txt; filename=second.txt", Some("first.txt")),
            ("attachment; FILENAME=\"x.txt\"", Some("x.txt")),
            ("attachment", None),
            ("attachment; filename=", None),
            ("attachment; filename=\"..\"", None),
            ("attachment; filename*=broken", None),
            ("inline; filename=\"unclosed", Some("unclosed")),
        ] {
            assert_eq!(of_disposition(header).as_deref(), name, "{header}");
        }
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
        let long = sane(&format!("{}.tar", "ü".repeat(300))).unwrap();
        assert!(long.len() <= NAME_BYTES_MAX && long.ends_with("ü.tar"), "{long}");
        let all_extension = sane(&format!("a.{}", "x".repeat(300))).unwrap();
        assert_eq!(all_extension.len(), NAME_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn whatever_is_suggested_a_name_is_one_visible_component(suggestion in ".{0,400}") {
            if let Some(name) = sane(&suggestion) {
                prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX + 1);
                prop_assert!(!name.contains(['/', '\\', ':', '\0']) && !name.starts_with('.'));
                prop_assert_eq!(crate::printable(&name), name.as_str());
                // What is sane stays so.
                prop_assert_eq!(sane(&name), Some(name));
            }
        }
    }
}
