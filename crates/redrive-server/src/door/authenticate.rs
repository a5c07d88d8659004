//! From a token to somebody: looked up, compared, remembered for a second, and throttled when wrong.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use redrive::Timestamp;

use super::refusal::Refusal;
use super::session;
use super::throttle::Throttle;
use super::token::{Entropy, Token, TokenBook, TokenRecord};
use super::who::{Who, token_required};

/// How long a record is believed without asking the book again: so soon is a revoked token refused everywhere.
const BELIEVED: Duration = Duration::from_secs(1);
/// How often it is written down that a token is in use.
const NOTED: Duration = Duration::from_secs(60);
/// Records that are remembered.
const RECORDS_MAX: usize = 10_000;

/// How somebody proves who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// With a token in a header.
    Bearer,
    /// With the cookie of a browser's session.
    Session,
}

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
        match (bearer(headers), session::cookie(headers)) {
            (Some(token), _) => self.check(token, As::Bearer, from, now).await,
            (None, Some(session)) => self.check(session, As::Session, from, now).await,
            (None, None) => Err(token_required()),
        }
    }

    /// Who has this token or session.
    pub(super) async fn check(
        &self,
        presented: &str,
        shown_as: As,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Who, Refusal> {
        let Ok(token) = presented.parse::<Token>() else { return Err(self.refuse(from, now)) };
        let (known, read_at) = self.remembered(token.key_id());
        let was_good = known.admits(&token, now);
        if was_good
            && now.since(read_at) < BELIEVED
            && let Some(who) = self.welcome(known, shown_as, now).await?
        {
            return Ok(who);
        }
        // What is remembered speeds up good tokens only: a wrong one takes the same way as one that nobody has.
        if !was_good {
            self.may_look_up(from, now)?;
        }
        let record = self.look_up(token.key_id(), now).await?;
        let welcome = match record.admits(&token, now) {
            true => self.welcome(record, shown_as, now).await?,
            false => None,
        };
        welcome.ok_or_else(|| self.refuse(from, now))
    }

    /// What is remembered of a key id, and from when that is; nobody if it is nothing.
    fn remembered(&self, key_id: &str) -> (TokenRecord, Timestamp) {
        let state = self.lock();
        let known = state.known.get(key_id).map(|known| (known.record.clone(), known.read_at));
        known.unwrap_or_else(|| (TokenRecord::nobody(), Timestamp::EPOCH))
    }

    /// What the book has; nobody if it is nothing.
    async fn look_up(&self, key_id: &str, now: Timestamp) -> Result<TokenRecord, Refusal> {
        let found = self.book.find(key_id).await?;
        let mut state = self.lock();
        match &found {
            Some(record) => state.remember(record.clone(), now),
            None => drop(state.known.remove(key_id)),
        }
        Ok(found.unwrap_or_else(TokenRecord::nobody))
    }

    fn may_look_up(&self, from: IpAddr, now: Timestamp) -> Result<(), Refusal> {
        let mut state = self.lock();
        match state.throttle.wait(from, now) {
            Some(wait) if !state.throttle.may_look_up(now) => Err(throttled(wait)),
            _ => Ok(()),
        }
    }

    /// Who has this record, if it is of the kind that was shown. A session is as good as the token it was opened with.
    async fn welcome(
        &self,
        record: TokenRecord,
        shown_as: As,
        now: Timestamp,
    ) -> Result<Option<Who>, Refusal> {
        let who = |record: TokenRecord, expires_at: Option<Timestamp>| {
            Some(Who { name: record.name, scopes: record.scopes, key_id: Some(record.key_id), expires_at })
        };
        match (shown_as, record.session_of.clone()) {
            (As::Bearer, None) => {
                self.note_use(&record.key_id, now).await;
                let expires_at = record.expires_at;
                Ok(who(record, expires_at))
            }
            (As::Session, Some(token)) => {
                let over = session::over_at(&record);
                let (known, read_at) = self.remembered(&token);
                let is_fresh = now.since(read_at) < BELIEVED;
                let token = if is_fresh { known } else { self.look_up(&token, now).await? };
                if over <= now || !token.is_good(now) || token.session_of.is_some() {
                    return Ok(None);
                }
                self.note_use(&record.key_id, now).await;
                let expires_at = token.expires_at.map_or(over, |end| end.min(over));
                Ok(who(token, Some(expires_at)))
            }
            (As::Bearer, Some(_)) | (As::Session, None) => Ok(None),
        }
    }

    /// Opens a session for whoever has this token; those that are over are forgotten.
    ///
    /// # Errors
    ///
    /// As [`Tokens::who`].
    pub(super) async fn open_session(
        &self,
        token: &str,
        from: IpAddr,
        entropy: &Entropy,
        now: Timestamp,
    ) -> Result<(Token, Who), Refusal> {
        let who = self.check(token, As::Bearer, from, now).await?;
        for record in self.book.list().await? {
            if record.session_of.is_some() && session::over_at(&record) <= now {
                self.book.remove(&record.key_id).await?;
            }
        }
        let (session, mut record) = Token::mint(entropy, &who.name, Vec::new(), now, None);
        record.expires_at = Some(now + session::LONGEST);
        record.session_of.clone_from(&who.key_id);
        let expires_at = Some(who.expires_at.unwrap_or(Timestamp::MAX).min(session::over_at(&record)));
        self.book.add(record).await?;
        Ok((session, Who { expires_at, ..who }))
    }

    /// Ends a session, here at once and on other servers within a second; whose it was, if there was one.
    ///
    /// # Errors
    ///
    /// 503 if the book cannot be written.
    pub(super) async fn close_session(&self, session: &str) -> Result<Option<Who>, Refusal> {
        let Ok(session) = session.parse::<Token>() else { return Ok(None) };
        let record = self.book.find(session.key_id()).await?;
        let Some(record) = record.filter(|record| record.session_of.is_some() && record.is_of(&session))
        else {
            return Ok(None);
        };
        self.book.remove(session.key_id()).await?;
        self.lock().known.remove(session.key_id());
        Ok(Some(Who { name: record.name, key_id: record.session_of, ..Who::nobody() }))
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// Counts how often it is asked.
    #[derive(Default)]
    struct AskedBook {
        book: MemoryTokenBook,
        asked: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl TokenBook for AskedBook {
        async fn find(&self, key_id: &str) -> redrive::Result<Option<TokenRecord>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.book.find(key_id).await
        }
        async fn add(&self, record: TokenRecord) -> redrive::Result<()> {
            self.book.add(record).await
        }
        async fn list(&self) -> redrive::Result<Vec<TokenRecord>> {
            self.book.list().await
        }
        async fn revoke(&self, key_id: &str, at: Timestamp) -> redrive::Result<bool> {
            self.book.revoke(key_id, at).await
        }
        async fn remove(&self, key_id: &str) -> redrive::Result<()> {
            self.book.remove(key_id).await
        }
        async fn used(&self, key_id: &str, at: Timestamp) -> redrive::Result<()> {
            self.book.used(key_id, at).await
        }
    }

    #[tokio::test]
    async fn a_wrong_secret_takes_the_same_way_as_an_unknown_token_and_a_good_token_a_shorter_one() {
        let book = Arc::new(AskedBook::default());
        let (good, record) = Token::mint(&[1; 39], "ci", vec![Scope::Read], at(0), None);
        book.add(record).await.unwrap();
        let tokens = Tokens::new(book.clone());
        let mut same_id = [3; 39];
        same_id[..7].fill(1);
        let wrong = Token::mint(&same_id, "", Vec::new(), at(0), None).0;
        let unknown = Token::mint(&[2; 39], "", Vec::new(), at(0), None).0;
        let mut asked = Vec::new();
        for token in [&good, &good, &wrong, &wrong, &unknown, &unknown, &good] {
            let before = book.asked.load(Ordering::Relaxed);
            drop(tokens.who(&with(token.reveal()), HERE, at(1)).await);
            asked.push(book.asked.load(Ordering::Relaxed) - before);
        }
        assert_eq!(asked, [1, 0, 1, 1, 1, 1, 0]);
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
