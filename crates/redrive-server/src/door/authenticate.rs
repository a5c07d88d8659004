//! From a token to somebody: looked up in a copy of the book that is a second old at most, compared, and throttled when
//! wrong.

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
use super::who::{Shown, Who, token_required};

/// How long a copy of the book is believed without reading it again: so soon is a revoked token refused everywhere.
const BELIEVED: Duration = Duration::from_secs(1);
/// The same where a token is missing from it: another server may just have made it.
const BELIEVED_TO_LACK: Duration = Duration::from_millis(100);
/// How often it is written down that a token is in use.
const NOTED: Duration = Duration::from_secs(60);

/// How somebody proves who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// With a token in a header.
    Bearer,
    /// With the cookie of a browser's session.
    Session,
}

/// A copy of the book, by key id.
pub(super) type Records = BTreeMap<String, TokenRecord>;

/// Knows who comes with which token.
///
/// The book is read as a whole and by one at a time, once a second, and ten times at most where tokens come that are not in
/// it. So whoever floods the server with wrong ones takes nothing from those with good ones.
pub struct Tokens {
    book: Arc<dyn TokenBook>,
    state: Mutex<State>,
    /// Whose turn it is to read the book.
    reading: tokio::sync::Mutex<()>,
    /// Whose turn it is to begin a session: two at once would both find room for one more.
    beginning: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// How often reading the book was begun.
    begun: u64,
    /// Since this reading was begun, something was written here that it may have missed.
    outdated: u64,
    last: Option<Reading>,
    /// When it was last written down that a token is in use.
    noted: BTreeMap<String, Timestamp>,
    throttle: Throttle,
}

/// What came of reading the book.
struct Reading {
    number: u64,
    at: Timestamp,
    read: Result<Arc<Records>, Refusal>,
}

impl Tokens {
    /// The tokens of this book.
    pub fn new(book: Arc<dyn TokenBook>) -> Tokens {
        Tokens {
            book,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            beginning: tokio::sync::Mutex::default(),
        }
    }

    /// Who sent these headers from this address.
    ///
    /// # Errors
    ///
    /// 401 without a good token, in the same words whatever is wrong with it; 429 for an address that has been wrong
    /// too often; 503 if the book cannot be read. A good token works all the same.
    pub async fn who(
        self: &Arc<Tokens>,
        headers: &HeaderMap,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Who, Refusal> {
        match (bearer(headers), session::cookie(headers)) {
            (Some(token), _) => self.check(token, As::Bearer, from, now).await,
            (None, Some(session)) => self.check(session, As::Session, from, now).await,
            (None, None) => Err(token_required()),
        }
    }

    /// Who has this token or session.
    async fn check(
        self: &Arc<Tokens>,
        presented: &str,
        shown_as: As,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Who, Refusal> {
        let Ok(token) = presented.parse::<Token>() else { return Err(self.refuse(from, now)) };
        let records = self.records_with(token.key_id(), now).await?;
        // What nobody has is compared all the same: the time it takes does not tell which key ids there are.
        let nobody = TokenRecord::nobody();
        let record = records.get(token.key_id()).unwrap_or(&nobody);
        let is_shown_right = record.session_of.is_some() == (shown_as == As::Session);
        let whose = if record.is_of(&token) & is_shown_right { whose(&records, record, now) } else { None };
        let Some((owner, expires_at)) = whose else { return Err(self.refuse(from, now)) };
        self.note_use(&record.key_id, now).await;
        Ok(Who {
            name: owner.name.clone(),
            scopes: owner.scopes.clone(),
            key_id: Some(owner.key_id.clone()),
            expires_at,
            shown: Some(Shown::new(self.clone(), record.key_id.clone())),
        })
    }

    /// Whether what was shown under this key id is still good. In an outage nothing newer is known than when it was shown,
    /// and nothing can be read or written either.
    pub(super) async fn is_still_good(&self, key_id: &str, now: Timestamp) -> bool {
        let Ok(records) = self.records(now, BELIEVED).await else { return true };
        records.get(key_id).is_some_and(|record| whose(&records, record, now).is_some())
    }

    /// The book with this key id; without it, only if it is not there.
    async fn records_with(&self, key_id: &str, now: Timestamp) -> Result<Arc<Records>, Refusal> {
        let records = self.records(now, BELIEVED).await?;
        if records.contains_key(key_id) { Ok(records) } else { self.records(now, BELIEVED_TO_LACK).await }
    }

    /// The book as it was so long ago, or later.
    async fn records(&self, now: Timestamp, age: Duration) -> Result<Arc<Records>, Refusal> {
        let begun = {
            let state = self.lock();
            if let Some(records) = state.believed(now, age) {
                return Ok(records);
            }
            state.begun
        };
        let _turn = self.reading.lock().await;
        let number = {
            let mut state = self.lock();
            if let Some(records) = state.believed(now, age) {
                return Ok(records);
            }
            // What was begun while we waited for our turn is as good as what we would read, and as bad: in an outage
            // the others do not try one after another.
            if let Some(last) = state.last.as_ref().filter(|last| last.number > begun) {
                return last.read.clone();
            }
            state.begun += 1;
            state.begun
        };
        let by_key_id = |record: TokenRecord| (record.key_id.clone(), record);
        let copy =
            |records: Vec<TokenRecord>| Arc::new(records.into_iter().map(by_key_id).collect::<Records>());
        let read = self.book.list().await.map(copy).map_err(Refusal::from);
        let mut state = self.lock();
        if let Ok(records) = &read {
            state.noted.retain(|key_id, _| records.contains_key(key_id));
        }
        state.last = Some(Reading { number, at: now, read: read.clone() });
        read
    }

    /// The book was written to from here: what is written counts at once.
    pub(super) fn outdate(&self) {
        let mut state = self.lock();
        state.outdated = state.begun;
    }

    /// Begins a session for whoever has this token. Those that are over are forgotten, and where there are too many of this
    /// token, the oldest ends.
    ///
    /// # Errors
    ///
    /// As [`Tokens::who`]; and 429 for a token with which too many were begun lately.
    pub(super) async fn open_session(
        self: &Arc<Tokens>,
        token: &str,
        from: IpAddr,
        entropy: &Entropy,
        now: Timestamp,
    ) -> Result<(Token, Who), Refusal> {
        let who = self.check(token, As::Bearer, from, now).await?;
        let key_id = who.key_id.clone().unwrap_or_default();
        self.lock().throttle.begin_session(&key_id, now).map_err(session::too_many)?;
        let _turn = self.beginning.lock().await;
        let records = self.records(now, BELIEVED).await?;
        for session in session::to_end(&records, &key_id, now) {
            self.book.remove(session).await?;
        }
        let (session, mut record) = Token::mint(entropy, &who.name, Vec::new(), now, None);
        record.expires_at = Some(now + session::LONGEST);
        record.session_of = Some(key_id);
        let expires_at = Some(who.expires_at.unwrap_or(Timestamp::MAX).min(session::over_at(&record)));
        self.book.add(record).await?;
        self.outdate();
        Ok((session, Who { expires_at, ..who }))
    }

    /// Ends a session, here at once and on other servers within a second; whose it was, if there was one.
    ///
    /// # Errors
    ///
    /// 503 if the book cannot be read or written.
    pub(super) async fn close_session(&self, session: &str, now: Timestamp) -> Result<Option<Who>, Refusal> {
        let Ok(session) = session.parse::<Token>() else { return Ok(None) };
        let records = self.records_with(session.key_id(), now).await?;
        let record = records.get(session.key_id());
        let Some(record) = record.filter(|record| record.session_of.is_some() && record.is_of(&session))
        else {
            return Ok(None);
        };
        self.book.remove(session.key_id()).await?;
        self.outdate();
        let (name, key_id) = (record.name.clone(), record.session_of.clone());
        Ok(Some(Who { name, key_id, ..Who::nobody() }))
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
        {
            let mut state = self.lock();
            if state.noted.get(key_id).is_some_and(|noted| now.since(*noted) < NOTED) {
                return;
            }
            state.noted.insert(key_id.to_owned(), now);
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
    /// The last copy, while it is no older. Not for long either where the clock was put back.
    fn believed(&self, now: Timestamp, age: Duration) -> Option<Arc<Records>> {
        let last = self.last.as_ref().filter(|last| last.number > self.outdated)?;
        let is_young = now.since(last.at) < age && last.at.since(now) < age;
        last.read.as_ref().ok().filter(|_| is_young).cloned()
    }
}

/// Whose this record is, and until when; nobody's if it is not good. A session is as good as the token it was begun with.
pub(super) fn whose<'r>(
    records: &'r Records,
    record: &'r TokenRecord,
    now: Timestamp,
) -> Option<(&'r TokenRecord, Option<Timestamp>)> {
    let Some(token) = &record.session_of else {
        return record.is_good(now).then_some((record, record.expires_at));
    };
    let over = session::over_at(record);
    let token = records.get(token).filter(|token| token.is_good(now) && token.session_of.is_none())?;
    let is_good = record.is_good(now) && now < over;
    is_good.then_some((token, Some(token.expires_at.map_or(over, |end| end.min(over)))))
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

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

    async fn book_of(byte: u8) -> (Arc<MemoryTokenBook>, Arc<Tokens>, Token) {
        let book = Arc::new(MemoryTokenBook::default());
        let (token, record) = Token::mint(&[byte; 39], "ci", vec![Scope::Read], at(0), None);
        book.add(record).await.unwrap();
        (book.clone(), Arc::new(Tokens::new(book)), token)
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

    /// Counts how often it is read, and answers when it is let, with a mistake if it is told to.
    struct SlowBook {
        book: MemoryTokenBook,
        reads: AtomicUsize,
        gate: Semaphore,
        is_away: AtomicBool,
    }

    impl SlowBook {
        /// With these tokens. Nothing is read until [`SlowBook::let_read`].
        async fn with(records: Vec<TokenRecord>) -> Arc<SlowBook> {
            let book = MemoryTokenBook::default();
            for record in records {
                book.add(record).await.unwrap();
            }
            let (reads, is_away) = (AtomicUsize::new(0), AtomicBool::new(false));
            Arc::new(SlowBook { book, reads, gate: Semaphore::new(0), is_away })
        }

        fn let_read(&self, times: usize) {
            self.gate.add_permits(times);
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::Relaxed)
        }
    }

    #[async_trait::async_trait]
    impl TokenBook for SlowBook {
        async fn find(&self, key_id: &str) -> redrive::Result<Option<TokenRecord>> {
            self.book.find(key_id).await
        }
        async fn add(&self, record: TokenRecord) -> redrive::Result<()> {
            tokio::task::yield_now().await;
            self.book.add(record).await
        }
        async fn list(&self) -> redrive::Result<Vec<TokenRecord>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.gate.acquire().await.unwrap().forget();
            match self.is_away.load(Ordering::Relaxed) {
                true => Err(redrive::Error::new(redrive::ErrorKind::Unavailable, "away")),
                false => self.book.list().await,
            }
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

    fn minted(byte: u8) -> (Token, TokenRecord) {
        Token::mint(&[byte; 39], "ci", vec![Scope::Read], at(0), None)
    }

    #[tokio::test]
    async fn a_flood_of_unknown_tokens_costs_ten_readings_a_second() {
        let (good, record) = minted(1);
        let book = SlowBook::with(vec![record]).await;
        book.let_read(usize::MAX >> 4);
        let tokens = Arc::new(Tokens::new(book.clone()));
        for n in 0..3_000_u32 {
            let mut entropy = [9; 39];
            entropy[..4].copy_from_slice(&n.to_be_bytes());
            let unknown = Token::mint(&entropy, "", Vec::new(), at(0), None).0;
            tokens.who(&with(unknown.reveal()), HERE, at(n.into())).await.unwrap_err();
            let ended = tokens.close_session(unknown.reveal(), at(n.into())).await;
            assert_eq!(ended, Ok(None));
            let entropy = [8; 39];
            tokens.open_session(unknown.reveal(), HERE, &entropy, at(n.into())).await.unwrap_err();
        }
        assert_eq!(book.reads(), 30);
        let fresh = tokens.who(&with(good.reveal()), HERE, at(2_999)).await;
        assert!(fresh.is_ok(), "never seen before, and from the very address that is throttled");
        assert_eq!(book.reads(), 30);
    }

    #[tokio::test]
    async fn what_another_server_has_just_made_is_good_here() {
        let (book, here, token) = book_of(1).await;
        let there = Arc::new(Tokens::new(book));
        here.who(&with(token.reveal()), HERE, at(0)).await.unwrap();
        let (session, _) = there.open_session(token.reveal(), HERE, &[2; 39], at(100)).await.unwrap();
        here.check(session.reveal(), As::Session, HERE, at(200)).await.unwrap();
        let (session, _) = there.open_session(token.reveal(), HERE, &[3; 39], at(300)).await.unwrap();
        assert!(here.close_session(session.reveal(), at(400)).await.unwrap().is_some(), "and is ended here");
    }

    #[tokio::test]
    async fn a_crowd_that_comes_at_once_waits_for_one_reading() {
        let (good, record) = minted(1);
        let book = SlowBook::with(vec![record]).await;
        let tokens = Arc::new(Tokens::new(book.clone()));
        let headers = with(good.reveal());
        let crowd = futures_util::future::join_all((0..50).map(|_| tokens.who(&headers, HERE, at(0))));
        let (answers, ()) = tokio::join!(crowd, async { book.let_read(50) });
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(book.reads(), 1);
    }

    #[tokio::test]
    async fn a_crowd_in_an_outage_does_not_try_one_after_another() {
        let (good, record) = minted(1);
        let book = SlowBook::with(vec![record]).await;
        book.is_away.store(true, Ordering::Relaxed);
        let tokens = Arc::new(Tokens::new(book.clone()));
        let headers = with(good.reveal());
        let crowd = futures_util::future::join_all((0..50).map(|_| tokens.who(&headers, HERE, at(0))));
        let (answers, ()) = tokio::join!(crowd, async { book.let_read(50) });
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|refusal| refusal.status == 503)));
        assert!(book.reads() <= 2, "{}", book.reads());
        // And it is over as soon as the outage is.
        book.is_away.store(false, Ordering::Relaxed);
        assert!(tokens.who(&headers, HERE, at(1)).await.is_ok());
    }

    #[tokio::test]
    async fn a_token_that_is_made_here_is_good_at_once_though_the_book_was_being_read() {
        let (first, record) = minted(1);
        let book = SlowBook::with(vec![record]).await;
        let tokens = Arc::new(Tokens::new(book.clone()));
        let (second, record) = minted(2);
        let made = async {
            book.add(record).await.unwrap();
            tokens.outdate();
            book.let_read(2);
            tokens.who(&with(second.reveal()), HERE, at(1)).await
        };
        let headers = with(first.reveal());
        let (read, made) = tokio::join!(tokens.who(&headers, HERE, at(0)), made);
        assert!(read.is_ok() && made.is_ok(), "{made:?}");
        assert_eq!(book.reads(), 2, "the first reading was begun before the token was made");
    }

    #[tokio::test]
    async fn sessions_that_begin_at_once_are_no_more_than_there_may_be() {
        let (good, record) = minted(1);
        let book = SlowBook::with(vec![record]).await;
        book.let_read(usize::MAX >> 4);
        let tokens = Arc::new(Tokens::new(book.clone()));
        let open = async |n: u8, ms: i64| tokens.open_session(good.reveal(), HERE, &[n; 39], at(ms)).await;
        for n in 2..17 {
            open(n, i64::from(n) * 60_000).await.unwrap();
        }
        let opened = futures_util::future::join_all((20..30).map(|n| open(n, 20 * 60_000))).await;
        assert!(opened.iter().all(Result::is_ok));
        assert_eq!(book.list().await.unwrap().len(), 1 + session::SESSIONS_MAX);
    }

    #[tokio::test]
    async fn what_was_read_is_not_believed_for_longer_because_the_clock_is_put_back() {
        let (book, tokens, token) = book_of(1).await;
        tokens.who(&with(token.reveal()), HERE, at(900_000)).await.unwrap();
        book.revoke(token.key_id(), at(0)).await.unwrap();
        assert_eq!(tokens.who(&with(token.reveal()), HERE, at(1)).await.unwrap_err().status, 401);
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
                // Even from the very address that is throttled.
                tokens.who(&with(token.reveal()), HERE, now).await.unwrap();
            }
        }
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [401, 429]);
        assert!(counts[&401] <= 11, "{counts:?}");
    }
}
