//! From a token to somebody: looked up, compared, remembered for a second, and throttled when wrong.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use redrive::Timestamp;

use super::refusal::Refusal;
use super::throttle::Throttle;
use super::token::{Token, TokenBook, TokenRecord};
use super::who::{Who, token_required};

/// How long a record is believed without asking the book again: so soon is a revoked token refused everywhere.
const BELIEVED: Duration = Duration::from_secs(1);
/// How often it is written down that a token is in use.
const NOTED: Duration = Duration::from_secs(60);
/// Records that are remembered.
const RECORDS_MAX: usize = 10_000;

/// Knows who comes with which token.
pub struct Tokens {
    book: Arc<dyn TokenBook>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<String, Known>,
    throttle: Throttle,
}

struct Known {
    record: TokenRecord,
    read_at: Timestamp,
    noted_at: Timestamp,
}

impl Tokens {
    /// The tokens of this book.
    pub fn new(book: Arc<dyn TokenBook>) -> Tokens {
        Tokens { book, state: Mutex::default() }
    }

    /// Who sent these headers from this address.
    ///
    /// # Errors
    ///
    /// 401 without a good token, in the same words whatever is wrong with it; 429 for an address that has been wrong
    /// too often; 503 if the book cannot be read. A good token works all the same.
    pub async fn who(&self, headers: &HeaderMap, from: IpAddr, now: Timestamp) -> Result<Who, Refusal> {
        let Some(presented) = bearer(headers) else { return Err(token_required()) };
        let token = presented.parse::<Token>();
        let record = match &token {
            Ok(token) => self.record(token.key_id(), from, now).await?,
            Err(_) => None,
        };
        // An unknown token costs as much as a known one: its hash, and a comparison.
        let against = record.unwrap_or_else(TokenRecord::nobody);
        let is_good = token.as_ref().is_ok_and(|token| against.admits(token, now));
        if !is_good {
            return Err(self.refuse(from, now));
        }
        self.note_use(&against.key_id, now).await;
        Ok(Who { name: against.name, scopes: against.scopes, key_id: Some(against.key_id) })
    }

    /// The record of a key id, from memory if it was read just now.
    async fn record(
        &self,
        key_id: &str,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Option<TokenRecord>, Refusal> {
        if let Some(record) = self.remembered(key_id, from, now)? {
            return Ok(Some(record));
        }
        let found = self.book.find(key_id).await?;
        let mut state = self.lock();
        match &found {
            Some(record) => state.remember(record.clone(), now),
            None => drop(state.known.remove(key_id)),
        }
        Ok(found)
    }

    /// The record, if it was read just now. A refusal if it may not be looked up either.
    fn remembered(&self, key_id: &str, from: IpAddr, now: Timestamp) -> Result<Option<TokenRecord>, Refusal> {
        let mut state = self.lock();
        if let Some(known) = state.known.get(key_id) {
            let is_fresh = now.since(known.read_at) < BELIEVED;
            return Ok(is_fresh.then(|| known.record.clone()));
        }
        match state.throttle.wait(from, now) {
            Some(wait) if !state.throttle.may_look_up(now) => Err(throttled(wait)),
            _ => Ok(None),
        }
    }

    fn refuse(&self, from: IpAddr, now: Timestamp) -> Refusal {
        let mut state = self.lock();
        metrics::counter!("redrive_wrong_tokens_total").increment(1);
        if let Some(wait) = state.throttle.wait(from, now) {
            return throttled(wait);
        }
        state.throttle.failed(from, now);
        Refusal::new(401, "RETRY_AUTH_REQUIRED", "the token is not good")
            .hint("it may be mistyped, expired or revoked; see them with: redrive tokens list")
    }

    async fn note_use(&self, key_id: &str, now: Timestamp) {
        let is_due = |known: &&mut Known| now.since(known.noted_at) >= NOTED;
        let note = |known: &mut Known| known.noted_at = now;
        if self.lock().known.get_mut(key_id).filter(is_due).map(note).is_none() {
            return;
        }
        if let Err(error) = self.book.used(key_id, now).await {
            tracing::warn!(key_id, %error, "Cannot note that a token is in use");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, record: TokenRecord, now: Timestamp) {
        if self.known.len() >= RECORDS_MAX && !self.known.contains_key(&record.key_id) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.read_at).map(|(id, _)| id.clone());
            oldest.map(|id| self.known.remove(&id));
        }
        let noted_at = self.known.get(&record.key_id).map_or(Timestamp::EPOCH, |known| known.noted_at);
        self.known.insert(record.key_id.clone(), Known { record, read_at: now, noted_at });
    }
}

/// What stands behind `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn throttled(wait: Duration) -> Refusal {
    Refusal::new(429, "RETRY_RATE_LIMITED", "too many wrong tokens have come from here")
        .hint("wait, and look at the token again: redrive tokens list")
        .retry_after(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::token::{MemoryTokenBook, Scope};
    use http::HeaderValue;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn with(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::AUTHORIZATION,
            HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
        )])
    }

    async fn book_of(byte: u8) -> (Arc<MemoryTokenBook>, Tokens, Token) {
        let book = Arc::new(MemoryTokenBook::default());
        let (token, record) = Token::mint(&[byte; 39], "ci", vec![Scope::Read], at(0), None);
        book.add(record).await.unwrap();
        (book.clone(), Tokens::new(book), token)
    }

    #[tokio::test]
    async fn a_good_token_is_somebody_and_every_other_is_refused_in_the_same_words() {
        let (_, tokens, token) = book_of(1).await;
        let who = tokens.who(&with(token.reveal()), HERE, at(1)).await.unwrap();
        assert_eq!((who.name.as_str(), who.scopes), ("ci", vec![Scope::Read]));

        let unknown = Token::mint(&[2; 39], "", Vec::new(), at(0), None).0;
        let mut same_id = [3; 39];
        same_id[..7].fill(1);
        let wrong_secret = Token::mint(&same_id, "", Vec::new(), at(0), None).0;
        assert_eq!(wrong_secret.key_id(), token.key_id());
        let mut refusals = Vec::new();
        for text in [unknown.reveal(), wrong_secret.reveal(), "rdv_nonsense", ""] {
            refusals.push(tokens.who(&with(text), HERE, at(2)).await.unwrap_err());
        }
        assert!(
            refusals.iter().all(|refusal| *refusal == refusals[0] && refusal.status == 401),
            "{refusals:#?}"
        );
        let missing = tokens.who(&HeaderMap::new(), HERE, at(3)).await.unwrap_err();
        assert_eq!((missing.status.as_u16(), missing.code), (401, "RETRY_AUTH_REQUIRED"));
    }

    #[tokio::test]
    async fn a_revoked_token_is_refused_within_a_second() {
        let (book, tokens, token) = book_of(1).await;
        tokens.who(&with(token.reveal()), HERE, at(0)).await.unwrap();
        book.revoke(token.key_id(), at(100)).await.unwrap();
        assert!(tokens.who(&with(token.reveal()), HERE, at(999)).await.is_ok(), "believed for a second");
        assert_eq!(tokens.who(&with(token.reveal()), HERE, at(1_000)).await.unwrap_err().status, 401);
    }

    #[tokio::test]
    async fn the_use_of_a_token_is_written_down_once_a_minute() {
        let (book, tokens, token) = book_of(1).await;
        for ms in [0, 30_000, 59_999] {
            tokens.who(&with(token.reveal()), HERE, at(ms)).await.unwrap();
            assert_eq!(book.find(token.key_id()).await.unwrap().unwrap().last_used_at, Some(at(0)));
        }
        tokens.who(&with(token.reveal()), HERE, at(60_000)).await.unwrap();
        assert_eq!(book.find(token.key_id()).await.unwrap().unwrap().last_used_at, Some(at(60_000)));
    }

    #[tokio::test]
    async fn ten_thousand_wrong_tokens_are_throttled_while_a_good_one_works() {
        let (_, tokens, token) = book_of(1).await;
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let mut counts = BTreeMap::<u16, u32>::new();
        for n in 0..10_000_u32 {
            let mut entropy = [9; 39];
            entropy[..4].copy_from_slice(&n.to_be_bytes());
            let wrong = Token::mint(&entropy, "", Vec::new(), at(0), None).0;
            let now = at(i64::from(n) / 10);
            let refusal = tokens.who(&with(wrong.reveal()), HERE, now).await.unwrap_err();
            *counts.entry(refusal.status.as_u16()).or_default() += 1;
            if n == 5_000 {
                tokens.who(&with(token.reveal()), elsewhere, now).await.unwrap();
            }
            if n % 1_000 == 999 {
                // Known from elsewhere, it works from the very address that is throttled.
                tokens
                    .who(&with(token.reveal()), if n > 5_000 { HERE } else { elsewhere }, now)
                    .await
                    .unwrap();
            }
        }
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [401, 429]);
        assert!(counts[&401] <= 11, "{counts:?}");
    }
}
