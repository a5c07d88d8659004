//! Signing what is sent, as [Standard Webhooks](https://www.standardwebhooks.com) 1.0 has it: `v1`, HMAC-SHA256 over
//! `id.timestamp.body`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

/// The secrets of endpoints, by the endpoint's name. While a secret is being changed an endpoint has two, and what is
/// sent carries a signature by each.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeMap<String, Vec<Secret>>);

impl Secrets {
    /// No endpoints.
    pub fn new() -> Secrets {
        Secrets::default()
    }

    /// With one more secret of an endpoint.
    #[must_use]
    pub fn with(mut self, endpoint: impl Into<String>, secret: Secret) -> Secrets {
        self.0.entry(endpoint.into()).or_default().push(secret);
        self
    }

    /// Whether there is an endpoint of this name, with something to sign by.
    pub fn knows(&self, endpoint: &str) -> bool {
        !self.of(endpoint).is_empty()
    }

    pub(super) fn of(&self, endpoint: &str) -> &[Secret] {
        self.0.get(endpoint).map_or(&[], Vec::as_slice)
    }
}

/// One secret: `whsec_` and 24 to 64 bytes in base64. It is never printed.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The signature of a message: `v1,…`.
    pub fn sign(&self, id: &str, unix_seconds: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(format!("{id}.{unix_seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl FromStr for Secret {
    type Err = String;

    /// The text itself is in no message: it may be right but for one letter.
    fn from_str(text: &str) -> Result<Secret, String> {
        let wanted =
            "write whsec_ and 24 to 64 random bytes in base64, as `openssl rand -base64 32` makes them";
        let encoded = text
            .trim()
            .strip_prefix("whsec_")
            .ok_or_else(|| format!("the secret has no whsec_ before it; {wanted}"))?;
        let bytes =
            BASE64_STANDARD.decode(encoded).map_err(|_| format!("the secret is not base64; {wanted}"))?;
        match bytes.len() {
            24..=64 => Ok(Secret(bytes)),
            length => Err(format!("the secret has {length} bytes; {wanted}")),
        }
    }
}

impl TryFrom<String> for Secret {
    type Error = String;
    fn try_from(text: String) -> Result<Secret, String> {
        text.parse()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_in_the_specification() {
        // The example of the reference libraries.
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_never_shown() {
        let text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let secrets: Secrets = serde_json::from_value(serde_json::json!({"billing": [text]})).unwrap();
        assert!(secrets.knows("billing") && !secrets.knows("other"));
        assert!(!format!("{secrets:?}").contains("MfKQ"));
        for wrong in
            ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "whsec_MfKQ"]
        {
            let error = wrong.parse::<Secret>().unwrap_err();
            assert!(!error.contains("MfKQ") && error.contains("whsec_ and 24 to 64"), "{error}");
        }
    }
}
