//! A folder of its own for a command line, with stores and servers in it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use redrive::{Attempt, Engine, Failure, Happening, JobId, Payload, SqliteStore, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A folder without any configuration.
pub(crate) struct Ground(tempfile::TempDir);

/// What a command said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: &Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Its answer, if it did what it was asked.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {}{}", self.out, self.err))
    }
}

impl Ground {
    pub(crate) fn new() -> Ground {
        Ground(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The binary, in this folder and with nothing of the caller's environment.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
        command
            .args(words)
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        self.run_with(&[], words)
    }

    pub(crate) fn run_with(&self, variables: &[(&str, &str)], words: &[&str]) -> Said {
        Said::of(&self.command(words).envs(variables.iter().copied()).output().unwrap())
    }

    /// A SQLite store in which one job has died.
    pub(crate) fn store_with_a_dead_job(&self, name: &str) -> String {
        #[derive(Serialize, Deserialize)]
        struct Doomed;
        impl Payload for Doomed {
            const KIND: &'static str = "doomed";
        }
        async fn fail(_: Attempt<Doomed>) -> Result<(), Failure> {
            Err(Failure::permanent("no such customer"))
        }
        let path = self.path(name);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine =
                Engine::builder(SqliteStore::open(&path).await.unwrap()).handle(fail).build().unwrap();
            let mut events = engine.events();
            engine.enqueue(Doomed).await.unwrap();
            let died =
                async { while !matches!(events.recv().await.unwrap().what, Happening::Dead { .. }) {} };
            engine.run(died).await.unwrap();
        });
        format!("sqlite:{}", path.display())
    }

    /// A server that is ready.
    pub(crate) fn serve(&self, store: &str, more: &[&str]) -> Serving {
        self.serve_at("127.0.0.1:0", store, more)
    }

    /// The same at this address.
    pub(crate) fn serve_at(&self, address: &str, store: &str, more: &[&str]) -> Serving {
        let mut words = vec!["serve", "--listen", address, "--log-format", "json", "--store", store];
        words.extend(more);
        let mut child = self.command(&words).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = log.next().expect("the server says its URL before it ends").unwrap();
            if let Some((before, rest)) = line.split_once("://127.0.0.1:") {
                let scheme = if before.ends_with("https") { "https" } else { "http" };
                let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                break format!("{scheme}://127.0.0.1:{port}");
            }
        };
        // So that it never waits for somebody to read its log.
        std::thread::spawn(move || log.for_each(drop));
        Serving { child, url }
    }
}

/// A server that ends with its test.
pub(crate) struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// As an operator has it read its certificates again.
    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// As an operator stops it.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have been stopped already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What two runs have in common.
pub(crate) fn without_ids_and_times(value: &Value) -> Value {
    match value {
        Value::String(text) if text.parse::<JobId>().is_ok() => "ID".into(),
        Value::String(text) if text.parse::<Timestamp>().is_ok() => "TIME".into(),
        Value::Array(values) => values.iter().map(without_ids_and_times).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| match name.as_str() {
                "in" | "summary" => (name.clone(), "SPAN".into()),
                _ => (name.clone(), without_ids_and_times(value)),
            });
            Value::Object(fields.collect())
        }
        _ => value.clone(),
    }
}
