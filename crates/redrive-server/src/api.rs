//! The HTTP API: every route in one list, from which the OpenAPI description is made too.
//!
//! A route reads what it was sent, asks what its caller may do, calls the engine, and answers in the envelope. Not here:
//! who comes in (`door.rs`), and what jobs do (`executor.rs`).

mod answer;
mod audit;
mod commands;
mod dead;
mod destinations;
mod edit;
mod events;
mod executions;
mod explain;
mod forms;
mod halt;
mod held;
mod jobs;
mod limits;
mod metrics;
mod notices;
mod operations;
mod policies;
mod queues;
mod retry;
mod schemas;
mod seal;
mod series;
mod session;
mod simulations;
mod stats;
mod tokens;
mod views;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use redrive::{Engine, Policy};
use tokio::sync::watch;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::executor::{CommandExecutor, HttpExecutor};
use crate::telemetry::Metrics;

pub use self::answer::Envelope;

/// What the routes work on.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    policies: BTreeMap<String, Policy>,
    commands: Option<CommandExecutor>,
    endpoints: Option<BTreeSet<String>>,
    metrics: Option<Metrics>,
    hub: Arc<events::Hub>,
    payload_bytes: usize,
    batch: usize,
    stopping: Option<watch::Receiver<bool>>,
    /// Destinations that `/metrics` has shown.
    gauged: tokio::sync::Mutex<BTreeSet<Arc<str>>>,
    simulations: simulations::Simulations,
    seals: seal::Seals,
}

/// What a server has beside its engine.
#[derive(Default)]
pub struct Parts {
    /// Policies under names of their own.
    pub policies: BTreeMap<String, Policy>,
    /// The commands that jobs may name.
    pub commands: Option<CommandExecutor>,
    /// The endpoints that jobs may name; any if not given, which is for whoever runs none of them.
    pub endpoints: Option<BTreeSet<String>>,
    /// What `/metrics` shows.
    pub metrics: Option<Metrics>,
    /// How large a payload may be; as large as the engine allows if not given.
    pub payload_bytes: Option<usize>,
    /// How many jobs one call may bring; 1,000 if not given.
    pub batch: Option<usize>,
    /// Becomes true when the server stops: streams end then, and waits.
    pub stopping: Option<watch::Receiver<bool>>,
}

impl Api {
    /// An API on this engine. Needs a runtime: it listens to the engine from now on.
    pub fn new(engine: Engine, parts: Parts) -> Api {
        let Parts { policies, commands, endpoints, metrics, payload_bytes, batch, stopping } = parts;
        let payload_bytes = payload_bytes.unwrap_or(redrive::PAYLOAD_BYTES_MAX);
        let batch = batch.unwrap_or(1_000);
        let hub = events::Hub::start(&engine);
        Api {
            inner: Arc::new(Inner {
                engine,
                policies,
                commands,
                endpoints,
                metrics,
                hub,
                payload_bytes,
                batch,
                stopping,
                gauged: tokio::sync::Mutex::default(),
                simulations: simulations::Simulations::default(),
                seals: seal::Seals::default(),
            }),
        }
    }

    /// Tells whoever listens what somebody is to be told.
    pub fn notice(&self, notice: redrive::Notice) {
        self.inner.hub.notice(notice);
    }

    /// Resolves when the server stops: whoever waits for something is told how it stands.
    async fn stops(&self) {
        match self.inner.stopping.clone() {
            Some(mut stopping) => drop(stopping.wait_for(|stops| *stops).await),
            None => std::future::pending().await,
        }
    }

    fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    fn seals(&self) -> &seal::Seals {
        &self.inner.seals
    }

    /// Whose health matters to a job, where its payload says so, whether or not it could be run.
    fn destination_of(kind: &str, payload: &str) -> Option<String> {
        if kind == "http" { HttpExecutor::check(payload).ok() } else { None }
    }

    /// What is wrong with a payload of a kind that this server runs itself; or whose health matters to its job, where the
    /// payload says so.
    fn check_payload(&self, kind: &str, payload: &str) -> Result<Option<String>, String> {
        match (kind, &self.inner.commands) {
            ("http", _) => match &self.inner.endpoints {
                Some(endpoints) => HttpExecutor::check_with(payload, endpoints).map(Some),
                None => HttpExecutor::check(payload).map(Some),
            },
            ("command", Some(commands)) => commands.check(payload).map(|()| None),
            ("command", None) => Err("commands are off: the operator allows them one by one in the \
                                      configuration, as [commands.NAME]"
                .into()),
            _ => Ok(None),
        }
    }
}

/// What stands at the head of the description.
#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "Redrive",
    description = "Work that fails comes back and finishes. Every answer under /api/v1 is an envelope: \
                   {\"success\":true,\"data\":…} or {\"success\":false,\"error\":{\"code\",\"message\",\"hint\"}}.",
    version = env!("CARGO_PKG_VERSION"),
    license(name = "MIT OR Apache-2.0")
), security((), ("bearer" = [])), modifiers(&Bearer))]
struct Description;

/// The token that a caller shows. On an open loopback server nobody needs one.
struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, description: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        description.components.get_or_insert_default().add_security_scheme("bearer", scheme);
    }
}

/// The routes and their description.
fn described() -> (Router<Api>, OpenApi) {
    // Each with its whole path: one router within another would cost every request two more steps.
    let all = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(jobs::create, jobs::list))
        .routes(routes!(jobs::create_many))
        .routes(routes!(jobs::get, jobs::delete, edit::edit))
        .routes(routes!(explain::explain))
        .routes(routes!(commands::retry))
        .routes(routes!(commands::cancel))
        .routes(routes!(commands::snooze))
        .routes(routes!(commands::reschedule))
        .routes(routes!(commands::redrive))
        .routes(routes!(commands::by_filter))
        .routes(routes!(operations::list))
        .routes(routes!(operations::get))
        .routes(routes!(operations::cancel))
        .routes(routes!(retry::queue))
        .routes(routes!(retry::pending))
        .routes(routes!(retry::trigger))
        .routes(routes!(retry::cancel))
        .routes(routes!(executions::start, executions::list))
        .routes(routes!(executions::get, executions::delete))
        .routes(routes!(executions::retry))
        .routes(routes!(executions::cancel))
        .routes(routes!(executions::retry_node))
        .routes(routes!(dead::list))
        .routes(routes!(dead::groups))
        .routes(routes!(queues::list))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(destinations::list))
        .routes(routes!(limits::list))
        .routes(routes!(limits::set, limits::unset))
        .routes(routes!(destinations::get))
        .routes(routes!(destinations::pause))
        .routes(routes!(destinations::resume))
        .routes(routes!(destinations::up))
        .routes(routes!(destinations::down))
        .routes(routes!(destinations::renewed))
        .routes(routes!(stats::stats))
        .routes(routes!(stats::activity))
        .routes(routes!(series::series))
        .routes(routes!(audit::list))
        .routes(routes!(notices::list))
        .routes(routes!(halt::hold))
        .routes(routes!(halt::resume))
        .routes(routes!(session::get, session::create, session::delete))
        .routes(routes!(policies::presets))
        .routes(routes!(policies::preview))
        .routes(routes!(simulations::simulate))
        .routes(routes!(policies::classify))
        .routes(routes!(workers::lease))
        .routes(routes!(workers::heartbeat))
        .routes(routes!(workers::complete))
        .routes(routes!(workers::fail))
        .routes(routes!(workers::snooze))
        .routes(routes!(workers::release))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(events::events))
        .routes(routes!(metrics::healthz))
        .routes(routes!(metrics::readyz))
        .routes(routes!(metrics::metrics));
    all.split_for_parts()
}

/// The description of the API, as it is committed and served.
pub fn openapi() -> OpenApi {
    described().1
}

/// The routes. They take it for granted that somebody has asked who is there: see [`door::Guarded`](crate::door::Guarded).
pub fn router(api: Api) -> Router {
    let (routes, description) = described();
    let description = Arc::new(serde_json::to_value(description).unwrap_or_default());
    let served = {
        let description = description.clone();
        move || async move { axum::Json((*description).clone()) }
    };
    let routes = routes.route("/openapi.json", get(served));
    #[cfg(feature = "dashboard")]
    let routes = crate::assets::mount(routes);
    routes.fallback(answer::not_found).method_not_allowed_fallback(answer::method_not_allowed).with_state(api)
}
