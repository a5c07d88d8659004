//! Who is asking, and what they may do.

use std::fmt;
use std::sync::Arc;

use redrive::Timestamp;

use super::authenticate::Tokens;
use super::refusal::Refusal;
use super::token::Scope;

/// Who is asking. In the extensions of every request that reaches a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The token's name, for the audit log and for people.
    pub name: String,
    /// What they may do.
    pub scopes: Vec<Scope>,
    /// Which token; none for whoever is on this machine, and for nobody.
    pub key_id: Option<String>,
    /// Until when they are known, if there is an end to it.
    pub expires_at: Option<Timestamp>,
    /// What they showed; nothing where no token is asked for.
    pub shown: Option<Shown>,
}

/// What somebody showed, a token or a session, so that one can ask later whether it is still good.
#[derive(Clone)]
pub struct Shown {
    tokens: Arc<Tokens>,
    key_id: String,
}

impl Shown {
    pub(super) fn new(tokens: Arc<Tokens>, key_id: String) -> Shown {
        Shown { tokens, key_id }
    }
}

impl PartialEq for Shown {
    fn eq(&self, other: &Shown) -> bool {
        self.key_id == other.key_id
    }
}

impl Eq for Shown {}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key_id)
    }
}

impl Who {
    /// Somebody on this machine, where no token is asked for: everything is allowed.
    pub fn local() -> Who {
        Who { name: "local".into(), scopes: vec![Scope::Admin], ..Who::nobody() }
    }

    /// Somebody without a token, on a route that needs none.
    pub fn nobody() -> Who {
        Who { name: "nobody".into(), scopes: Vec::new(), key_id: None, expires_at: None, shown: None }
    }

    /// Whether this is allowed.
    pub fn may(&self, needed: &Scope) -> bool {
        self.scopes.iter().any(|scope| scope.covers(needed))
    }

    /// Them, as what they enqueue is to say it: the token's name, and which one it is. Nobody in particular where none is
    /// asked for.
    pub fn signature(&self) -> Option<String> {
        self.key_id.as_ref().map(|key_id| format!("{} ({key_id})", self.name))
    }

    /// Whether what they showed is still good: neither revoked nor expired nor, if it was a session, ended. For those who
    /// stay longer than one answer takes.
    ///
    /// # Errors
    ///
    /// 401 if it is not.
    pub async fn need_good_still(&self, now: Timestamp) -> Result<(), Refusal> {
        let Some(Shown { tokens, key_id }) = &self.shown else { return Ok(()) };
        match tokens.is_still_good(key_id, now).await {
            true => Ok(()),
            false => Err(Refusal::new(401, "RETRY_AUTH_REQUIRED", "the token is good no more")
                .hint("it has expired, or it or the session was ended; see them with: redrive tokens list")),
        }
    }

    /// Tokens were made or revoked with what they showed: that counts at once, at the door they came through.
    pub fn has_changed_tokens(&self) {
        if let Some(Shown { tokens, .. }) = &self.shown {
            tokens.outdate();
        }
    }

    /// Refuses what is not allowed.
    ///
    /// # Errors
    ///
    /// 403 with the scope that is missing; 401 for nobody.
    pub fn need(&self, needed: Scope) -> Result<(), Refusal> {
        if self.may(&needed) {
            return Ok(());
        }
        if self.key_id.is_none() {
            return Err(token_required());
        }
        Err(Refusal::new(
            403,
            "RETRY_FORBIDDEN",
            format!("this needs the scope {needed}, which the token lacks"),
        )
        .hint(format!("use a token that has it: redrive tokens create --scope {needed} NAME")))
    }
}

/// Nobody without a token.
pub(super) fn token_required() -> Refusal {
    Refusal::new(401, "RETRY_AUTH_REQUIRED", "this needs a token").hint(
        "send the header Authorization: Bearer rdv_…; make one with: redrive tokens create --scope read NAME",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_scope_is_named_and_nobody_is_asked_for_a_token() {
        let reader = Who { scopes: vec![Scope::Read], key_id: Some("k".into()), ..Who::nobody() };
        assert_eq!(reader.need(Scope::Read), Ok(()));
        let refusal = reader.need(Scope::WorkOn("mail".into())).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.code), (403, "RETRY_FORBIDDEN"));
        assert_eq!(refusal.message, "this needs the scope work:mail, which the token lacks");
        assert_eq!(Who::nobody().need(Scope::Read).unwrap_err().status, 401);
        assert_eq!(Who::local().need(Scope::Admin), Ok(()));
    }
}
