//! Tokens: how one looks, what is kept of it, what it allows, and the book they are kept in.
//!
//! `rdv_<key id>_<secret>_<checksum>`: the key id finds the record, the secret proves it, the checksum tells a typing
//! error from an attack, and the prefix lets scanners find tokens that leaked. Only a hash is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use redrive::{Result, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::config::unknown_word;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX: &str = "rdv";
/// 2⁵⁶ key ids: a book of millions has no two alike.
const KEY_ID_BYTES: usize = 7;
const KEY_ID_DIGITS: usize = 10;
const SECRET_BYTES: usize = 32;
const SECRET_DIGITS: usize = 43;
const CHECKSUM_DIGITS: usize = 6;

/// What a token is made from; see [`entropy`].
pub type Entropy = [u8; KEY_ID_BYTES + SECRET_BYTES];

/// Random bytes from the operating system, enough for one token.
///
/// # Errors
///
/// Where the system has none to give.
pub fn entropy() -> std::io::Result<Entropy> {
    let mut bytes = [0; KEY_ID_BYTES + SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// A token. It cannot be printed by accident.
#[derive(Clone)]
pub struct Token {
    text: String,
}

impl Token {
    /// A new token, and what is kept of it.
    pub fn mint(
        entropy: &Entropy,
        name: &str,
        scopes: Vec<Scope>,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> (Token, TokenRecord) {
        let (id, secret) = entropy.split_at(KEY_ID_BYTES);
        let body = format!("{PREFIX}_{}_{}", base62(id, KEY_ID_DIGITS), base62(secret, SECRET_DIGITS));
        let token = Token { text: format!("{body}_{}", checksum(&body)) };
        let record = token.record(name, scopes, now, expires_at);
        (token, record)
    }

    /// What is kept of it.
    pub fn record(
        &self,
        name: &str,
        scopes: Vec<Scope>,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> TokenRecord {
        TokenRecord {
            key_id: self.key_id().to_owned(),
            name: name.to_owned(),
            scopes,
            sha256: self.hash(),
            created_at: now,
            expires_at,
            revoked_at: None,
            last_used_at: None,
            session_of: None,
        }
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What finds its record. Not a secret.
    pub fn key_id(&self) -> &str {
        self.text.split('_').nth(1).unwrap_or_default()
    }

    fn hash(&self) -> Hash {
        Hash(Sha256::digest(self.text.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rdv_{}_(hidden)", self.key_id())
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Token, String> {
        let is_digits = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let parts: Vec<&str> = text.split('_').collect();
        let is_whole = matches!(parts[..], [PREFIX, id, secret, _]
            if is_digits(id, KEY_ID_DIGITS) && is_digits(secret, SECRET_DIGITS));
        let (body, sum) = text.rsplit_once('_').unwrap_or_default();
        if is_whole && checksum(body) == sum {
            Ok(Token { text: text.to_owned() })
        } else {
            Err("is not a whole token; copy all of it, from rdv_ to the end".to_owned())
        }
    }
}

fn checksum(body: &str) -> String {
    base62(&crc32fast::hash(body.as_bytes()).to_be_bytes(), CHECKSUM_DIGITS)
}

/// The bytes as one number in base 62, in so many digits.
fn base62(bytes: &[u8], digits: usize) -> String {
    let mut number = bytes.to_vec();
    let mut out = vec![b'0'; digits];
    for digit in out.iter_mut().rev() {
        let mut rest = 0_u32;
        for byte in &mut number {
            let value = rest << 8 | u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            rest = value % 62;
        }
        *digit = DIGITS[rest as usize];
    }
    out.into_iter().map(char::from).collect()
}

/// What is kept of a token: everything but the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    /// What finds it.
    pub key_id: String,
    /// Whose it is, for people.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// The hash that it is compared with.
    pub sha256: Hash,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is no longer good.
    pub expires_at: Option<Timestamp>,
    /// Since when it is no longer good.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Of which token this is a browser's session: good for as long as that one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_of: Option<String>,
}

impl TokenRecord {
    /// Whether this is the token, good or not. Takes as long for a wrong token as for the right one.
    pub(super) fn is_of(&self, token: &Token) -> bool {
        token.hash().0.ct_eq(&self.sha256.0).into()
    }

    /// Whether it is neither expired nor revoked.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none_or(|at| now < at) && self.expires_at.is_none_or(|at| now < at)
    }

    /// What an unknown token is compared with: nothing hashes to it that anybody could find.
    pub(super) fn nobody() -> TokenRecord {
        TokenRecord {
            key_id: String::new(),
            name: String::new(),
            scopes: Vec::new(),
            sha256: Hash([0; 32]),
            created_at: Timestamp::EPOCH,
            expires_at: Some(Timestamp::EPOCH),
            revoked_at: None,
            last_used_at: None,
            session_of: None,
        }
    }
}

/// A SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Hash, String> {
        let byte = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
        bytes
            .filter(|_| text.len() == 64 && !text.contains('+'))
            .and_then(|bytes| bytes.try_into().ok())
            .map(Hash)
            .ok_or_else(|| format!("{text:?} is not a SHA-256; write 64 hexadecimal digits"))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Hash, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a token allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// See jobs, queues and statistics, without what is inside the jobs.
    Read,
    /// See payloads, outputs and answers too.
    ReadPayload,
    /// Put jobs in.
    Enqueue,
    /// Lease and settle jobs of every queue.
    Work,
    /// Lease and settle jobs of one queue.
    WorkOn(String),
    /// Retry, cancel, edit, pause.
    Operate,
    /// Everything, tokens included.
    Admin,
}

impl Scope {
    const WORDS: [&'static str; 6] = ["read", "read:payload", "enqueue", "work", "operate", "admin"];

    /// Whether whoever has this scope has the other.
    pub fn covers(&self, needed: &Scope) -> bool {
        self == needed
            || matches!(
                (self, needed),
                (Scope::Admin, _) | (Scope::ReadPayload, Scope::Read) | (Scope::Work, Scope::WorkOn(_))
            )
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Read => f.write_str("read"),
            Scope::ReadPayload => f.write_str("read:payload"),
            Scope::Enqueue => f.write_str("enqueue"),
            Scope::Work => f.write_str("work"),
            Scope::WorkOn(queue) => write!(f, "work:{queue}"),
            Scope::Operate => f.write_str("operate"),
            Scope::Admin => f.write_str("admin"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        match text {
            "read" => Ok(Scope::Read),
            "read:payload" => Ok(Scope::ReadPayload),
            "enqueue" => Ok(Scope::Enqueue),
            "work" => Ok(Scope::Work),
            "operate" => Ok(Scope::Operate),
            "admin" => Ok(Scope::Admin),
            _ => match text.strip_prefix("work:") {
                Some(queue) if !queue.is_empty() => Ok(Scope::WorkOn(queue.to_owned())),
                _ => Err(unknown_word(text, Scope::WORDS)),
            },
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Scope, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where tokens are kept. All instances of a server have the same book.
#[async_trait]
pub trait TokenBook: Send + Sync + 'static {
    /// The record of a key id, revoked and expired ones too.
    async fn find(&self, key_id: &str) -> Result<Option<TokenRecord>>;
    /// Adds a record.
    async fn add(&self, record: TokenRecord) -> Result<()>;
    /// All records, the oldest first.
    async fn list(&self) -> Result<Vec<TokenRecord>>;
    /// From `at` on the token is no longer good. Whether there is such a token.
    async fn revoke(&self, key_id: &str, at: Timestamp) -> Result<bool>;
    /// Forgets a record.
    async fn remove(&self, key_id: &str) -> Result<()>;
    /// It was used. Called at most once a minute for each token and instance.
    async fn used(&self, key_id: &str, at: Timestamp) -> Result<()>;
}

/// A book that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryTokenBook {
    records: Mutex<BTreeMap<String, TokenRecord>>,
}

impl MemoryTokenBook {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, TokenRecord>) -> T) -> T {
        act(&mut self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl TokenBook for MemoryTokenBook {
    async fn find(&self, key_id: &str) -> Result<Option<TokenRecord>> {
        Ok(self.with(|records| records.get(key_id).cloned()))
    }

    async fn add(&self, record: TokenRecord) -> Result<()> {
        self.with(|records| records.insert(record.key_id.clone(), record));
        Ok(())
    }

    async fn list(&self) -> Result<Vec<TokenRecord>> {
        let mut records: Vec<TokenRecord> = self.with(|records| records.values().cloned().collect());
        records.sort_by(|a, b| (a.created_at, &a.key_id).cmp(&(b.created_at, &b.key_id)));
        Ok(records)
    }

    async fn revoke(&self, key_id: &str, at: Timestamp) -> Result<bool> {
        let revoke = |record: &mut TokenRecord| record.revoked_at = Some(at);
        Ok(self.with(|records| records.get_mut(key_id).map(revoke)).is_some())
    }

    async fn remove(&self, key_id: &str) -> Result<()> {
        self.with(|records| records.remove(key_id));
        Ok(())
    }

    async fn used(&self, key_id: &str, at: Timestamp) -> Result<()> {
        let used = |record: &mut TokenRecord| record.last_used_at = record.last_used_at.max(Some(at));
        self.with(|records| records.get_mut(key_id).map(used));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minted(byte: u8) -> (Token, TokenRecord) {
        Token::mint(&[byte; 39], "ci", vec![Scope::Read], Timestamp::EPOCH, None)
    }

    #[test]
    fn a_token_is_read_back_and_any_changed_character_is_noticed() {
        for byte in [0, 7, 255] {
            let (token, record) = minted(byte);
            let text = token.reveal();
            assert_eq!(text.len(), 4 + 10 + 1 + 43 + 1 + 6, "{text}");
            assert_eq!(text.parse::<Token>().unwrap().key_id(), record.key_id);
            for at in 0..text.len() {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
                assert!(String::from_utf8(changed).unwrap().parse::<Token>().is_err(), "{at}");
            }
        }
        for text in ["", "rdv", "rdv___", "Bearer x", "rdv_a_b_c_d", &"é".repeat(33)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_kept_does_not_contain_the_token() {
        let (token, record) = minted(9);
        let kept = serde_json::to_string(&record).unwrap();
        let secret = token.reveal().split('_').nth(2).unwrap();
        assert!(!kept.contains(secret) && !format!("{token:?}{record:?}").contains(secret));
        assert_eq!(serde_json::from_str::<TokenRecord>(&kept).unwrap(), record);
    }

    #[test]
    fn a_record_is_of_its_own_token_and_good_until_it_expires_or_is_revoked() {
        let (token, record) = minted(1);
        let at = Timestamp::from_millis;
        assert!(record.is_of(&token) && record.is_good(at(5)));
        assert!(!record.is_of(&minted(2).0) && !TokenRecord::nobody().is_of(&token));
        assert!(!TokenRecord::nobody().is_good(at(5)));
        let expiring = TokenRecord { expires_at: Some(at(5)), ..record.clone() };
        assert!(expiring.is_good(at(4)) && !expiring.is_good(at(5)));
        let revoked = TokenRecord { revoked_at: Some(at(3)), ..record };
        assert!(!revoked.is_good(at(3)));
    }

    #[test]
    fn two_tokens_of_the_operating_system_differ() {
        let mint = || Token::mint(&entropy().unwrap(), "", Vec::new(), Timestamp::EPOCH, None).0;
        assert_ne!(mint().reveal(), mint().reveal());
    }

    #[test]
    fn scopes_are_read_as_written_and_cover_what_they_say() {
        for text in ["read", "read:payload", "enqueue", "work", "work:mail", "operate", "admin"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        assert_eq!(
            "opperate".parse::<Scope>().unwrap_err(),
            "\"opperate\" is not known; did you mean \"operate\"?"
        );
        assert!("work:".parse::<Scope>().is_err());
        let covers = |a: &str, b: &str| a.parse::<Scope>().unwrap().covers(&b.parse().unwrap());
        assert!(covers("admin", "operate") && covers("read:payload", "read") && covers("work", "work:mail"));
        assert!(
            !covers("read", "read:payload") && !covers("work:mail", "work") && !covers("work:mail", "work:a")
        );
        assert!(!covers("operate", "read") && !covers("read", "operate") && !covers("operate", "admin"));
    }
}
