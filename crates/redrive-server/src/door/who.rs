//! Who is asking, and what they may do.

use redrive::Timestamp;

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
}

impl Who {
    /// Somebody on this machine, where no token is asked for: everything is allowed.
    pub fn local() -> Who {
        Who { name: "local".into(), scopes: vec![Scope::Admin], key_id: None, expires_at: None }
    }

    /// Somebody without a token, on a route that needs none.
    pub fn nobody() -> Who {
        Who { name: "nobody".into(), scopes: Vec::new(), key_id: None, expires_at: None }
    }

    /// Whether this is allowed.
    pub fn may(&self, needed: &Scope) -> bool {
        self.scopes.iter().any(|scope| scope.covers(needed))
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
