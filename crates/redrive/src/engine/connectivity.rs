//! Whether this machine has a network, as the operating system tells: for an app on somebody's desk, whose jobs are to be
//! held while it is offline and to go when it is online again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpStream;

use super::Engine;
use super::destinations::Known;
use crate::error::Result;
use crate::gate::{Phase, Why, Word, pattern_matches};
use crate::span;

/// How often to look. Within this time of coming back, jobs go.
const LOOK_EVERY: Duration = span::secs(1);
/// How long a connection may take before nobody is there.
const CONNECT_MAX: Duration = span::secs(3);
/// A route that is in use,
const ROUTE_UP: u32 = 0x1;
/// and one that leads nowhere on purpose.
const ROUTE_REJECT: u32 = 0x200;

/// Watches whether there is a network, and says of destinations that they are up or down accordingly.
///
/// ```
/// use redrive::{Connectivity, Engine};
///
/// # async fn example(engine: Engine) {
/// let watch = Connectivity::by_routes().destination("sync.example.org").watch(&engine);
/// let shutdown = std::future::pending();
/// tokio::select! {
///     () = watch => {}
///     ended = engine.run(shutdown) => ended.unwrap(),
/// }
/// # }
/// ```
///
/// What it can know is little: a default route says that there is a network, not that anybody answers on it. A captive
/// portal, a firewall or a server that is down are found out by the jobs themselves, whose gate shuts then. It saves them
/// from finding out what the machine knows already, and lets them go within a second of the network being back.
#[derive(Clone, Debug)]
pub struct Connectivity {
    how: How,
    every: Duration,
    destinations: Vec<String>,
}

#[derive(Clone, Debug)]
enum How {
    /// By the default routes in these tables, of IPv4 and IPv6.
    Routes { v4: PathBuf, v6: PathBuf },
    /// By a connection to this address.
    Connection(String),
}

impl Connectivity {
    /// By whether Linux has a default route. On other systems, where there are no such tables, the network is taken to be
    /// there: use [`Connectivity::by_connecting`].
    pub fn by_routes() -> Connectivity {
        Connectivity::how(How::Routes { v4: "/proc/net/route".into(), v6: "/proc/net/ipv6_route".into() })
    }

    /// By whether this address, such as `sync.example.org:443`, takes a connection. Everywhere; but each look is one.
    pub fn by_connecting(to: impl Into<String>) -> Connectivity {
        Connectivity::how(How::Connection(to.into()))
    }

    fn how(how: How) -> Connectivity {
        Connectivity { how, every: LOOK_EVERY, destinations: Vec::new() }
    }

    /// Says it of this destination too: a name as jobs have it, or a pattern, such as `*.example.org` or `*`. What matches a
    /// pattern and was not known yet is held when its first job has its turn, at no cost.
    #[must_use]
    pub fn destination(mut self, name: impl Into<String>) -> Connectivity {
        self.destinations.push(name.into());
        self
    }

    /// Looks this often, instead of once a second.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Connectivity {
        self.every = pause.max(span::millis(10));
        self
    }

    /// Whether there is a network now.
    pub async fn is_there(&self) -> bool {
        match &self.how {
            How::Routes { v4, v6 } => {
                let tables = (std::fs::read_to_string(v4), std::fs::read_to_string(v6));
                // No tables are no news: they are missing on other systems, and where IPv6 is off.
                if tables.0.is_err() && tables.1.is_err() {
                    return true;
                }
                tables.0.is_ok_and(|table| table.lines().skip(1).any(is_default_v4))
                    || tables.1.is_ok_and(|table| table.lines().any(is_default_v6))
            }
            How::Connection(to) => {
                matches!(tokio::time::timeout(CONNECT_MAX, TcpStream::connect(to)).await, Ok(Ok(_)))
            }
        }
    }

    /// Watches until it is dropped.
    pub async fn watch(self, engine: &Engine) {
        let clock = engine.inner().clock.clone();
        let patterns: Vec<String> =
            self.destinations.iter().filter(|name| name.contains('*')).cloned().collect();
        let cut_off = CutOff { known: &engine.inner().known };
        let mut was_there = None;
        loop {
            let is_there = self.is_there().await;
            // Before anything is said: what begins from now on goes by this.
            cut_off.known.cut_off(if is_there { &[] } else { &patterns });
            if was_there != Some(is_there) {
                match self.say(engine, is_there).await {
                    Ok(()) => was_there = Some(is_there),
                    Err(error) => {
                        tracing::warn!(%error, "What the network does could not be passed on; trying again");
                    }
                }
            }
            clock.sleep_until(clock.now() + self.every).await;
        }
    }

    /// Says only what is news: one that is down for another reason stays down, and one that is open stays open.
    async fn say(&self, engine: &Engine, is_there: bool) -> Result<()> {
        let known = engine.destinations().await?;
        let lately = engine.called_lately();
        let there = known.iter().map(|known| &known.name).chain(&lately);
        let mut names: BTreeSet<&str> =
            there.map(|name| &**name).filter(|name| self.is_meant(name)).collect();
        names.extend(self.destinations.iter().map(String::as_str).filter(|name| !name.contains('*')));
        for name in names {
            let phase = known.iter().find(|known| *known.name == *name).map(|known| &known.gate.phase);
            let is_said_down = matches!(phase, Some(Phase::Shut { why: Why::Said, .. }));
            match (is_there, is_said_down) {
                (true, true) => engine.say(name, Word::Up).await?,
                (false, false) => engine.say(name, Word::Down).await?,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_meant(&self, name: &str) -> bool {
        self.destinations.iter().any(|pattern| pattern_matches(pattern, name))
    }
}

/// What nobody watches any more is not cut off.
struct CutOff<'a> {
    known: &'a Known,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        self.known.cut_off(&[]);
    }
}

fn is_open(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & ROUTE_UP != 0 && flags & ROUTE_REJECT == 0)
}

/// `eth0 00000000 010200C0 0003 0 0 0 00000000 …`: interface, destination, gateway, flags, …, mask.
fn is_default_v4(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "00000000", _, flags, _, _, _, "00000000", ..] = fields[..] else { return false };
    is_open(flags)
}

/// `00…00 00 00…00 00 fd…01 00000400 00000003 00000000 00000003 eth0`: destination, its length, …, flags, interface.
fn is_default_v6(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [destination, "00", _, _, _, _, _, _, flags, interface] = fields[..] else { return false };
    destination.bytes().all(|digit| digit == b'0') && interface != "lo" && is_open(flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Attempt;
    use crate::job::{Ending, NewJob};
    use crate::outcome::Failure;
    use crate::store::MemoryStore;

    const HEAD: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";

    #[test]
    fn a_default_route_is_one_that_leads_everywhere_and_is_in_use() {
        assert!(is_default_v4("eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0"));
        for line in [
            "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
            "eth0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0",
            "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0",
            "",
        ] {
            assert!(!is_default_v4(line), "{line}");
        }
        let zeros = "0".repeat(32);
        let line = |flags: &str, to: &str| {
            format!("{zeros} 00 {zeros} 00 {zeros} 00000400 00000003 00000000 {flags} {to}")
        };
        assert!(is_default_v6(&line("00000003", "eth0")));
        assert!(!is_default_v6(&line("00200200", "lo")) && !is_default_v6(&line("00200201", "eth0")));
        assert!(!is_default_v6(&format!("fe80{} 40 x", "0".repeat(28))));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_held_while_the_machine_has_no_route_and_a_destination_that_is_down_by_itself_stays_so()
    {
        let folder = tempfile::tempdir().unwrap();
        let (v4, v6) = (folder.path().join("route"), folder.path().join("ipv6_route"));
        let is_online = |online: bool| {
            let route = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
            std::fs::write(&v4, format!("{HEAD}{}", if online { route } else { "" })).unwrap();
        };
        is_online(false);
        let engine = Engine::builder(MemoryStore::new()).build().unwrap();
        let how = How::Routes { v4: v4.clone(), v6 };
        let watch = Connectivity::how(how).destination("mine").destination("paused");
        engine.say("paused", Word::Pause).await.unwrap();
        let mut changes = engine.gate_changes();
        let said = async {
            assert!(matches!(changes.recv().await.unwrap().after, Phase::Shut { why: Why::Said, .. }));
            assert!(matches!(changes.recv().await.unwrap().after, Phase::Shut { why: Why::Said, .. }));
            is_online(true);
            assert!(matches!(changes.recv().await.unwrap().after, Phase::Ramp { .. }));
            let back = changes.recv().await.unwrap();
            assert!(back.paused && &*back.destination == "paused", "what a person has paused stays paused");
        };
        tokio::select! {
            () = watch.watch(&engine) => {}
            () = said => {}
        }
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Call;

    impl crate::Payload for Call {
        const KIND: &'static str = "call";
    }

    #[tokio::test]
    async fn jobs_for_what_matches_a_pattern_are_held_at_no_cost_though_nobody_has_called_it_before() {
        let folder = tempfile::tempdir().unwrap();
        let (v4, v6) = (folder.path().join("route"), folder.path().join("ipv6_route"));
        std::fs::write(&v4, HEAD).unwrap();
        let (calls, mut called) = tokio::sync::mpsc::unbounded_channel();
        let call = move |attempt: Attempt<Call>| {
            let calls = calls.clone();
            async move { calls.send(attempt.job().extras().destination.clone()).map_err(Failure::retry) }
        };
        let engine = Engine::builder(MemoryStore::new()).handle(call).build().unwrap();
        let mut changes = engine.gate_changes();
        let how = How::Routes { v4: v4.clone(), v6 };
        let watch = Connectivity::how(how).destination("*.example.org").every(span::millis(10));
        let seen = async {
            let away = engine.enqueue(NewJob::from(Call).destination("sync.example.org")).await.unwrap();
            let change = changes.recv().await.unwrap();
            assert!(matches!(change.after, Phase::Shut { why: Why::Said, .. }));
            assert_eq!(&*change.destination, "sync.example.org");
            engine.enqueue(NewJob::from(Call).destination("printer.local")).await.unwrap();
            assert_eq!(called.recv().await.unwrap().as_deref(), Some("printer.local"));
            let route = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
            std::fs::write(&v4, format!("{HEAD}{route}")).unwrap();
            assert_eq!(called.recv().await.unwrap().as_deref(), Some("sync.example.org"));
            let detail = engine.get(away.id).await.unwrap().unwrap();
            assert_eq!((detail.job.ledger.failures, detail.attempts[0].ending), (0, Ending::Held));
        };
        tokio::select! { biased;
            () = seen => {}
            () = watch.watch(&engine) => {}
            _ = engine.run(std::future::pending()) => {}
        }
    }

    /// A network namespace of its own, whose routes are what its process says. Nothing where that is not allowed.
    #[cfg(target_os = "linux")]
    struct Namespace {
        shell: std::process::Child,
        answers: std::io::BufReader<std::process::ChildStdout>,
    }

    #[cfg(target_os = "linux")]
    impl Namespace {
        fn open() -> Option<Namespace> {
            let mut command = std::process::Command::new("unshare");
            let piped = std::process::Stdio::piped;
            command.args(["--map-root-user", "--net", "sh"]).stdin(piped()).stdout(piped()).stderr(piped());
            let mut shell = command.spawn().ok()?;
            let answers = std::io::BufReader::new(shell.stdout.take()?);
            let mut namespace = Namespace { shell, answers };
            namespace.does("ip link set lo up").then_some(namespace)
        }

        /// Whether it could be done.
        fn does(&mut self, what: &str) -> bool {
            use std::io::{BufRead as _, Write as _};
            let stdin = self.shell.stdin.as_mut().unwrap();
            let mut answer = String::new();
            let asked = writeln!(stdin, "{what} && echo done || echo failed");
            asked.is_ok() && self.answers.read_line(&mut answer).is_ok() && answer == "done\n"
        }

        fn watch(&self) -> Connectivity {
            let net = PathBuf::from(format!("/proc/{}/net", self.shell.id()));
            Connectivity::how(How::Routes { v4: net.join("route"), v6: net.join("ipv6_route") })
        }
    }

    #[cfg(target_os = "linux")]
    impl Drop for Namespace {
        fn drop(&mut self) {
            drop(self.shell.kill());
            drop(self.shell.wait());
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_real_network_is_there_while_it_has_a_default_route() {
        let Some(mut namespace) = Namespace::open() else { return };
        let watch = namespace.watch();
        assert!(!watch.is_there().await, "an interface alone is no network");
        assert!(namespace.does("ip route add default dev lo"));
        assert!(watch.is_there().await);
        assert!(namespace.does("ip route replace unreachable default"));
        assert!(!watch.is_there().await, "a route that leads nowhere is none");
    }

    #[tokio::test]
    async fn an_address_is_there_when_it_takes_a_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let watch = Connectivity::by_connecting(listener.local_addr().unwrap().to_string());
        assert!(watch.is_there().await);
        drop(listener);
        assert!(!watch.is_there().await);
    }
}
