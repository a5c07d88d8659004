//! What an answer means for a file of which we may have the beginning. Pure: status and headers in, what to do out.

use http::header::{
    CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, StatusCode};

use super::error::DownloadError;
use super::name;
use super::part::Identity;

/// What to do with an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// It is the whole file, and this is what it is. Whatever was there is of another one.
    FromStart(Identity),
    /// It goes on where we are; the file has so many bytes, if that was said.
    GoOn(Option<u64>),
    /// We have all of it already.
    HaveAll,
    /// What we have does not fit what it has now: throw it away, and ask again.
    StartOver,
    /// It says no.
    Refused,
}

/// What there is of a file.
pub(super) struct Have<'a> {
    /// So many bytes, and the same number was asked to be gone on from; 0 if all was asked for.
    pub(super) bytes: u64,
    /// Of this.
    pub(super) identity: &'a Identity,
}

pub(super) fn judge(status: StatusCode, headers: &HeaderMap, have: &Have) -> Result<Course, DownloadError> {
    if let Some(how) = text(headers, &CONTENT_ENCODING).filter(|how| !how.eq_ignore_ascii_case("identity"))
        && status.is_success()
    {
        return Err(DownloadError::Encoded { how });
    }
    match status {
        StatusCode::OK => Ok(Course::FromStart(identity(headers))),
        StatusCode::PARTIAL_CONTENT => continuation(headers, have),
        StatusCode::RANGE_NOT_SATISFIABLE if have.bytes > 0 => {
            let total =
                text(headers, &CONTENT_RANGE).and_then(|range| range.strip_prefix("bytes */")?.parse().ok());
            let is_same = have.identity.length.is_none_or(|length| Some(length) == total);
            Ok(if total == Some(have.bytes) && is_same { Course::HaveAll } else { Course::StartOver })
        }
        _ => Ok(Course::Refused),
    }
}

/// A continuation that is not of this file at this place would make a file of two.
fn continuation(headers: &HeaderMap, have: &Have) -> Result<Course, DownloadError> {
    let said = text(headers, &CONTENT_RANGE).unwrap_or_else(|| "no range".to_owned());
    let wrong = || DownloadError::WrongRange { said: said.clone() };
    let (first, last, total) = content_range(&said).ok_or_else(wrong)?;
    let fits =
        have.bytes > 0 && first == have.bytes && last >= first && total.is_none_or(|total| last < total);
    if !fits {
        return Err(wrong());
    }
    let now = identity(headers);
    let differs =
        |known: &Option<String>, now: &Option<String>| matches!((known, now), (Some(a), Some(b)) if a != b);
    let known = have.identity;
    let is_another = differs(&known.etag, &now.etag)
        || known.etag.is_none() && differs(&known.last_modified, &now.last_modified)
        || matches!((known.length, total), (Some(a), Some(b)) if a != b);
    Ok(if is_another { Course::StartOver } else { Course::GoOn(total) })
}

/// The numbers of `bytes 100-199/200`; the last is a star if nobody knows it.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, last.parse().ok()?, total))
}

fn identity(headers: &HeaderMap) -> Identity {
    Identity {
        etag: text(headers, &ETAG),
        last_modified: text(headers, &LAST_MODIFIED),
        length: text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        suggestion: text(headers, &CONTENT_DISPOSITION).and_then(|header| name::of_disposition(&header)),
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    // Names in UTF-8 are sent as they are by many.
    std::str::from_utf8(value.as_bytes()).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn judged(status: u16, headers: &[(&'static str, &str)], bytes: u64) -> Result<Course, DownloadError> {
        let known = Identity {
            etag: Some("\"v1\"".to_owned()),
            last_modified: Some("Mon, 16 Nov 2026 04:00:00 GMT".to_owned()),
            length: Some(100),
            suggestion: None,
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let have = Have { bytes, identity: &known };
        judge(StatusCode::from_u16(status).unwrap(), &headers.collect(), &have)
    }

    #[test]
    fn only_the_continuation_of_the_same_file_at_the_same_place_is_taken() {
        for (range, etag, course) in [
            ("bytes 40-99/100", "\"v1\"", Some(Course::GoOn(Some(100)))),
            ("bytes 40-59/100", "\"v1\"", Some(Course::GoOn(Some(100)))),
            ("bytes 40-99/*", "\"v1\"", Some(Course::GoOn(None))),
            ("bytes 40-99/100", "\"v2\"", Some(Course::StartOver)),
            ("bytes 40-119/120", "\"v1\"", Some(Course::StartOver)),
            ("bytes 0-99/100", "\"v1\"", None),
            ("bytes 41-99/100", "\"v1\"", None),
            ("bytes 40-100/100", "\"v1\"", None),
            ("bytes 40-39/100", "\"v1\"", None),
            ("bytes */100", "\"v1\"", None),
            ("items 40-99/100", "\"v1\"", None),
            ("bytes 40-99/x", "\"v1\"", None),
            ("", "\"v1\"", None),
        ] {
            let judged = judged(206, &[("content-range", range), ("etag", etag)], 40);
            match (judged, course) {
                (Ok(judged), Some(course)) => assert_eq!(judged, course, "{range} {etag}"),
                (Err(DownloadError::WrongRange { .. }), None) => {}
                (judged, _) => panic!("{range} {etag}: {judged:?}"),
            }
        }
        // Nobody asked for a part.
        assert!(judged(206, &[("content-range", "bytes 0-99/100")], 0).is_err());
    }

    #[test]
    fn the_whole_file_replaces_whatever_was_there() {
        let headers =
            [("etag", "\"v2\""), ("content-length", "7"), ("content-disposition", "x; filename=../y")];
        let Ok(Course::FromStart(identity)) = judged(200, &headers, 40) else { panic!("it is whole") };
        assert_eq!((identity.etag.as_deref(), identity.length), (Some("\"v2\""), Some(7)));
        assert_eq!(identity.suggestion.as_deref(), Some("y"));
    }

    #[test]
    fn a_range_that_cannot_be_had_is_a_file_that_is_complete_or_another() {
        assert_eq!(judged(416, &[("content-range", "bytes */100")], 100).unwrap(), Course::HaveAll);
        assert_eq!(judged(416, &[("content-range", "bytes */90")], 100).unwrap(), Course::StartOver);
        assert_eq!(judged(416, &[("content-range", "bytes */40")], 40).unwrap(), Course::StartOver);
        assert_eq!(judged(416, &[], 100).unwrap(), Course::StartOver);
        assert_eq!(judged(416, &[], 0).unwrap(), Course::Refused);
    }

    #[test]
    fn what_comes_packed_is_not_taken_for_the_file() {
        assert!(matches!(
            judged(200, &[("content-encoding", "gzip")], 0),
            Err(DownloadError::Encoded { .. })
        ));
        assert!(judged(200, &[("content-encoding", "identity")], 0).is_ok());
        assert_eq!(judged(404, &[("content-encoding", "gzip")], 0).unwrap(), Course::Refused);
        assert_eq!(judged(204, &[], 0).unwrap(), Course::Refused);
    }

    #[test]
    fn a_weak_tag_proves_nothing_about_bytes() {
        let dated = Some("Mon, 16 Nov 2026 04:00:00 GMT".to_owned());
        let weak = Identity { etag: Some("W/\"1\"".to_owned()), last_modified: None, ..Identity::default() };
        assert_eq!(weak.validator(), None);
        let both = Identity { last_modified: dated.clone(), ..weak };
        assert_eq!(both.validator(), dated.as_deref());
        let strong = Identity { etag: Some("\"1\"".to_owned()), ..both };
        assert_eq!(strong.validator(), Some("\"1\""));
    }
}
