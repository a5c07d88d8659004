//! Tokens, kept beside the jobs: every server of a store knows the same ones.

use std::collections::BTreeMap;

use async_trait::async_trait;
use redrive::{Engine, Error, ErrorKind, Json, Result, Timestamp};

use crate::door::{TokenBook, TokenRecord};

/// Where the records are.
const SHELF: &str = "tokens";
/// When each was last used: on a shelf of its own, so that noting a use never undoes a revocation.
const USES: &str = "token_uses";

/// The tokens of a store.
pub struct StoreTokens {
    engine: Engine,
}

impl StoreTokens {
    /// Those of this engine's store.
    pub fn new(engine: Engine) -> StoreTokens {
        StoreTokens { engine }
    }

    async fn write(&self, record: &TokenRecord) -> Result<()> {
        let json = Json::of(record).map_err(|_| unreadable(&record.key_id))?;
        self.engine.keep_record(SHELF, &record.key_id, Some(json)).await
    }
}

fn unreadable(key_id: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the record of the token {key_id} is not what was written"))
        .with_hint("revoke it and make a new one")
}

#[async_trait]
impl TokenBook for StoreTokens {
    async fn find(&self, key_id: &str) -> Result<Option<TokenRecord>> {
        Ok(self.list().await?.into_iter().find(|record| record.key_id == key_id))
    }

    async fn add(&self, record: TokenRecord) -> Result<()> {
        self.write(&record).await
    }

    async fn list(&self) -> Result<Vec<TokenRecord>> {
        let uses: BTreeMap<String, Json> = self.engine.records(USES).await?.into_iter().collect();
        let mut records = Vec::new();
        for (key_id, json) in self.engine.records(SHELF).await? {
            let mut record: TokenRecord = json.decode().map_err(|_| unreadable(&key_id))?;
            record.last_used_at = uses.get(&key_id).and_then(|at| at.decode().ok());
            records.push(record);
        }
        records.sort_by(|a, b| (a.created_at, &a.key_id).cmp(&(b.created_at, &b.key_id)));
        Ok(records)
    }

    async fn revoke(&self, key_id: &str, at: Timestamp) -> Result<bool> {
        let Some(mut record) = self.find(key_id).await? else { return Ok(false) };
        record.revoked_at = Some(record.revoked_at.map_or(at, |before| before.min(at)));
        record.last_used_at = None;
        self.write(&record).await?;
        Ok(true)
    }

    async fn remove(&self, key_id: &str) -> Result<()> {
        self.engine.keep_record(SHELF, key_id, None).await?;
        self.engine.keep_record(USES, key_id, None).await
    }

    async fn used(&self, key_id: &str, at: Timestamp) -> Result<()> {
        let json = Json::of(&at).map_err(|_| unreadable(key_id))?;
        self.engine.keep_record(USES, key_id, Some(json)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::{Scope, Token};
    use redrive::MemoryStore;

    #[tokio::test]
    async fn a_use_that_is_noted_after_a_revocation_does_not_undo_it() {
        let engine = Engine::builder(MemoryStore::new()).build().unwrap();
        let (book, other) = (StoreTokens::new(engine.clone()), StoreTokens::new(engine));
        let at = Timestamp::from_millis;
        let (token, record) = Token::mint(&[7; 39], "ci", vec![Scope::Read], at(1), None);
        book.add(record.clone()).await.unwrap();
        assert_eq!(other.find(token.key_id()).await.unwrap(), Some(record));
        assert!(book.revoke(token.key_id(), at(3)).await.unwrap());
        other.used(token.key_id(), at(4)).await.unwrap();
        let found = book.find(token.key_id()).await.unwrap().unwrap();
        assert_eq!((found.revoked_at, found.last_used_at), (Some(at(3)), Some(at(4))));
        assert!(!book.revoke("nobody", at(3)).await.unwrap());
    }
}
