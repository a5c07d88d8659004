//! `redrive serve`: one engine, the executors it runs, and the API in front of it, until it is told to stop.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use redrive::{Builder, Engine, ErrorKind, PostgresOptions, SqliteOptions, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{self, Api};
use crate::config::{Config, DestinationConfig, Durability, HealthConfig, QueueConfig, StoreUrl};
use crate::door::{self, DoorConfig, Entrance, Guarded, Tls, Who};
use crate::egress::{Allow, Egress, EgressPolicy};
use crate::executor::{CommandExecutor, HttpExecutor, Secrets};
use crate::health::Health;
use crate::notices::{self, Notifier};
use crate::telemetry::Metrics;
use crate::tokens::StoreTokens;

/// How often durations that were measured are added up.
const GATHER_EVERY: Duration = redrive::secs(5);
/// How long a file is waited for that somebody has: longer than a command takes.
const IN_USE_WAIT: Duration = redrive::secs(5);
/// How often it is looked at meanwhile.
const IN_USE_LOOK: Duration = redrive::millis(50);

/// A server that has its store and its address, and serves when it is told to.
pub struct Server {
    config: Config,
    engine: Engine,
    guarded: Guarded,
    api: Api,
    health: Health,
    metrics: Option<Metrics>,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    /// Says that it is to stop.
    stop: watch::Sender<bool>,
}

impl Server {
    /// Opens the store, takes the address, and checks everything that can be checked.
    ///
    /// # Errors
    ///
    /// [`door::NotOpened`] if the server must not be open to everybody who could reach it; else what is wrong with the
    /// store, the address or the configuration.
    pub async fn open(config: Config, metrics: Option<Metrics>) -> Result<Server> {
        Server::open_with(config, metrics, |engine| engine).await
    }

    /// As [`Server::open`], with handlers and queues of your own beside what is built in: your program then has the API
    /// and the dashboard of its own engine.
    ///
    /// # Errors
    ///
    /// Those of [`Server::open`].
    pub async fn open_with(
        config: Config,
        metrics: Option<Metrics>,
        own: impl FnOnce(Builder) -> Builder,
    ) -> Result<Server> {
        let store = open_store_soon(&config, || false).await?;
        let commands = commands(&config)?;
        let egress = Egress::new(egress_policy(&config)?);
        let engine = own(engine(&config, store, egress.clone(), commands.clone())?).build()?;
        let health = Health::new(engine.clone(), egress, health_rules(&config));
        let (stop, stopping) = watch::channel(false);
        let parts = api::Parts {
            policies: config.policies.clone(),
            commands,
            endpoints: Some(config.endpoints.keys().cloned().collect()),
            metrics: metrics.clone(),
            payload_bytes: Some(config.limits.payload_bytes),
            batch: Some(config.limits.batch),
            stopping: Some(stopping),
        };
        let book = Arc::new(StoreTokens::new(engine.clone()));
        let entropy = door::entropy().context("the operating system has no randomness to give")?;
        let opening = door::open(&config, book, &entropy, engine.now()).await?;
        if let Some(path) = &opening.written {
            tracing::info!(file = %path.display(), "An admin token was written");
        }
        let api = Api::new(engine.clone(), parts);
        let door = DoorConfig::new(&config, opening.entry, engine.clock().clone());
        let guarded = Guarded::new(api::router(api.clone()), door);
        let listener = door::bind(config.listen)
            .with_context(|| format!("cannot listen on {}; choose another with --listen", config.listen))?;
        let tls = config.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
        Ok(Server { config, engine, guarded, api, health, metrics, listener, tls, stop })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Its URL for those on this machine: under its first name where it has to prove one.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn url(&self) -> std::io::Result<String> {
        let address = self.address()?;
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let port = address.port();
        Ok(match (&self.tls, self.config.hosts.first()) {
            (None, _) => format!("http://{}", SocketAddr::new(ip, port)),
            (Some(_), None) => format!("https://{}", SocketAddr::new(ip, port)),
            (Some(_), Some(name)) => format!("https://{name}:{port}"),
        })
    }

    /// Its certificates, which can be read anew while it serves; none if it speaks plain HTTP.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// The engine it runs.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Serves until `shutdown` resolves: then nothing new is taken, and what runs may finish within the grace period.
    ///
    /// # Errors
    ///
    /// Those of the store at the end, and of the socket.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let Server { config, engine, guarded, api, health, metrics, listener, tls, stop } = self;
        let entrance = match tls {
            Some(tls) => Entrance::secured(listener, tls),
            None => listener.into(),
        };
        let stopped = stop.subscribe();
        let stopping = |mut stopped: watch::Receiver<bool>| async move {
            // A sender that is gone is as good as a word.
            stopped.wait_for(|stop| *stop).await.map(|_| ()).unwrap_or(());
        };
        // Whatever ends first ends the others.
        // The engine's loop is a task of its own: it is woken thousands of times a second, and the others need not be.
        let until = stopping(stopped.clone());
        let (working, on_loop_end) = (engine.clone(), stop.clone());
        let worked = tokio::spawn(async move {
            let worked = working.run(until).await;
            on_loop_end.send_replace(true);
            worked
        });
        let listened = async {
            let until = stopping(stopped.clone());
            let listened = door::listen(entrance, guarded, &config.limits, config.grace, until).await;
            stop.send_replace(true);
            listened
        };
        let told = async {
            tokio::select! {
                () = shutdown => {}
                () = stopping(stopped.clone()) => {}
            }
            stop.send_replace(true);
        };
        let notifier = Notifier::new(engine.clone(), config.notify.clone()).reached_at(reached_at(&config));
        let noticed = async {
            tokio::select! {
                () = async {
                    tokio::join!(notifier.run(|notice| api.notice(notice)), health.run(), gather(metrics));
                } => {}
                () = stopping(stopped.clone()) => {}
            }
        };
        let (worked, listened, (), ()) = tokio::join!(worked, listened, told, noticed);
        worked.context("the engine's loop panicked")??;
        Ok(listened?)
    }
}

/// The URL under which others reach it: by its first name. Without a certificate of its own, something before it has one.
fn reached_at(config: &Config) -> Option<String> {
    let name = config.hosts.first()?;
    let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
    Some(match config.tls {
        Some(_) => format!("https://{name}:{}", config.listen.port()),
        None => format!("https://{name}"),
    })
}

/// Adds up what was counted, now and then.
async fn gather(metrics: Option<Metrics>) {
    while let Some(metrics) = &metrics {
        tokio::time::sleep(GATHER_EVERY).await;
        metrics.gather();
    }
}

/// The API on this store for whoever sits at it: the same routes and answers as a server's, without a door and without
/// running any job. Needs a runtime.
///
/// # Errors
///
/// What is wrong with the configuration.
pub fn at_hand(config: &Config, store: Arc<dyn Store>) -> Result<axum::Router> {
    let builder = known(Engine::on(store).name(&config.instance).produce_any(), config);
    let parts = api::Parts {
        policies: config.policies.clone(),
        commands: commands(config)?,
        payload_bytes: Some(config.limits.payload_bytes),
        batch: Some(config.limits.batch),
        ..api::Parts::default()
    };
    let router = api::router(Api::new(builder.build()?, parts));
    Ok(router.layer(axum::Extension(Who::local())))
}

/// Opens the configured store.
///
/// # Errors
///
/// Those of the store.
pub async fn open_store(config: &Config) -> redrive::Result<Arc<dyn Store>> {
    let relaxed = config.durability == Durability::Relaxed;
    Ok(match &config.store {
        StoreUrl::Sqlite(path) => {
            let options = SqliteOptions::default();
            let options = if relaxed { options.relaxed_durability() } else { options };
            Arc::new(options.open(path).await?)
        }
        StoreUrl::Postgres(url) => {
            let options = PostgresOptions::default();
            let options = if relaxed { options.relaxed_durability() } else { options };
            Arc::new(options.connect(url).await?)
        }
    })
}

/// Opens the configured store as soon as whoever has its file for a moment, such as a command, is done with it. Whether it
/// is a matter of moments, `is_served` knows: a server keeps its file.
///
/// # Errors
///
/// Those of the store.
pub async fn open_store_soon(
    config: &Config,
    is_served: impl Fn() -> bool,
) -> redrive::Result<Arc<dyn Store>> {
    let mut left = IN_USE_WAIT;
    loop {
        match open_store(config).await {
            Err(error) if error.kind() == ErrorKind::InUse && !left.is_zero() && !is_served() => {
                tokio::time::sleep(IN_USE_LOOK).await;
                left = left.saturating_sub(IN_USE_LOOK);
            }
            opened => return opened,
        }
    }
}

fn engine(
    config: &Config,
    store: Arc<dyn Store>,
    egress: Egress,
    commands: Option<CommandExecutor>,
) -> Result<Builder> {
    let http = HttpExecutor::new(egress, secrets(config)?).history(store.clone());
    let mut builder = Engine::on(store)
        .name(&config.instance)
        .lease(config.lease)
        .grace(config.grace)
        .retention(config.retention)
        .produce_any()
        .handle(http);
    if let Some(commands) = commands {
        builder = builder.handle(commands);
    }
    Ok(known(builder, config))
}

/// With the queues and destinations that are configured, and the queue of the notices.
fn known(builder: Builder, config: &Config) -> Builder {
    let queues = config.queues.iter().map(QueueConfig::queue).chain(notices::queue(config));
    let builder = queues.fold(builder, Builder::queue);
    config.destinations.iter().fold(builder, |builder, destination| {
        builder.destination(&destination.pattern, destination.limits.clone())
    })
}

fn health_rules(config: &Config) -> Vec<(String, HealthConfig)> {
    let rule = |destination: &DestinationConfig| {
        destination.health.clone().map(|health| (destination.pattern.clone(), health))
    };
    config.destinations.iter().filter_map(rule).collect()
}

fn egress_policy(config: &Config) -> Result<EgressPolicy> {
    let allow = |text: &String| text.parse::<Allow>().map_err(|error| anyhow!("egress.allow: {error}"));
    Ok(EgressPolicy { allow: config.egress_allow.iter().map(allow).collect::<Result<_>>()? })
}

fn secrets(config: &Config) -> Result<Secrets> {
    let mut secrets = Secrets::new();
    for (endpoint, texts) in &config.endpoints {
        for text in texts {
            let secret = text
                .reveal()
                .parse()
                .map_err(|error| anyhow!("the secret of endpoint {endpoint:?}: {error}"))?;
            secrets = secrets.with(endpoint, secret);
        }
    }
    Ok(secrets)
}

fn commands(config: &Config) -> Result<Option<CommandExecutor>> {
    if config.commands.is_empty() {
        return Ok(None);
    }
    let entries = config.commands.iter().map(|(name, command)| command.entry(name));
    let executor = CommandExecutor::new(entries.collect());
    executor.map(Some).map_err(|problems| anyhow!("the commands cannot be used: {}", problems.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Sources};

    #[test]
    fn a_server_that_has_a_name_is_reached_by_it() {
        let at = |hosts: &str| {
            reached_at(&config::load(&Sources::none().variable("REDRIVE_HOSTS", hosts)).unwrap())
        };
        assert_eq!(at("jobs.example,other.example").as_deref(), Some("https://jobs.example"));
        assert_eq!(at("fd00::1").as_deref(), Some("https://[fd00::1]"));
        assert_eq!(at(""), None);
    }
}
