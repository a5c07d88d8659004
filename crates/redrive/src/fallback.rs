//! Several sources for one answer: ask them in order, take the first that has it.
//!
//! If none has it, what went wrong decides whether asking again may help. Not here: when to ask again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::classify::By;
use crate::outcome::{Class, Failure};

/// Sources that are asked in order until one has the answer.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use redrive::{Failure, Fallback};
///
/// let titles = Fallback::new()
///     .source("tmdb", |id: u32| async move { Err(Failure::from_status(404, format!("no title {id}"))) })
///     .source("wikipedia", |id: u32| async move { Ok(format!("title {id}")) });
/// let found = titles.run(7).await.unwrap();
/// assert_eq!((found.source.as_str(), found.value.as_str()), ("wikipedia", "title 7"));
/// # });
/// ```
pub struct Fallback<Q, R> {
    sources: Vec<(String, Source<Q, R>)>,
}

type Source<Q, R> = Arc<dyn Fn(Q) -> Pin<Box<dyn Future<Output = Result<R, Failure>> + Send>> + Send + Sync>;

/// An answer, and how it was come by.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<R> {
    /// The source that had it.
    pub source: String,
    /// The answer.
    pub value: R,
    /// The sources before it, and why they had none.
    pub skipped: Vec<(String, Failure)>,
}

impl<Q: Clone, R> Fallback<Q, R> {
    /// No sources yet.
    pub fn new() -> Fallback<Q, R> {
        Fallback { sources: Vec::new() }
    }

    /// Asks this source after those before it.
    #[must_use]
    pub fn source<F, A>(mut self, name: impl Into<String>, ask: F) -> Fallback<Q, R>
    where
        F: Fn(Q) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.sources.push((name.into(), Arc::new(move |query| Box::pin(ask(query)))));
        self
    }

    /// Asks one source after the other, and stops at the first answer.
    ///
    /// # Errors
    ///
    /// If none has it: a failure that may be retried if that of any source may, with the longest wait a source asked
    /// for; otherwise a permanent one, whose code is `NOT_FOUND` if no source had it.
    pub async fn run(&self, query: Q) -> Result<Found<R>, Failure> {
        let mut skipped = Vec::new();
        for (name, ask) in &self.sources {
            match ask(query.clone()).await {
                Ok(value) => return Ok(Found { source: name.clone(), value, skipped }),
                Err(failure) => skipped.push((name.clone(), failure)),
            }
        }
        Err(whole(&skipped))
    }
}

impl<Q: Clone, R> Default for Fallback<Q, R> {
    fn default() -> Fallback<Q, R> {
        Fallback::new()
    }
}

impl<Q, R> Clone for Fallback<Q, R> {
    fn clone(&self) -> Fallback<Q, R> {
        Fallback { sources: self.sources.clone() }
    }
}

impl<Q, R> fmt::Debug for Fallback<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|(name, _)| name)).finish()
    }
}

/// What the failures of all sources come to.
fn whole(skipped: &[(String, Failure)]) -> Failure {
    let failures = || skipped.iter().map(|(_, failure)| failure);
    let class = [Class::Transient, Class::UnknownOutcome, Class::RateLimited, Class::NeedsAuth]
        .into_iter()
        .find(|class| failures().any(|failure| failure.class == *class))
        .unwrap_or(Class::Permanent);
    let said: Vec<String> = skipped.iter().map(|(name, failure)| format!("{name}: {failure}")).collect();
    let message = match said.len() {
        0 => "there are no sources to ask; add one with .source(name, …)".to_owned(),
        _ => format!("no source has it ({})", said.join("; ")),
    };
    let written = |(name, failure): &(String, Failure)| Some(format!("{name}: {}", failure.detail.as_ref()?));
    let written: Vec<String> = skipped.iter().filter_map(written).collect();
    let mut failure = match class {
        Class::Transient => Failure::retry(message),
        Class::UnknownOutcome => Failure::unknown_outcome(message),
        Class::RateLimited => Failure::rate_limited(message),
        Class::NeedsAuth => Failure::needs_auth(message),
        Class::Permanent => Failure::permanent(message),
    }
    .detail(written.join("; "));
    // What no source could make sense of is for the policy to judge, as it would be from one source alone.
    if failures().filter(|f| f.class == Class::Transient).all(|f| f.by == By::Default)
        && class == Class::Transient
    {
        failure.by = By::Default;
    }
    // The longest: asked any sooner, one of them is still not ready. Waits of sources that are lost do not count.
    failure.retry_after = failures().filter(|f| f.class.is_retryable()).filter_map(|f| f.retry_after).max();
    if !skipped.is_empty() && failures().all(Failure::is_not_found) {
        failure.code = Some("NOT_FOUND".to_owned());
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::secs;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Asks sources that fail like this, one after the other.
    async fn all_fail(failures: Vec<Failure>) -> Failure {
        let mut fallback: Fallback<(), ()> = Fallback::new();
        for (n, failure) in failures.into_iter().enumerate() {
            fallback = fallback.source(format!("s{n}"), move |()| std::future::ready(Err(failure.clone())));
        }
        fallback.run(()).await.unwrap_err()
    }

    #[tokio::test]
    async fn the_first_that_has_it_answers_and_the_rest_are_not_asked() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let fallback = Fallback::new()
            .source("tmdb", |_: String| async { Err(Failure::from_status(404, "no such title")) })
            .source("broken", |_: String| async { Err(Failure::permanent("bad key")) })
            .source("wikipedia", |title: String| async move { Ok(title.len()) })
            .source("never", move |_: String| {
                count.fetch_add(1, Ordering::Relaxed);
                async { Ok(0) }
            });
        let found = fallback.run("Heat".to_owned()).await.unwrap();
        assert_eq!((found.source.as_str(), found.value), ("wikipedia", 4));
        let skipped: Vec<&str> = found.skipped.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(skipped, ["tmdb", "broken"]);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn one_transient_source_makes_the_whole_transient() {
        let whole = all_fail(vec![
            Failure::from_status(404, "no"),
            Failure::retry("down"),
            Failure::permanent("bad key"),
        ])
        .await;
        assert_eq!(whole.class, Class::Transient);
        assert_eq!(whole.message, "no source has it (s0: no; s1: down; s2: bad key)");
    }

    #[tokio::test]
    async fn what_the_sources_wrote_stays_apart_from_the_message() {
        let quoted = Failure::from_status(404, "a answered 404").detail("no such title");
        let whole = all_fail(vec![quoted, Failure::permanent("bad key")]).await;
        assert_eq!(whole.message, "no source has it (s0: a answered 404; s1: bad key)");
        assert_eq!(whole.detail.as_deref(), Some("s0: no such title"));
        assert_eq!(all_fail(vec![Failure::permanent("bad key")]).await.detail, None);
    }

    #[tokio::test]
    async fn what_no_source_understands_is_left_to_the_policy() {
        let whole = all_fail(vec![Failure::from_status(404, "no"), Failure::from_text("what is this")]).await;
        assert_eq!((whole.class, whole.by), (Class::Transient, By::Default));
        let known = all_fail(vec![Failure::from_text("what is this"), Failure::retry("down")]).await;
        assert_eq!((known.class, known.by), (Class::Transient, By::Handler));
    }

    #[tokio::test]
    async fn the_longest_wait_asked_for_is_kept() {
        let limited = |n| Failure::retry_after(secs(n), "slow down");
        let whole =
            all_fail(vec![limited(5), Failure::from_status(404, "no"), limited(90), limited(30)]).await;
        assert_eq!((whole.class, whole.retry_after), (Class::RateLimited, Some(secs(90))));
        let mixed = all_fail(vec![limited(5), Failure::retry("down")]).await;
        assert_eq!((mixed.class, mixed.retry_after), (Class::Transient, Some(secs(5))));
    }

    #[tokio::test]
    async fn if_all_are_permanent_the_whole_is() {
        let missing = || Failure::from_status(404, "no");
        let nowhere = all_fail(vec![missing(), Failure::from_code("NOT_FOUND", "no")]).await;
        assert_eq!((nowhere.class, nowhere.is_not_found()), (Class::Permanent, true));
        let broken = all_fail(vec![missing(), Failure::permanent("bad key")]).await;
        assert_eq!((broken.class, broken.is_not_found()), (Class::Permanent, false));
    }

    #[tokio::test]
    async fn a_credential_that_is_needed_is_said() {
        let whole = all_fail(vec![Failure::from_status(404, "no"), Failure::needs_auth("key expired")]).await;
        assert_eq!(whole.class, Class::NeedsAuth);
    }

    #[tokio::test]
    async fn no_sources_is_a_mistake_that_says_what_to_do() {
        let whole = all_fail(vec![]).await;
        assert_eq!((whole.class, whole.is_not_found()), (Class::Permanent, false));
        assert!(whole.message.contains("add one with .source"));
    }
}
