//! Text that came from outside, made harmless to read: nothing in it can move a cursor, colour a terminal, forge a
//! second line of a log or turn the reading direction.

use std::borrow::Cow;

/// The text with every control, bidi and invisible character written out: a line break as `\n`, an escape as
/// `\u{1b}`. Text without any is not copied.
///
/// ```
/// use redrive_server::printable;
///
/// assert_eq!(printable("paid\n\u{1b}[31mERROR"), "paid\\n\\u{1b}[31mERROR");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |out, c| match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
    })
}

/// The same for a text that is JSON already, where what needs it is written as JSON writes it.
pub fn printable_json(text: &str) -> Cow<'_, str> {
    escaped(text, |out, c| {
        let mut units = [0_u16; 2];
        for unit in c.encode_utf16(&mut units) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

fn escaped(text: &str, mut write: impl FnMut(&mut String, char)) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain || !text.contains(is_treacherous) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_treacherous(c) {
            write(&mut out, c);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character does something instead of being seen. The joiners stay: scripts and emoji are written with them.
fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_in_any_script_is_left_alone() {
        for text in ["", "plain", "日本語 עברית", "👩‍👩‍👧", "a\\b"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn whatever_steers_a_terminal_or_forges_a_line_is_written_out() {
        let corpus = [
            ("a\nb", "a\\nb"),
            ("a\r\nb", "a\\r\\nb"),
            ("a\tb", "a\\tb"),
            ("\u{1b}]8;;http://evil\u{7}x", "\\u{1b}]8;;http://evil\\u{7}x"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{2028}b\u{2029}c", "a\\u{2028}b\\u{2029}c"),
            ("user\u{202e}txt.exe", "user\\u{202e}txt.exe"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("\u{0}\u{7f}", "\\u{0}\\u{7f}"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ];
        for (text, expected) in corpus {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn json_stays_json() {
        let json = serde_json::to_string("a\n\u{202e}\u{e0041}\u{9b}").unwrap();
        let clean = printable_json(&json);
        assert!(!clean.contains(is_treacherous));
        assert_eq!(serde_json::from_str::<String>(&clean).unwrap(), "a\n\u{202e}\u{e0041}\u{9b}");
    }
}
