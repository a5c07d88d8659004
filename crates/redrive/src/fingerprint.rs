//! What two failures have in common: a message without the parts that differ each time, and a short hash of it.
//!
//! Dead jobs are grouped by it, so a thousand failures with one cause are one line for a person. Not here: what a
//! failure means, which is `classify.rs`'s.

use std::net::{IpAddr, SocketAddr};

/// Sixteen hexadecimal digits that are the same wherever and whenever they are computed.
pub(crate) fn fingerprint(kind: &str, code: Option<&str>, status: Option<u16>, message: &str) -> String {
    let status = status.map(|status| status.to_string()).unwrap_or_default();
    let parts = [kind, code.unwrap_or_default(), &status, &normalise(message)];
    // FNV-1a: fixed for ever and four lines long. A hash from `std` may change with the compiler, and groups with it.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// The message with everything that names one particular occasion replaced: `job-15032` is `job-#`, a URL is
/// `<url>`, and so on. Lower case, single spaces.
pub(crate) fn normalise(message: &str) -> String {
    let unquoted = without_quoted(&message.to_lowercase());
    let words: Vec<String> = unquoted.split_whitespace().map(normalise_word).collect();
    words.join(" ")
}

/// Replaces what stands in quotation marks by `<text>`.
fn without_quoted(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(open) = rest.find(['"', '\'', '`']) {
        let (before, quoted) = rest.split_at(open);
        out += before;
        // An apostrophe stands after a letter, a quotation mark does not: «can't» opens nothing.
        let opens = !out.ends_with(|c: char| c.is_alphanumeric());
        match closing(quoted).filter(|_| opens) {
            Some(end) => {
                out += "<text>";
                rest = &quoted[end..];
            }
            None => {
                out.push_str(&quoted[..1]);
                rest = &quoted[1..];
            }
        }
    }
    out + rest
}

/// Where the text after the closing mark begins, given text that begins with an opening mark.
fn closing(quoted: &str) -> Option<usize> {
    let mark = quoted.chars().next()?;
    quoted.char_indices().skip(1).find_map(|(at, c)| {
        let end = at + c.len_utf8();
        let closes = c == mark && !quoted[end..].starts_with(|next: char| next.is_alphanumeric());
        closes.then_some(end)
    })
}

/// One word without what differs each time; the punctuation around it stays.
fn normalise_word(word: &str) -> String {
    let edge = |c: char| "()[]{}<>,;.!?\"'`".contains(c) || c == ':';
    // Before anything is cut off: the brackets of `[::1]:80` belong to it.
    if is_address(word.trim_matches(|c| "(),;.!?".contains(c))) {
        return "<ip>".to_owned();
    }
    let core = word.trim_matches(edge);
    let start = word.len() - word.trim_start_matches(edge).len();
    let (head, tail) = (&word[..start], &word[start + core.len()..]);
    // `path=/tmp/x` and `(url:http://…)`: what matters stands after the sign.
    if let Some((name, value)) = core.split_once('=').filter(|(name, _)| !name.contains("://")) {
        return format!("{head}{}={}{tail}", normalise_core(name), normalise_word(value));
    }
    format!("{head}{}{tail}", normalise_core(core))
}

fn normalise_core(core: &str) -> String {
    if core.contains("://") {
        return "<url>".to_owned();
    }
    if is_address(core) {
        return "<ip>".to_owned();
    }
    if core.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.')) {
        return "<email>".to_owned();
    }
    if is_path(core) {
        return "<path>".to_owned();
    }
    without_numbers(core)
}

fn is_address(core: &str) -> bool {
    let bare = core.trim_matches(['[', ']']);
    // A word such as `::` or `add` must not pass for an address: a real one has a digit.
    bare.contains(|c: char| c.is_ascii_digit())
        && (bare.parse::<IpAddr>().is_ok() || core.parse::<SocketAddr>().is_ok())
}

/// `/var/x`, `./x`, `~/x`, `c:\x` and `a/b/c` are paths; `application/json` and `and/or` are words.
fn is_path(core: &str) -> bool {
    let rooted =
        ["/", "./", "../", "~/"].iter().any(|root| core.starts_with(root) && core.len() > root.len());
    rooted || core.contains('\\') || core.matches('/').count() >= 2
}

/// Numbers, times, and ids made of digits and letters become `#`, and a row of them one `#`.
fn without_numbers(core: &str) -> String {
    let mut out = String::with_capacity(core.len());
    let mut rest = core;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (run, after) = rest.split_at(length);
        if is_id(run) {
            push_mark(&mut out)
        } else {
            out += run
        }
        rest = after;
    }
    out
}

/// Whether a run of letters and digits names one occasion: it has a digit, or is long and hexadecimal.
fn is_id(run: &str) -> bool {
    run.contains(|c: char| c.is_numeric()) || (run.len() >= 8 && run.chars().all(|c| c.is_ascii_hexdigit()))
}

/// Appends `#`, or lets it merge with one before: `2026-11-15t21:18:51z` and `1.5` are one `#` each.
fn push_mark(out: &mut String) {
    let joined = out.strip_suffix(['-', ':', '.', ',', '+']).is_some_and(|before| before.ends_with('#'));
    if joined {
        out.pop();
    } else if !out.ends_with('#') {
        out.push('#');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_differs_each_time_is_removed() {
        let cases = [
            ("Job-15032 failed after 3 attempts", "job-# failed after # attempts"),
            ("no user 6f1c2a7e-9d2b-4f0e-8a53-0c9c6a1b2d3e", "no user #"),
            ("commit deadbeefcafe is gone", "commit # is gone"),
            ("GET https://api.x/v1/items/7?q=1: 503", "get <url>: #"),
            ("cannot open /var/lib/redrive/jobs.db.", "cannot open <path>."),
            ("cannot open C:\\data\\jobs.db", "cannot open <path>"),
            ("at 2026-11-15T21:18:51.123Z, gave up", "at #, gave up"),
            ("took 1.5s (limit 30s)", "took # (limit #)"),
            ("unknown column \"name\" in 'people'", "unknown column <text> in <text>"),
            ("can't reach it, won't try", "can't reach it, won't try"),
            ("no mailbox for ann@example.org", "no mailbox for <email>"),
            ("refused by 10.0.0.7:5432 and [::1]:80", "refused by <ip> and <ip>"),
            ("bad content-type application/json", "bad content-type application/json"),
            ("id=17 path=/tmp/x", "id=# path=<path>"),
            ("  two   spaces\n", "two spaces"),
            ("", ""),
        ];
        for (message, expected) in cases {
            assert_eq!(normalise(message), expected, "{message}");
        }
    }

    #[test]
    fn the_same_cause_has_the_same_fingerprint_and_another_has_another() {
        let print = |kind, code, status, message| fingerprint(kind, code, status, message);
        let first = print("parse", Some("TIMEOUT"), None, "no answer from 10.0.0.1 in 5003 ms");
        assert_eq!(first, print("parse", Some("TIMEOUT"), None, "No answer from 10.9.8.7 in 17 ms"));
        assert_eq!(first.len(), 16);
        assert!(first.chars().all(|c| c.is_ascii_hexdigit()));
        for other in [
            print("fetch", Some("TIMEOUT"), None, "no answer from 10.0.0.1 in 5003 ms"),
            print("parse", None, None, "no answer from 10.0.0.1 in 5003 ms"),
            print("parse", Some("TIMEOUT"), Some(504), "no answer from 10.0.0.1 in 5003 ms"),
            print("parse", Some("TIMEOUT"), None, "no answer"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_fingerprint_never_changes_between_versions() {
        assert_eq!(fingerprint("parse", Some("TIMEOUT"), None, "no answer"), "ff28a3ae106af9c6");
    }

    proptest! {
        #[test]
        fn any_message_can_be_normalised(message in "\\PC{0,60}") {
            prop_assert_eq!(normalise(&message), normalise(&message.to_lowercase()));
        }

        #[test]
        fn numbers_never_tell_two_messages_apart(a in 0_u64.., b in 0_u64..) {
            let message = |n: u64| format!("job-{n} of user {n}: page {n}/9 took {n}ms");
            prop_assert_eq!(normalise(&message(a)), normalise(&message(b)));
        }
    }
}
