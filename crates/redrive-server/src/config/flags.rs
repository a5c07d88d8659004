//! The flags of `redrive serve`.

use std::path::PathBuf;

use clap::Args;

use super::mistake::Place;
use super::node::{Node, Value};

/// What to serve, and where. Everything else stands in the config file: docs/reference/config.md.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeOptions {
    /// Where to listen [default: 127.0.0.1:7373]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Where the jobs are [default: sqlite:redrive.db]
    #[arg(long, value_name = "sqlite:PATH|postgres://…")]
    pub store: Option<String>,
    /// The config file, instead of ./redrive.toml
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A network that jobs may call although it is not public; may be given several times
    #[arg(long, value_name = "CIDR")]
    pub allow_egress: Vec<String>,
    /// A name under which the server is reached, besides loopback; may be given several times
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// Speak plain HTTP off loopback: something before the server speaks TLS
    #[arg(long)]
    pub insecure: bool,
    /// Where the first admin token is kept; made at the first start
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What is logged: a level, or levels by target [default: info]
    #[arg(long, value_name = "LEVELS")]
    pub log: Option<String>,
    /// How it is logged: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Start flaky destinations and a trickle of jobs as well, to see it all at work
    #[arg(long)]
    pub demo: bool,
}

impl ServeOptions {
    /// Each flag that was given: its path in the config, and its value.
    pub(super) fn given(&self) -> Vec<(&'static str, Node)> {
        let text = |flag: &str, text: &Option<String>| {
            text.as_ref().map(|text| Node::text(text, Place::Flag(flag.into())))
        };
        let list = |flag: &str, texts: &[String]| {
            let place = Place::Flag(flag.into());
            let nodes: Vec<Node> = texts.iter().map(|text| Node::text(text, place.clone())).collect();
            (!nodes.is_empty()).then_some(Node { value: Value::List(nodes), place })
        };
        let path = self.token_file.as_ref().map(|path| path.to_string_lossy().into_owned());
        let insecure = Node { value: Value::Truth(true), place: Place::Flag("--insecure".into()) };
        [
            ("listen", text("--listen", &self.listen)),
            ("store", text("--store", &self.store)),
            ("egress.allow", list("--allow-egress", &self.allow_egress)),
            ("hosts", list("--host", &self.hosts)),
            ("insecure", self.insecure.then_some(insecure)),
            ("token_file", text("--token-file", &path)),
            ("log", text("--log", &self.log)),
            ("log_format", text("--log-format", &self.log_format)),
        ]
        .into_iter()
        .filter_map(|(path, node)| Some((path, node?)))
        .collect()
    }
}
