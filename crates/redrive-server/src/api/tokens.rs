//! Tokens: made, listed and revoked by whoever may do everything.

use std::time::Duration;

use axum::extract::State;
use redrive::{Engine, NAME_BYTES_MAX, Timestamp, secs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::answer::{Answer, Body, Envelope, Path, Refused, created, invalid, ok};
use super::audit::{By, On};
use super::forms::Span;
use crate::door::{Refusal, Scope, Token, TokenBook as _, TokenRecord, Who, entropy};
use crate::tokens::StoreTokens;

/// The longest name.
const NAME_MAX: usize = 100;
/// The most scopes: one for each of many queues. The server keeps them all at hand.
const SCOPES_MAX: usize = 100;
/// The shortest time for which a token is good: what is less was meant as something else, such as never.
const EXPIRES_IN_MIN: Duration = secs(1);

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(example = json!({ "name": "shop", "scopes": ["enqueue", "read"] }))]
pub(super) struct TokenForm {
    /// For people: whose it is.
    name: String,
    /// What it allows: `read`, `read:payload`, `enqueue`, `work`, `work:QUEUE`, `operate`, `admin`; 1 to 100 of them.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 100)]
    scopes: Vec<Scope>,
    /// For how long it is good, a second at least; until it is revoked if not given.
    expires_in: Option<Span>,
}

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenView {
    key_id: String,
    name: String,
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<Timestamp>,
}

impl From<TokenRecord> for TokenView {
    fn from(record: TokenRecord) -> TokenView {
        let TokenRecord { key_id, name, scopes, created_at, expires_at, revoked_at, last_used_at, .. } =
            record;
        TokenView { key_id, name, scopes, created_at, expires_at, revoked_at, last_used_at }
    }
}

/// A new token.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewTokenView {
    /// Shown this once, and kept nowhere.
    token: String,
    #[serde(flatten)]
    record: TokenView,
}

fn book(api: &Api) -> StoreTokens {
    StoreTokens::new(api.engine().clone())
}

/// Makes a token. It is shown once.
#[utoipa::path(post, path = "/api/v1/tokens", operation_id = "createToken", tag = "tokens", request_body = TokenForm, responses(
    (status = 201, body = Envelope<NewTokenView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn create(state: State<Api>, by: By, body: Body<TokenForm>) -> Answer<NewTokenView> {
    by.who.need(Scope::Admin)?;
    let TokenForm { name, scopes, expires_in } = body.value;
    if name.trim().is_empty() || name.chars().count() > NAME_MAX {
        return Err(invalid("the name is missing or too long", format!("send 1 to {NAME_MAX} characters")));
    }
    check_scopes(&scopes)?;
    if expires_in.is_some_and(|span| span.0 < EXPIRES_IN_MIN) {
        return Err(invalid(
            "the token would have expired as soon as it is made",
            "write for how long it is to be good, such as 90d; or leave that out for one that is good until it is revoked",
        ));
    }
    let entropy = entropy()
        .map_err(|_| Refusal::new(503, "RETRY_INTERNAL", "the operating system has no randomness to give"))?;
    let now = state.engine().now();
    let (token, record) = Token::mint(&entropy, &name, scopes, now, expires_in.map(|span| now + span.0));
    let on = On::named(&format!("{} ({})", record.key_id, record.name));
    let new = record.clone();
    let change = |engine: Engine| async move { Ok(StoreTokens::new(engine).add(new).await?) };
    let made = by.steered(&state, "tokens.create", on, change).await;
    by.who.has_changed_tokens();
    made?;
    created(NewTokenView { token: token.reveal().to_owned(), record: record.into() })
}

/// There are some, not too many, and queues can have the names in them. Asked of new ones only: those that are kept must
/// stay readable.
fn check_scopes(scopes: &[Scope]) -> Result<(), Refusal> {
    if scopes.is_empty() {
        return Err(invalid("the token would allow nothing", "send at least one scope"));
    }
    if scopes.len() > SCOPES_MAX {
        let message = format!("{} scopes for one token; {SCOPES_MAX} are allowed", scopes.len());
        return Err(invalid(message, "send work for all queues, or make several tokens"));
    }
    let is_no_name = |queue: &str| queue.len() > NAME_BYTES_MAX || queue.chars().any(char::is_control);
    match scopes.iter().any(|scope| matches!(scope, Scope::WorkOn(queue) if is_no_name(queue))) {
        false => Ok(()),
        true => Err(invalid(
            "what stands behind work: is no name of a queue",
            format!("write 1 to {NAME_BYTES_MAX} bytes without control characters, such as work:mail"),
        )),
    }
}

/// All tokens, the oldest first.
#[utoipa::path(get, path = "/api/v1/tokens", operation_id = "listTokens", tag = "tokens", responses(
    (status = 200, body = Envelope<Vec<TokenView>>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn list(state: State<Api>, who: Who) -> Answer<Vec<TokenView>> {
    who.need(Scope::Admin)?;
    let records = book(&state).list().await?.into_iter().filter(|record| record.session_of.is_none());
    ok(records.map(TokenView::from).collect())
}

/// Makes a token worthless, on every server within a second.
#[utoipa::path(delete, path = "/api/v1/tokens/{keyId}", operation_id = "revokeToken", tag = "tokens", params(("keyId" = String, Path)), responses(
    (status = 200, body = Envelope<TokenView>), (status = "4XX", body = Refused), (status = 503, body = Refused),
))]
pub(super) async fn revoke(state: State<Api>, by: By, key_id: Path<String>) -> Answer<TokenView> {
    by.who.need(Scope::Admin)?;
    let book = book(&state);
    let (name, now) = (key_id.0.clone(), state.engine().now());
    let change = |engine: Engine| async move { Ok(StoreTokens::new(engine).revoke(&name, now).await?) };
    let revoked = by.steered(&state, "tokens.revoke", On::named(&key_id.0), change).await;
    by.who.has_changed_tokens();
    revoked?;
    let Some(record) = book.find(&key_id.0).await? else {
        return Err(Refusal::new(404, "RETRY_NOT_FOUND", format!("there is no token {:?}", key_id.0))
            .hint("list them: redrive tokens list"));
    };
    ok(record.into())
}
