//! A request's body: read whole before a route sees it, within its limit and at a pace, so that no route waits for a
//! client, and every refusal has the same form.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::header;
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::timeout;

use super::refusal::Refusal;

/// So much must arrive in each [`PACE`]: whoever sends less only holds a place.
const PACE_BYTES: usize = 1_000;
/// How long that may take.
pub(super) const PACE: Duration = Duration::from_secs(10);
/// How much of a body that is too long is still taken, and for how long: a client that writes before it reads would
/// otherwise see a broken connection instead of the reason.
const DISCARD_BYTES: usize = 8 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// How deep JSON may be nested. What people write is not; what is written against parsers is.
pub(crate) const JSON_DEPTH_MAX: usize = 64;

/// The whole body.
pub(super) async fn read(
    head: &Parts,
    mut body: impl Body<Data = Bytes> + Unpin,
    limit: usize,
    pace: Duration,
) -> Result<Bytes, Refusal> {
    let announced = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<u64>().ok()).unwrap_or(0);
    if announced > limit as u64 {
        // Whoever asks first has not sent it yet.
        if !head.headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(too_large(limit));
    }
    let mut got = BytesMut::new();
    loop {
        // What has come already needs no timer.
        let progress = match advance(&mut body, &mut got, limit).now_or_never() {
            Some(progress) => Ok(progress),
            None => timeout(pace, advance(&mut body, &mut got, limit)).await,
        };
        match progress {
            Ok(Ok(Progress::Some)) => {}
            Ok(Ok(Progress::End)) => {
                check_depth(head, &got)?;
                return Ok(got.freeze());
            }
            Ok(Ok(Progress::TooMuch)) => {
                drop(got);
                discard(body).await;
                return Err(too_large(limit));
            }
            Ok(Err(_)) => {
                return Err(Refusal::new(400, "RETRY_INVALID", "the body ended before it was complete")
                    .hint("send it again"));
            }
            Err(_) => {
                return Err(Refusal::new(408, "RETRY_TOO_SLOW", "the body comes too slowly")
                    .hint(format!("send at least {PACE_BYTES} bytes in {}", redrive::span::format(pace))));
            }
        }
    }
}

enum Progress {
    Some,
    End,
    TooMuch,
}

/// Reads until the pace is met, or the end.
async fn advance<B>(body: &mut B, got: &mut BytesMut, limit: usize) -> Result<Progress, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let goal = got.len() + PACE_BYTES;
    while got.len() < goal {
        let Some(frame) = body.frame().await else { return Ok(Progress::End) };
        if let Ok(data) = frame?.into_data() {
            if got.len() + data.len() > limit {
                return Ok(Progress::TooMuch);
            }
            got.extend_from_slice(&data);
        }
    }
    Ok(Progress::Some)
}

async fn discard(mut body: impl Body<Data = Bytes> + Unpin) {
    let all = async {
        let mut left = DISCARD_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Whether it came to its end or not, nothing more is owed.
    drop(timeout(DISCARD_TIME, all).await);
}

fn check_depth(head: &Parts, body: &[u8]) -> Result<(), Refusal> {
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.contains("json") || !is_too_deep(body) {
        return Ok(());
    }
    Err(Refusal::new(422, "RETRY_INVALID", format!("the JSON is nested deeper than {JSON_DEPTH_MAX} levels"))
        .hint("flatten it, or send the inner part as a text"))
}

/// Whether brackets are open at once beyond what is allowed. Most bodies have fewer of them altogether, which is found out
/// in a fraction of the time.
pub(crate) fn is_too_deep(body: &[u8]) -> bool {
    // The two brackets differ in one bit; and what fits into a byte is counted many bytes at a time.
    let openings = |part: &[u8]| part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    let openings: usize = body.chunks(255).map(|part| usize::from(openings(part))).sum();
    openings > JSON_DEPTH_MAX && json_depth(body) > JSON_DEPTH_MAX
}

/// How many brackets are open at once, outside of texts. Whether it is JSON at all is the parser's question.
fn json_depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(413, "RETRY_TOO_LARGE", format!("the body is larger than {limit} bytes"))
        .hint("send less at once, or raise limits.body_bytes in the config")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_texts() {
        for (json, depth) in [
            ("", 0),
            ("1", 0),
            ("[]", 1),
            ("[{},{}]", 2),
            (r#"{"a":[1,{"b":2}]}"#, 3),
            (r#"["[[[","\"[[[","\\",[]]"#, 2),
            ("]]][", 1),
            (r#"{"a": ["{[{[", "\"{", []]}"#, 3),
        ] {
            assert_eq!(json_depth(json.as_bytes()), depth, "{json}");
        }
        assert_eq!(json_depth("[".repeat(100_000).as_bytes()), 100_000);
    }

    #[test]
    fn many_brackets_are_only_too_deep_within_each_other() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(!is_too_deep(nested(JSON_DEPTH_MAX).as_bytes()));
        assert!(is_too_deep(nested(JSON_DEPTH_MAX + 1).as_bytes()));
        assert!(is_too_deep((" ".repeat(250) + &nested(300)).as_bytes()));
        assert!(!is_too_deep(format!("[{}1]", "[],".repeat(1_000)).as_bytes()));
    }
}
