//! Sessions: a browser exchanges a token for a cookie that scripts cannot read. The server keeps the session, so it can
//! end it, and it ends with its token.
//!
//! The cookie is `__Host-redrive`: `Secure`, `HttpOnly`, `SameSite=Strict`, for this host alone. Browsers take such a
//! cookie over HTTPS, and Chromium and Firefox also over plain HTTP from `127.0.0.1` and `localhost`, which they trust.
//! Over plain HTTP from anywhere else it is not taken, and that is meant.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};
use redrive::{Timestamp, days, hours};

use super::authenticate::{Records, Tokens, whose};
use super::refusal::Refusal;
use super::token::{TokenRecord, entropy};
use super::who::Who;

/// Where sessions are opened and ended.
pub const SESSION_PATH: &str = "/api/v1/session";
const COOKIE: &str = "__Host-redrive";
/// A session that is not used for so long is over.
const IDLE: Duration = hours(12);
/// However much it is used, after this somebody shows the token again.
pub(super) const LONGEST: Duration = days(30);
/// Sessions of one token: all the browsers of a person, or one of each in a team. Each is a record that stays until it is
/// over.
pub(super) const SESSIONS_MAX: usize = 20;

/// When a session is over if it is not used again.
pub(super) fn over_at(record: &TokenRecord) -> Timestamp {
    let idle = record.last_used_at.unwrap_or(record.created_at) + IDLE;
    record.expires_at.map_or(idle, |end| end.min(idle))
}

/// The sessions that end where one of this token begins: those that are over, and the oldest of this token where there
/// would be too many.
pub(super) fn to_end<'r>(records: &'r Records, token: &str, now: Timestamp) -> Vec<&'r str> {
    let sessions = records.values().filter(|record| record.session_of.is_some());
    let (going, over): (Vec<_>, Vec<_>) = sessions.partition(|record| whose(records, record, now).is_some());
    let mut mine: Vec<&TokenRecord> =
        going.into_iter().filter(|record| record.session_of.as_deref() == Some(token)).collect();
    mine.sort_by_key(|record| (record.created_at, &record.key_id));
    let too_many = (mine.len() + 1).saturating_sub(SESSIONS_MAX);
    over.into_iter().chain(mine.into_iter().take(too_many)).map(|record| record.key_id.as_str()).collect()
}

/// Of a token with which too many were begun lately.
pub(super) fn too_many(wait: Duration) -> Refusal {
    Refusal::new(429, "RETRY_RATE_LIMITED", "too many sessions were begun with this token lately")
        .hint("wait, and keep the cookie; a program needs none: it sends the header Authorization: Bearer rdv_…")
        .retry_after(wait)
}

/// The session that a browser sends.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Where sessions are opened and ended. In the extensions of requests to [`SESSION_PATH`].
#[derive(Clone)]
pub struct Counter {
    tokens: Option<Arc<Tokens>>,
    from: IpAddr,
    now: Timestamp,
}

impl Counter {
    pub(super) fn new(tokens: Option<Arc<Tokens>>, from: IpAddr, now: Timestamp) -> Counter {
        Counter { tokens, from, now }
    }

    /// Who has this token, and the header that opens the session; no header where no token is asked for.
    ///
    /// # Errors
    ///
    /// Those of a wrong token, and 429 for one with which too many were begun lately.
    pub async fn open(&self, token: &str) -> Result<(Who, Option<String>), Refusal> {
        let Some(tokens) = &self.tokens else { return Ok((Who::local(), None)) };
        let entropy = entropy().map_err(|_| {
            Refusal::new(503, "RETRY_INTERNAL", "the operating system has no randomness to give")
        })?;
        let (session, who) = tokens.open_session(token, self.from, &entropy, self.now).await?;
        Ok((who, Some(set_cookie(session.reveal(), ""))))
    }

    /// Ends the session of these headers: whose it was, and the header that makes the browser forget it.
    ///
    /// # Errors
    ///
    /// 503 if the store cannot be read or written.
    pub async fn close(&self, headers: &HeaderMap) -> Result<(Option<Who>, Option<String>), Refusal> {
        let Some(session) = cookie(headers) else { return Ok((None, None)) };
        let who = match &self.tokens {
            Some(tokens) => tokens.close_session(session, self.now).await?,
            None => None,
        };
        Ok((who, Some(set_cookie("", "; Max-Age=0"))))
    }
}

fn set_cookie(value: &str, more: &str) -> String {
    format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::token::{MemoryTokenBook, Scope, Token, TokenBook as _};
    use http::HeaderValue;
    use redrive::mins;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    struct House {
        book: Arc<MemoryTokenBook>,
        tokens: Arc<Tokens>,
        token: Token,
    }

    impl House {
        async fn new() -> House {
            let book = Arc::new(MemoryTokenBook::default());
            let (token, record) = Token::mint(&[1; 39], "ops", vec![Scope::Operate], at(0), None);
            book.add(record).await.unwrap();
            House { tokens: Arc::new(Tokens::new(book.clone())), book, token }
        }

        fn counter(&self, now: Timestamp) -> Counter {
            Counter::new(Some(self.tokens.clone()), HERE, now)
        }

        /// The headers of a browser that has just exchanged the token.
        async fn browser(&self, now: Timestamp) -> HeaderMap {
            let (who, set) = self.counter(now).open(self.token.reveal()).await.unwrap();
            assert_eq!((who.name.as_str(), who.expires_at), ("ops", Some(now + IDLE)));
            let set = set.unwrap();
            assert!(set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{set}");
            let pair = set.split(';').next().unwrap();
            HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&format!("a=b; {pair}")).unwrap())])
        }

        async fn status(&self, headers: &HeaderMap, now: Timestamp) -> u16 {
            match self.tokens.who(headers, HERE, now).await {
                Ok(who) => {
                    assert_eq!(
                        (who.scopes, who.key_id.as_deref()),
                        (vec![Scope::Operate], Some(self.token.key_id()))
                    );
                    200
                }
                Err(refusal) => refusal.status.as_u16(),
            }
        }
    }

    #[tokio::test]
    async fn a_session_may_what_its_token_may_and_ends_with_it() {
        let house = House::new().await;
        let browser = house.browser(at(0)).await;
        assert_eq!(house.status(&browser, at(1)).await, 200);
        house.book.revoke(house.token.key_id(), at(2)).await.unwrap();
        assert_eq!(house.status(&browser, at(2_000)).await, 401);
    }

    #[tokio::test]
    async fn a_session_that_was_ended_is_not_taken_again() {
        let house = House::new().await;
        let (browser, other) = (house.browser(at(0)).await, house.browser(at(0)).await);
        assert_eq!(house.status(&browser, at(1)).await, 200);
        let (who, set) = house.counter(at(2)).close(&browser).await.unwrap();
        let (who, set) = (who.unwrap(), set.unwrap());
        assert_eq!(who.name, "ops");
        assert!(set.contains("Max-Age=0"), "{set}");
        assert_eq!((house.status(&browser, at(3)).await, house.status(&other, at(3)).await), (401, 200));
    }

    #[tokio::test]
    async fn a_session_is_over_after_half_a_day_without_use_and_not_before() {
        let house = House::new().await;
        let browser = house.browser(at(0)).await;
        let hour = i64::try_from(hours(1).as_millis()).unwrap();
        for n in 1..30 {
            assert_eq!(house.status(&browser, at(n * hour)).await, 200, "hour {n}");
        }
        let last = at(29 * hour);
        assert_eq!(house.status(&browser, last + hours(12) - mins(2)).await, 200);
        assert_eq!(house.status(&browser, last + hours(25)).await, 401);
        house.browser(last + hours(26)).await;
        let sessions =
            house.book.list().await.unwrap().into_iter().filter(|record| record.session_of.is_some());
        assert_eq!(sessions.count(), 1, "those that are over are forgotten");
    }

    /// Revoked, signed out, or not used: whoever stays longer than one answer takes is told within a second.
    #[tokio::test]
    async fn what_was_shown_is_good_still_until_it_ends() {
        for end in ["revoked", "signed out", "not used"] {
            let house = House::new().await;
            let browser = house.browser(at(0)).await;
            let who = house.tokens.who(&browser, HERE, at(0)).await.unwrap();
            let mut over = at(10);
            match end {
                "revoked" => assert!(house.book.revoke(house.token.key_id(), over).await.unwrap()),
                "signed out" => drop(house.counter(over).close(&browser).await.unwrap()),
                _ => over = at(0) + IDLE,
            }
            if end != "signed out" {
                assert_eq!(who.need_good_still(over - redrive::millis(1)).await, Ok(()), "{end}");
            }
            let refusal = who.need_good_still(over + redrive::secs(1)).await.unwrap_err();
            assert_eq!((refusal.status.as_u16(), refusal.code), (401, "RETRY_AUTH_REQUIRED"), "{end}");
        }
        assert_eq!(Who::local().need_good_still(at(0)).await, Ok(()));
    }

    #[tokio::test]
    async fn the_oldest_session_of_a_token_ends_when_there_would_be_too_many_and_those_of_others_go_on() {
        let house = House::new().await;
        let (other, record) = Token::mint(&[2; 39], "other", vec![Scope::Read], at(0), None);
        house.book.add(record).await.unwrap();
        house.counter(at(0)).open(other.reveal()).await.unwrap();
        let minute = 60_000;
        let mut browsers = Vec::new();
        for n in 1..=22 {
            browsers.push(house.browser(at(n * minute)).await);
        }
        let mut statuses = Vec::new();
        for browser in &browsers {
            statuses.push(house.status(browser, at(22 * minute)).await);
        }
        assert_eq!(statuses[..3], [401, 401, 200], "{statuses:?}");
        assert!(statuses[2..].iter().all(|status| *status == 200), "{statuses:?}");
        let records = house.book.list().await.unwrap();
        let of = |token: &Token| {
            records.iter().filter(|record| record.session_of.as_deref() == Some(token.key_id())).count()
        };
        assert_eq!((of(&house.token), of(&other)), (SESSIONS_MAX, 1));
    }

    #[tokio::test]
    async fn who_begins_sessions_without_end_is_told_to_wait_and_its_token_works_on() {
        let house = House::new().await;
        for _ in 0..10 {
            house.browser(at(0)).await;
        }
        let refusal = house.counter(at(1)).open(house.token.reveal()).await.unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.code), (429, "RETRY_RATE_LIMITED"));
        assert_eq!(refusal.retry_after.map(|wait| wait.as_secs()), Some(5));
        let bearer = HeaderValue::from_str(&format!("Bearer {}", house.token.reveal())).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
        assert_eq!(house.status(&headers, at(2)).await, 200);
    }

    #[tokio::test]
    async fn a_token_is_no_session_and_a_session_is_no_token() {
        let house = House::new().await;
        let browser = house.browser(at(0)).await;
        let session = cookie(&browser).unwrap().to_owned();
        let bearer = HeaderValue::from_str(&format!("Bearer {session}")).unwrap();
        let as_token = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
        assert_eq!(house.status(&as_token, at(1)).await, 401);
        let as_session = format!("{COOKIE}={}", house.token.reveal());
        let as_session =
            HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&as_session).unwrap())]);
        assert_eq!(house.status(&as_session, at(2)).await, 401);
        assert_eq!(house.counter(at(3)).open(&session).await.unwrap_err().status, 401);
    }
}
