//! Hides secrets in text that comes from outside, before it becomes a failure: what a far side answered, what a program
//! wrote, what a worker reports. A secret is known by its name, by the scheme before it, by its place in a URL, or by how
//! it begins.
//!
//! Not here: payloads and outputs. They are kept as they are, for whoever may read them.

mod words;

use std::borrow::Cow;
use std::ops::Range;

use self::words::{BEGINNINGS, BEGINNINGS_OF_NAMES, HEADERS, NAMES, NAMES_OF_SOME, SAID};

/// What stands where a secret was.
const HIDDEN: &str = "***";

/// What a private key in text form stands between: `-----BEGIN … PRIVATE KEY-----` and the line that ends it.
const KEY_BEGIN: &str = "-----BEGIN";
const KEY_END: &str = "-----END";
/// What may stand before it.
const KEY_HEADERS: [&str; 3] = ["Proc-Type:", "Version:", "Comment:"];
/// A line of one is longer; a word of prose is not.
const KEY_WORD_BYTES: usize = 20;
/// How much may stand between `BEGIN` and the end of that line.
const KEY_TITLE_CHARS_MAX: usize = 64;
/// How far an element's attributes are looked through.
const ATTRIBUTES_CHARS_MAX: usize = 256;
/// How far a URL's password is looked for beyond where it should have ended.
const PASSWORD_CHARS_MAX: usize = 128;
/// What is shorter only begins like one.
const WELL_KNOWN_BYTES_MIN: usize = 16;
/// So many digits are more than somebody counts.
const COUNT_BYTES: usize = 5;
/// What is shorter is no name and password in base64.
const BASIC_BYTES_MIN: usize = 4;

/// The text with `***` for every secret in it. As it is, and not copied, if there is none.
pub(crate) fn redact(text: &str) -> Cow<'_, str> {
    let (mut shown, mut done) = (String::new(), 0);
    while let Some(secret) = next_secret(text, done) {
        shown.push_str(&text[done..secret.start]);
        shown.push_str(HIDDEN);
        done = secret.end;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[done..]);
    Cow::Owned(shown)
}

/// The first secret from here on. It is looked for word by word, and each looks no further than its own secret would
/// reach, so that a long text takes as long as it is long.
fn next_secret(text: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        let start = at + text[at..].find(is_of_word)?;
        let end = end_of(text, start, |c| !is_of_word(c));
        let secret = match after_scheme_of_url(text, end) {
            Some(authority) => user_info(text, authority),
            None => named(text, start..end)
                .or_else(|| tagged(text, start..end))
                .or_else(|| private_key(text, start..end))
                .or_else(|| after_scheme(text, start..end))
                .or_else(|| well_known(text, start..end)),
        };
        if secret.is_some() {
            return secret;
        }
        at = end;
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Where the authority of a URL begins. Some escape the slashes in JSON.
fn after_scheme_of_url(text: &str, end: usize) -> Option<usize> {
    ["://", ":\\/\\/"].iter().find(|sign| text[end..].starts_with(**sign)).map(|sign| end + sign.len())
}

/// What stands before the `@` of `https://user:password@host/`.
fn user_info(text: &str, start: usize) -> Option<Range<usize>> {
    let is_end = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
    let authority = &text[start..end_of(text, start, |c| is_end(c) || "/?#\\".contains(c))];
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let has_password = authority.rsplit_once(':').is_some_and(|(_, port)| !is_port(port));
    let user = match authority.rfind('@') {
        // A password that was not escaped may hold a slash.
        None if has_password => near(&text[start..], PASSWORD_CHARS_MAX).split(is_end).next()?.rfind('@')?,
        at => at?,
    };
    (user > 0).then_some(start..start + user)
}

fn near(text: &str, chars: usize) -> &str {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// What stands after a name: `password=…`, `token: …`, `"apiKey": "…"`, `--password …`.
fn named(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let Place { sign, start } = Place::after(text, word.clone())?;
    let word = &text[word];
    let is_header = HEADERS.iter().any(|name| ends_with_name(word, name));
    if !is_header && !is_name(word, || sign.is_sure(&text[start..])) {
        return None;
    }
    let may_count = !is_header && !is_name(word, || false);
    let first = text.len() - text[start..].trim_start_matches('[').len();
    let value = match opening(text, first) {
        Some((inside, quote, escapes)) => inside..closing(text, inside, quote, escapes),
        // What stands in them has names of its own, and a key is found where it begins.
        None if text[first..].starts_with(['{', '(']) || text[first..].starts_with(KEY_BEGIN) => return None,
        None if is_header => first..end_of_header(text, first),
        None if sign == Sign::Encoded => first..end_of_encoded(text, first),
        None => first..end_of_value(text, first),
    };
    let said = &text[value.clone()];
    // A list of sentences says what is wrong with it: `"password": ["is too short"]`.
    let is_prose = first > start && value.start > first && said.contains(' ');
    // What follows the scheme is the secret, and is found there.
    let is_scheme = !is_header && ["bearer", "basic"].iter().any(|scheme| said.eq_ignore_ascii_case(scheme));
    let is_option = sign == Sign::Space && said.starts_with('-');
    // `pass=12 fail=1`
    let is_count = may_count && said.len() < COUNT_BYTES && said.bytes().all(|byte| byte.is_ascii_digit());
    let is_other = is_prose || is_scheme || is_option || is_count || is_said(said);
    (!said.is_empty() && !is_other).then_some(value)
}

/// Whether a word names a secret: anywhere, or if only in some places, in this one.
fn is_name(word: &str, is_sure: impl FnOnce() -> bool) -> bool {
    NAMES.iter().any(|name| ends_with_name(word, name))
        || NAMES_OF_SOME.iter().any(|name| ends_with_word(word, name)) && is_sure()
}

/// What stands between a name and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// `=`, `=>`
    Equals,
    /// `==`: somebody compares.
    Compares,
    /// `:`
    Colon,
    /// `%3D`: an equals sign within a URL.
    Encoded,
    /// Nothing but a space, or a comma between two quotations, after an option of a command line.
    Space,
}

impl Sign {
    /// Whether it makes a secret of what comes after an ordinary word.
    fn is_sure(self, value: &str) -> bool {
        match self {
            Sign::Equals | Sign::Encoded | Sign::Space => true,
            Sign::Compares => false,
            Sign::Colon => opening(value, 0).is_some(),
        }
    }
}

/// Where the value begins that a word gives a name to.
struct Place {
    sign: Sign,
    start: usize,
}

impl Place {
    /// None without a sign after the word.
    fn after(text: &str, word: Range<usize>) -> Option<Place> {
        let quoted = opening(text, word.end);
        let at = quoted.map_or(word.end, |(after, _, _)| after);
        // What is quoted is a field, and its value may stand on the next line.
        let blank = |c: char| if quoted.is_some() { c.is_whitespace() } else { matches!(c, ' ' | '\t') };
        let rest = text[at..].trim_start_matches(blank);
        let sign = match rest.as_bytes() {
            // `token::parse` is a path.
            [b':', b':', ..] => return None,
            [b':', ..] => Sign::Colon,
            [b'=', b'=', ..] => Sign::Compares,
            [b'=', ..] => Sign::Equals,
            [b'%', b'3', b'D' | b'd', ..] => Sign::Encoded,
            [b',', ..] if quoted.is_some() => Sign::Space,
            _ if rest.len() < text.len() - at && quoted.is_none() => Sign::Space,
            _ => return None,
        };
        if sign == Sign::Space && !text[word].starts_with("--") {
            return None;
        }
        let value = match sign {
            Sign::Encoded => &rest[3..],
            Sign::Space => rest.trim_start_matches(','),
            _ => rest[1..].trim_start_matches(['=', '>']),
        };
        let value = match value.trim_start() {
            field if quoted.is_some() && opening(field, 0).is_some() => field,
            _ => value.trim_start_matches([' ', '\t']),
        };
        Some(Place { sign, start: text.len() - value.len() })
    }
}

/// What stands in an element: `<password>…</password>`.
fn tagged(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let before = &text[..word.start];
    // `<wsse:Password>` has a name before the name.
    let opens = before.strip_suffix(':').map_or(before, |name| name.trim_end_matches(is_of_word));
    if !opens.ends_with('<') || !is_name(&text[word.clone()], || true) {
        return None;
    }
    let attributes = near(&text[word.end..], ATTRIBUTES_CHARS_MAX).split_once(['<', '>'])?.0;
    let end = word.end + attributes.len();
    let value = end + 1..end_of(text, end + 1, |c| c == '<');
    let said = text[value.clone()].trim();
    // `--token <TOKEN> --quiet` is no element. One that was cut off has no end.
    let ends = text[value.end..].starts_with("</")
        || value.end == text.len() && !text[value.clone()].starts_with(char::is_whitespace);
    if !text[end..].starts_with('>') || !ends || said.is_empty() || is_said(said) {
        return None;
    }
    // A secret before this one is hidden along with what is between them.
    if redact(attributes) == attributes { Some(value) } else { Some(word.end..value.end) }
}

/// What stands between the first and the last line of a private key; all the rest, if the last line is missing.
fn private_key(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    if !text[word.clone()].ends_with(KEY_BEGIN) {
        return None;
    }
    let (title, _) = near(&text[word.end..], KEY_TITLE_CHARS_MAX).split_once("-----")?;
    if !title.contains("PRIVATE KEY") || !title.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b' ')
    {
        return None;
    }
    let start = word.end + title.len() + "-----".len();
    // `no -----BEGIN PRIVATE KEY----- found`: what is encoded has capitals and digits from its first word on.
    let body = text[start..].trim_start();
    let is_encoded = |c: char| c.is_ascii_alphanumeric() || "+/=\\\r\n".contains(c);
    let first = &body[..end_of(body, 0, |c| !is_encoded(c))];
    let after = body[first.len()..].trim_start();
    // `-----BEGIN PRIVATE KEY----- Not found` only speaks of one.
    let is_all = after.is_empty() || after.starts_with(KEY_END);
    let is_key = first.contains(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
        && (is_all || first.len() >= KEY_WORD_BYTES || KEY_HEADERS.iter().any(|name| body.starts_with(name)));
    is_key.then(|| start..text[start..].find(KEY_END).map_or(text.len(), |length| start + length))
}

/// Whether a word ends with a name, however it is written: `API_KEY`, `x-api-key`, `apiKey2`.
fn ends_with_name(word: &str, name: &str) -> bool {
    let letters = word.bytes().rev().skip_while(u8::is_ascii_digit);
    let mut letters = letters.filter(|byte| !matches!(byte, b'_' | b'-'));
    name.bytes().rev().all(|byte| letters.next().is_some_and(|letter| letter.eq_ignore_ascii_case(&byte)))
}

/// The same, but what is before the name is another word: `DB_PASS` and `dbPass`, not `bypass`.
fn ends_with_word(word: &str, name: &str) -> bool {
    let word = word.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '_' | '-'));
    let Some((before, end)) = word.split_at_checked(word.len().saturating_sub(name.len())) else {
        return false;
    };
    let is_new_word = !before.ends_with(|c: char| c.is_ascii_alphabetic())
        || before.ends_with(|c: char| c.is_ascii_lowercase())
            && end.starts_with(|c: char| c.is_ascii_uppercase());
    end.eq_ignore_ascii_case(name) && is_new_word
}

/// A quotation mark that stands here: where the text after it begins, which one it is, and how many backslashes are
/// before it, as in JSON within JSON.
fn opening(text: &str, at: usize) -> Option<(usize, char, usize)> {
    let after = text[at..].trim_start_matches('\\');
    let quote = after.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let escapes = text.len() - at - after.len();
    Some((at + escapes + quote.len_utf8(), quote, escapes))
}

/// Where the text that was opened so ends: before its own quotation mark and that one's backslashes, else at the end.
fn closing(text: &str, inside: usize, quote: char, escapes: usize) -> usize {
    let mut before = 0;
    for (at, c) in text[inside..].char_indices() {
        match c {
            '\\' => before += 1,
            // A mark within the text has as many backslashes more as it takes to escape it and each of them.
            c if c == quote && before % (2 * (escapes + 1)) == escapes => return inside + at - escapes,
            _ => before = 0,
        }
    }
    text.len()
}

/// What stands after `Bearer` or `Basic`.
fn after_scheme(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let is_basic = text[word.clone()].eq_ignore_ascii_case("basic");
    let start = after_spaces(text, word.end);
    if start == word.end || !is_basic && !text[word].eq_ignore_ascii_case("bearer") {
        return None;
    }
    let value = start..end_of_value(text, start);
    let said = &text[value.clone()];
    let is_secret = match is_basic {
        true => is_base64(said),
        false => !said.is_empty() && !said.eq_ignore_ascii_case("token"),
    };
    (is_secret && !is_said(said)).then_some(value)
}

/// Whether it may be base64, and is no word: `Basic plan` and `BASIC AUTH` are not about passwords.
fn is_base64(said: &str) -> bool {
    let is_word = said.bytes().all(|byte| byte.is_ascii_uppercase())
        || said.bytes().skip(1).all(|byte| byte.is_ascii_lowercase());
    let is_base64 = said.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    is_base64 && !is_word && said.len() >= BASIC_BYTES_MIN
}

/// What begins as secrets do.
fn well_known(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let beginning = BEGINNINGS.iter().find(|beginning| text[word.start..].starts_with(**beginning))?;
    // `SG.` is a word, and the secret is the next.
    let after = word.start + beginning.len();
    let end = end_of(text, after.max(word.end), |c| !is_of_word(c));
    let rest = &text[after..end];
    let is_one_word = rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let may_be_name = BEGINNINGS_OF_NAMES.contains(beginning)
        && !(is_one_word && rest.contains(|c: char| c.is_ascii_digit()));
    let is_long = end - word.start >= WELL_KNOWN_BYTES_MIN;
    (is_long && !may_be_name).then(|| word.start..end_of_value(text, word.start))
}

fn is_said(value: &str) -> bool {
    SAID.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// The end of a value that stands in no quotation marks; what closes a sentence or a bracket is not part of it.
fn end_of_value(text: &str, start: usize) -> usize {
    let end = end_of(text, start, |c| c.is_whitespace() || "&;,\"'`<>\\".contains(c));
    start + text[start..end].trim_end_matches(['.', ':', ')', ']', '}']).len()
}

/// The same for what stands in a URL within a URL, where `&` is `%26`.
fn end_of_encoded(text: &str, start: usize) -> usize {
    let end = end_of_value(text, start);
    text[start..end].find("%26").map_or(end, |length| start + length)
}

/// The same for a header: a scheme and what comes after it, and parts with `;` or `,` between them.
fn end_of_header(text: &str, start: usize) -> usize {
    let mut end = end_of_part(text, start);
    if text[start..end].chars().all(is_of_word) && !is_said(&text[start..end]) {
        end = end_of_part(text, after_spaces(text, end));
    }
    while text[start..end].ends_with([';', ',']) {
        let next = after_spaces(text, end);
        let next_end = end_of_part(text, next);
        if !text[next..next_end].contains('=') {
            break;
        }
        end = next_end;
    }
    start + text[start..end].trim_end_matches(['.', ',', ';', ':', ')', ']', '}', '\\', ' ']).len()
}

/// The end of a word of a header, with what stands in quotation marks after its `=`: `response="…"`.
fn end_of_part(text: &str, start: usize) -> usize {
    let mut end = start;
    loop {
        end = end_of(text, end, |c| c.is_whitespace() || "\"'`<>".contains(c));
        let named = text[start..end].trim_end_matches('\\');
        let Some((inside, '"', escapes)) = opening(text, start + named.len()) else { return end };
        // After the `=` at the end of base64 the mark is one that stood before the header, and closes.
        let begins = |c: char| c.is_ascii_alphanumeric() || "\"/+_-.*(".contains(c);
        if !named.ends_with('=') || !text[inside..].starts_with(begins) {
            return end;
        }
        let close = closing(text, inside, '"', escapes);
        end = text.len().min(close + escapes + 1);
    }
}

fn after_spaces(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start_matches([' ', '\t']).len()
}

/// Where the first of these stands, or the text ends.
fn end_of(text: &str, start: usize, is_end: impl Fn(char) -> bool) -> usize {
    text[start..].find(is_end).map_or(text.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_hidden() {
        for (text, shown) in [
            // In URLs.
            ("https://user:hunter2@db.example/x", "https://***@db.example/x"),
            ("postgres://app:hunter2@10.0.0.7:5432/jobs", "postgres://***@10.0.0.7:5432/jobs"),
            ("cannot reach redis://:hunter2@cache:6379", "cannot reach redis://***@cache:6379"),
            ("amqp://guest:hun@ter2@mq/", "amqp://***@mq/"),
            ("https://ghp@github.example/r.git", "https://***@github.example/r.git"),
            ("\"http://u:hunter2@[::1/\" is no URL", "\"http://***@[::1/\" is no URL"),
            ("mysql://u:hun/ter#2@db/x", "mysql://***@db/x"),
            (r#"{"dsn":"mysql:\/\/u:hunter2@db\/x"}"#, r#"{"dsn":"mysql:\/\/***@db\/x"}"#),
            ("two: ftp://a:b@c, ftp://d:e@f", "two: ftp://***@c, ftp://***@f"),
            ("GET https://x.example/?token=hunter2&page=2", "GET https://x.example/?token=***&page=2"),
            ("https://x.example/cb#access_token=hunter2", "https://x.example/cb#access_token=***"),
            // After a scheme.
            ("sent Bearer hunter2", "sent Bearer ***"),
            ("Bearer abc.def-ghi_jkl", "Bearer ***"),
            ("(bearer hunter2)", "(bearer ***)"),
            ("BEARER hunter2, which is old", "BEARER ***, which is old"),
            ("Basic dXNlcjpodW50ZXIy", "Basic ***"),
            ("basic dTpw was sent", "basic *** was sent"),
            // By name.
            ("password=hunter2", "password=***"),
            ("PASSWORD=hunter2 HOST=db", "PASSWORD=*** HOST=db"),
            ("password: hunter2", "password: ***"),
            ("password = hunter2", "password = ***"),
            ("password => hunter2", "password => ***"),
            ("'password' => 'hunter2'", "'password' => '***'"),
            ("passwd:hunter2", "passwd:***"),
            ("pwd=hunter2;server=db", "pwd=***;server=db"),
            ("DB_PASS=hunter2", "DB_PASS=***"),
            ("--password=hunter2 --user=app", "--password=*** --user=app"),
            ("passphrase: 'correct horse battery staple' given", "passphrase: '***' given"),
            ("client_secret=hunter2&grant_type=x", "client_secret=***&grant_type=x"),
            ("clientSecret: hunter2", "clientSecret: ***"),
            ("secret=hünter²", "secret=***"),
            ("token=hunter2.", "token=***."),
            ("(token=hunter2)", "(token=***)"),
            ("access_token=hunter2, refresh_token=hunter3", "access_token=***, refresh_token=***"),
            ("csrfToken=hunter2", "csrfToken=***"),
            ("token: Bearer hunter2 was sent", "token: Bearer *** was sent"),
            ("api_key=hunter2", "api_key=***"),
            ("api-key: hunter2", "api-key: ***"),
            ("apikey=\"hunter2\"", "apikey=\"***\""),
            ("X-Api-Key: hunter2", "X-Api-Key: ***"),
            ("X-Api-Key:[hunter2] Accept:[*/*]", "X-Api-Key:[***] Accept:[*/*]"),
            ("apiKey2=hunter2", "apiKey2=***"),
            ("aws_secret_access_key = hunter2/x+y", "aws_secret_access_key = ***"),
            ("access_key=hunter2", "access_key=***"),
            ("private_key=hunter2", "private_key=***"),
            ("spring.datasource.password=hunter2", "spring.datasource.password=***"),
            ("<b>password=hunter2</b>", "<b>password=***</b>"),
            // In JSON.
            (r#"{"password":"hunter2"}"#, r#"{"password":"***"}"#),
            (r#"{"password" : "hunter2", "a": 1}"#, r#"{"password" : "***", "a": 1}"#),
            (r#"{"apiKey":"hun\"ter2\\","a":"b"}"#, r#"{"apiKey":"***","a":"b"}"#),
            (r#"{"token":12345}"#, r#"{"token":***}"#),
            (r#"{"tokens":1,"idToken":"hunter2"}"#, r#"{"tokens":1,"idToken":"***"}"#),
            (r#""{\"secret\":\"hunter2\",\"a\":1}""#, r#""{\"secret\":\"***\",\"a\":1}""#),
            (r#"{"secret":["hunter2"]}"#, r#"{"secret":["***"]}"#),
            (r#"{"Authorization":"Bearer hunter2"}"#, r#"{"Authorization":"***"}"#),
            (r#"{"Authorization":["Bearer hunter2"]}"#, r#"{"Authorization":["Bearer ***"]}"#),
            (r#"{"password":"hunter2 and it was cut"#, r#"{"password":"***"#),
            (r#"{"log":"password=hunter2","a":1}"#, r#"{"log":"password=***","a":1}"#),
            // Headers, of several words.
            ("Authorization: Bearer hunter2", "Authorization: ***"),
            ("authorization: Basic dXNlcjpodW50ZXIy was refused", "authorization: *** was refused"),
            ("Proxy-Authorization: hunter=2 x", "Proxy-Authorization: *** x"),
            (
                "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;x, Signature=ab x",
                "Authorization: *** x",
            ),
            ("curl -H 'Authorization: Token hunter2' https://x", "curl -H 'Authorization: ***' https://x"),
            ("Cookie: sid=hunter2; lang=de\nHost: x", "Cookie: ***\nHost: x"),
            ("Set-Cookie: sid=hunter2; Path=/; HttpOnly", "Set-Cookie: ***; HttpOnly"),
            (
                r#"Authorization: Digest username="u", realm="a b", qop=auth, response="hunter2" was refused"#,
                "Authorization: *** was refused",
            ),
            (r#"Authorization: Digest username="u",response="hunter2""#, "Authorization: ***"),
            (r#"Authorization: Hawk id="1", ext="", mac="hunter2=", hash="/h=""#, "Authorization: ***"),
            (
                r#"{"sent":"Authorization: Digest username=\"u\", response=\"hunter2\"","a":1}"#,
                r#"{"sent":"Authorization: ***","a":1}"#,
            ),
            (
                r#"curl -H "Authorization: Basic dTpodW4=" "https://x""#,
                r#"curl -H "Authorization: ***" "https://x""#,
            ),
            (r#"{"Authorization":"Digest username=\"u\""}"#, r#"{"Authorization":"***"}"#),
            ("Authorization: Hunter2", "Authorization: ***"),
            ("proxy-authorization: ApiKey hunter2\nHost: x", "proxy-authorization: ***\nHost: x"),
            // By a name that is a word, too.
            ("pass=hunter2", "pass=***"),
            ("user=app pass=hunter2 host=db", "user=app pass=*** host=db"),
            ("smtp_pass = hunter2", "smtp_pass = ***"),
            ("dbPass=hunter2", "dbPass=***"),
            (r#"{"pass":"hunter2"}"#, r#"{"pass":"***"}"#),
            ("{ user: 'app', pass: 'hunter2' }", "{ user: 'app', pass: '***' }"),
            ("https://a.example/?sv=1&sig=hunter2%2B&x=1", "https://a.example/?sv=1&sig=***&x=1"),
            (
                "GET /k?X-Amz-Credential=hunter2/s3&X-Amz-Expires=60&X-Amz-Signature=hunter2",
                "GET /k?X-Amz-Credential=***&X-Amz-Expires=60&X-Amz-Signature=***",
            ),
            ("x-goog-signature=hunter2", "x-goog-signature=***"),
            ("oauth_signature=hunter2&a=b", "oauth_signature=***&a=b"),
            ("auth=hunter2", "auth=***"),
            ("credential=hunter2, credentials=hunter2", "credential=***, credentials=***"),
            (
                "AccountName=a;AccountKey=hunter2==;EndpointSuffix=x",
                "AccountName=a;AccountKey=***;EndpointSuffix=x",
            ),
            ("SECRET_KEY_BASE=hunter2", "SECRET_KEY_BASE=***"),
            ("encryption_key=hunter2", "encryption_key=***"),
            ("session=hunter2; Path=/", "session=***; Path=/"),
            ("PHPSESSID=hunter2", "PHPSESSID=***"),
            // On the next line, in an element, within a URL, on a command line.
            ("{\"password\":\n\"hunter2\"}", "{\"password\":\n\"***\"}"),
            ("{\"password\" :\r\n\t \"hunter2\", \"a\": 1}", "{\"password\" :\r\n\t \"***\", \"a\": 1}"),
            ("<password>hunter2</password>", "<password>***</password>"),
            (
                "<wsse:Password Type=\"Text\">hunter 2</wsse:Password>",
                "<wsse:Password Type=\"Text\">***</wsse:Password>",
            ),
            ("<user>app</user><pass>hunter2", "<user>app</user><pass>***"),
            (
                "https://x/?next=%2Fa%3Fpassword%3Dhunter2%26b%3D1&c=2",
                "https://x/?next=%2Fa%3Fpassword%3D***%26b%3D1&c=2",
            ),
            ("token%3dhunter2 is old", "token%3d*** is old"),
            ("mysql --user app --password hunter2 --host db", "mysql --user app --password *** --host db"),
            ("--api-key 'hunter 2'", "--api-key '***'"),
            (
                "Command '['mysql', '--password', 'hunter2']' failed",
                "Command '['mysql', '--password', '***']' failed",
            ),
            // Keys as text.
            (
                "-----BEGIN PRIVATE KEY-----\nMIIhunter2\nhunter2==\n-----END PRIVATE KEY-----\nof x",
                "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----\nof x",
            ),
            (
                "key: -----BEGIN OPENSSH PRIVATE KEY-----\nb3Blhunter2",
                "key: -----BEGIN OPENSSH PRIVATE KEY-----***",
            ),
            (
                r#"{"key":"-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\n-----END RSA PRIVATE KEY-----\n"}"#,
                r#"{"key":"-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\n"}"#,
            ),
            (
                "-----BEGIN PGP PRIVATE KEY BLOCK----- Version: hunter2 x -----END PGP PRIVATE KEY BLOCK-----",
                "-----BEGIN PGP PRIVATE KEY BLOCK-----***-----END PGP PRIVATE KEY BLOCK-----",
            ),
            (
                "private_key: -----BEGIN PRIVATE KEY-----\nMIIhunter2",
                "private_key: -----BEGIN PRIVATE KEY-----***",
            ),
            ("<password token=\"hunter2\">hunter2</password>", "<password***</password>"),
            // By how they begin.
            ("key rdv_0123456789_abcdef_01 is unknown", "key *** is unknown"),
            ("signed with whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "signed with ***"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln.", "***."),
            ("user AKIAIOSFODNN7EXAMPLE", "user ***"),
            ("ghp_0123456789abcdefghij", "***"),
            ("gho_0123456789abcdefghij, ghu_0123456789abcdefghij", "***, ***"),
            ("ghs_0123456789abcdefghij, ghr_0123456789abcdefghij", "***, ***"),
            ("github_pat_0123456789abcdefghij", "***"),
            ("sk_test_0123456789abcdef sk_live_0123456789abcdef", "*** ***"),
            ("user ASIAIOSFODNN7EXAMPLE", "user ***"),
            ("AIzaSyD-0123456789_abcdef was refused", "*** was refused"),
            ("SG.0123456789-abcdef_x.0123456789abcdef!", "***"),
            ("hf_abcdefghij0123456789", "***"),
            ("xoxa-2-0123456789abcdef xoxb-0123456789abcdef xoxp-0123456789abcdef", "*** *** ***"),
        ] {
            assert_eq!(redact(text), shown, "{text}");
            assert_eq!(redact(&redact(text)), shown, "again: {text}");
        }
    }

    #[test]
    fn what_is_no_secret_stays_as_it_is() {
        for text in [
            "",
            "token expired",
            "the password is wrong",
            "no secret for the endpoint",
            "12 tests: pass=11 fail=1",
            "killed with sig=9",
            "cannot refresh the token: timeout",
            "token: connection reset by peer",
            "-----BEGIN PRIVATE KEY----- Not found in /etc/tls",
            "there is no secret for the endpoint \"shop\"; add one to the configuration, then redrive the job",
            "api.example answered 401",
            "token: expired",
            "Password: must have 8 characters",
            "invalid token: not found.",
            "password:",
            "password=",
            "password=&user=x",
            "Password:\nLogin incorrect",
            r#"{"password":""}"#,
            r#"{"token":null,"secret":false}"#,
            r#"{"password":["is too short","has no digit"]}"#,
            r#"{"token":{"kind":"jwt"}}"#,
            r#"unknown field "token", expected one of "a", "b""#,
            "missing field `password` at line 1",
            "max_tokens: 100, token_count=5",
            "secret::parse failed",
            "Unexpected token < in JSON at position 0",
            "Bearer token is missing",
            r#"WWW-Authenticate: Bearer realm="api", error="invalid_token""#,
            r#"WWW-Authenticate: Basic realm="api""#,
            "the Basic plan allows 5 requests",
            "BASIC AUTH REQUIRED",
            "basic authentication failed",
            "authorization failed",
            "Authorization: required",
            "the cookie has no name",
            "https://example.com/@user/posts?mail=a@b.example",
            "http://example.com:8080/@x",
            "write to ops@example.com",
            "cannot open secret://vault/path",
            "eyJ is how they begin",
            "12 of 13 tests are passing",
            "the pass rate is 3",
            "pass: 12, fail: 1",
            "if pass == expected",
            "bypass=1 compass=north trespass=no",
            "session ended",
            "session: not found",
            "the auth session was closed",
            "auth: failed to verify",
            r#"{"auth":{"user":"app"}}"#,
            "signature mismatch",
            "signature: mismatch of two digests",
            "author=Jane Roe, authority=x, design=new",
            "https://x.example/list?page=2&sort=name",
            "credentials: expired",
            "password%3D",
            "unknown option --password",
            "--password is required, --token <TOKEN> too",
            "Usage: log-in <USER> <PASSWORD> <HOST>",
            "--password --host db",
            "-- password protected",
            "<password></password> is empty",
            "<p>password</p>",
            "expected -----BEGIN PRIVATE KEY----- in the file",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "hf_hub_download_to_file failed",
            "ASIA-PACIFIC-REGION-1 is down",
            "SG.class: no such thing",
            "sk_test_****1234 is no key",
            "grüße: 日本語 = 🦀",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(same) if same == text), "{text}: {}", redact(text));
        }
    }

    #[test]
    fn a_long_text_takes_as_long_as_it_is_long() {
        for piece in [
            "a://b:c/",
            "a://",
            "token={",
            "cookie=[a=b; ",
            "token=[\"a ",
            "password='",
            "token=\\",
            "bearer ",
            "basic ",
            "_",
            " ",
            "eyJ",
            "secret:",
            "\"secret\":\n",
            "authorization: a=\"b",
            "authorization: a=\"b\", ",
            "authorization=a,",
            "<secret ",
            "<secret>",
            "<a:",
            "a:secret",
            "--secret ",
            "--secret, ",
            "secret%3D",
            "-----BEGIN ",
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY----- a ",
            "SG.",
            "pass=",
        ] {
            let long = piece.repeat((1 << 18) / piece.len());
            // Were it read again for each of its words, nobody would wait for the end.
            assert!(redact(&long).len() <= long.len() + HIDDEN.len(), "{piece}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_around_it_a_named_secret_is_hidden(
            before in "[^a-zA-Z0-9_-]{0,20}",
            name in "(password|api_key|client-secret|accessToken)",
            sign in "(=|: |:|\" : \"|': ')",
            after in "([ \"'&;,<].{0,20})?",
        ) {
            let text = format!("{before}{name}{sign}hunter2hunter2{after}");
            prop_assert!(!redact(&text).contains("hunter2"), "{}", redact(&text));
        }

        #[test]
        fn no_text_is_too_strange(
            text in "(?s)([a-z:/@=\"'\\\\\\[ \\n,;]|token|pass|bearer |basic |://|cookie|authorization: |%3D|%26|--|=\"|\
                -----BEGIN PRIVATE KEY-----|-----END|A1|é|.){0,60}",
        ) {
            let shown = redact(&text).into_owned();
            prop_assert_eq!(redact(&shown).into_owned(), shown);
        }
    }
}
