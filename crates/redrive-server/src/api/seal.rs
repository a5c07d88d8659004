//! What makes a lease its worker's own: a seal that only the servers of a store can make, over the lease and the token with
//! which it was taken. Nothing is kept for a lease, and nothing is read to look at one.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use redrive::{Engine, Error, ErrorKind, JobId, Json, Result, Rng, Timestamp, secs};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::door::Who;

/// Where the keys are: beside the jobs, for a lease outlives the server that gave it, and others of the store may be told
/// what came of it.
const SHELF: &str = "lease_keys";
const KEY_BYTES: usize = 32;
/// A seal as text: 128 bits in hexadecimal digits.
pub(super) const DIGITS: usize = 32;
/// Another server may have made a key since. Whoever makes seals up does not make us read the store each time.
const LOOK_AGAIN: Duration = secs(1);

type Key = [u8; KEY_BYTES];

/// What a seal is on.
#[derive(Clone, Copy)]
pub(super) enum Sealed<'a> {
    Worker(&'a str),
    Lease(&'a str),
}

/// Makes and knows the seals of a store.
#[derive(Default)]
pub(super) struct Seals {
    known: Mutex<Known>,
    /// Held by whoever reads the store, so that the others find what it has found.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Known {
    /// The first makes seals, and any may have made one. There are several where servers began at the same moment.
    keys: Arc<[Key]>,
    /// When they were last read because a seal was by none of them.
    looked_again_at: Option<Timestamp>,
}

impl Seals {
    /// The seal that makes this theirs.
    pub(super) async fn make(&self, engine: &Engine, on: Sealed<'_>, who: &Who) -> Result<String> {
        if let Some(key) = self.known().keys.first() {
            return Ok(seal(key, on, who));
        }
        let _reading = self.reading.lock().await;
        if self.known().keys.is_empty() {
            let keys = read_or_make(engine).await?;
            self.learn(|known| known.keys = keys);
        }
        match self.known().keys.first() {
            Some(key) => Ok(seal(key, on, who)),
            None => Err(unavailable("no key for leases could be kept in the store".into())),
        }
    }

    /// Whether this is the seal that makes it theirs.
    pub(super) async fn is_of(&self, engine: &Engine, text: &str, on: Sealed<'_>, who: &Who) -> Result<bool> {
        if fits(&self.known().keys, text, on, who) {
            return Ok(true);
        }
        let _reading = self.reading.lock().await;
        let (now, Known { keys, looked_again_at }) = (engine.now(), self.known());
        if looked_again_at.is_some_and(|at| now.since(at) < LOOK_AGAIN) {
            return Ok(fits(&keys, text, on, who));
        }
        let keys = read_or_make(engine).await?;
        self.learn(|known| *known = Known { keys: keys.clone(), looked_again_at: Some(now) });
        Ok(fits(&keys, text, on, who))
    }

    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn learn(&self, what: impl FnOnce(&mut Known)) {
        what(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The keys of the store. Where there is none, one is made: under a name that grows with time, so that of several that are
/// made at once all servers soon take the same one.
async fn read_or_make(engine: &Engine) -> Result<Arc<[Key]>> {
    let mut keys = kept(engine).await?;
    if keys.is_empty() {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key)
            .map_err(|error| unavailable(format!("the system has no random bytes: {error}")))?;
        let name = JobId::new(engine.now(), 0, &mut Rng::from_os()).to_string();
        engine.keep_record(SHELF, &name, Some(written(&key))).await?;
        keys = kept(engine).await?;
    }
    Ok(keys.into())
}

fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::Unavailable, message).with_hint("nothing was leased; ask again in a moment")
}

async fn kept(engine: &Engine) -> Result<Vec<Key>> {
    let records = engine.records(SHELF).await?;
    Ok(records.iter().filter_map(|(_, value)| unhex(&value.decode::<String>().ok()?)).collect())
}

fn written(key: &Key) -> Json {
    Json::from(serde_json::Value::from(hex(key)))
}

fn fits(keys: &[Key], text: &str, on: Sealed<'_>, who: &Who) -> bool {
    keys.iter().any(|key| seal(key, on, who).as_bytes().ct_eq(text.as_bytes()).into())
}

fn seal(key: &Key, on: Sealed<'_>, who: &Who) -> String {
    let (what, text) = match on {
        Sealed::Worker(text) => ("worker", text),
        Sealed::Lease(text) => ("lease", text),
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    // Whoever is let in without a token is the same person: it is asked of nobody there.
    for part in [what, who.key_id.as_deref().unwrap_or_default(), text] {
        mac.update(part.as_bytes());
        mac.update(&[0]);
    }
    hex(&mac.finalize().into_bytes()[..DIGITS / 2])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

fn unhex(text: &str) -> Option<Key> {
    let mut bytes = [0; KEY_BYTES];
    if text.len() != KEY_BYTES * 2 {
        return None;
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(n * 2..n * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use redrive::MemoryStore;

    use super::*;

    fn engine() -> Engine {
        Engine::builder(MemoryStore::new()).build().unwrap()
    }

    fn worker(key_id: &str) -> Who {
        Who { key_id: Some(key_id.into()), ..Who::nobody() }
    }

    #[tokio::test]
    async fn a_seal_is_of_one_text_one_sort_and_one_token() {
        let (engine, seals) = (engine(), Seals::default());
        let (mine, lease) = (worker("a"), Sealed::Lease("17"));
        let text = seals.make(&engine, lease, &mine).await.unwrap();
        assert_eq!(text.len(), DIGITS);
        for (on, who, fits) in [
            (lease, worker("a"), true),
            (lease, worker("b"), false),
            (lease, Who::local(), false),
            (Sealed::Lease("18"), worker("a"), false),
            (Sealed::Worker("17"), worker("a"), false),
        ] {
            assert_eq!(seals.is_of(&engine, &text, on, &who).await.unwrap(), fits);
        }
        assert!(!seals.is_of(&engine, "", lease, &mine).await.unwrap());
    }

    #[tokio::test]
    async fn servers_of_one_store_know_each_others_seals_also_after_they_have_begun_at_once() {
        let engine = engine();
        let (one, two, later) = (Seals::default(), Seals::default(), Seals::default());
        // Each has made its key and read it before it could see the other's.
        for (seals, key) in [(&one, [1; KEY_BYTES]), (&two, [2; KEY_BYTES])] {
            engine.keep_record(SHELF, "key", Some(written(&key))).await.unwrap();
            seals.make(&engine, Sealed::Worker("9"), &Who::local()).await.unwrap();
        }
        engine.keep_record(SHELF, "key-of-the-first", Some(written(&[1; KEY_BYTES]))).await.unwrap();
        let (who, lease) = (worker("a"), Sealed::Lease("17"));
        for (by, to) in [(&one, &two), (&two, &one), (&one, &later), (&two, &later), (&later, &one)] {
            let text = by.make(&engine, lease, &who).await.unwrap();
            assert!(to.is_of(&engine, &text, lease, &who).await.unwrap());
        }
    }

    #[tokio::test]
    async fn whoever_makes_seals_up_does_not_make_the_store_be_read_each_time() {
        let (engine, seals) = (engine(), Seals::default());
        let (who, lease) = (worker("a"), Sealed::Lease("17"));
        assert!(!seals.is_of(&engine, &"0".repeat(DIGITS), lease, &who).await.unwrap());
        let looked_at = seals.known().looked_again_at;
        assert!(looked_at.is_some());
        assert!(!seals.is_of(&engine, &"1".repeat(DIGITS), lease, &who).await.unwrap());
        assert_eq!(seals.known().looked_again_at, looked_at);
    }
}
