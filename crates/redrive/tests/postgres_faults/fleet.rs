//! Four instances as processes of their own, and what can be done to them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use redrive::Rng;

use crate::child;

/// How many instances there are at any time.
pub(crate) const INSTANCES: usize = 4;

pub(crate) struct Instance {
    pub(crate) name: String,
    process: Child,
    /// Since when it has been there without a break.
    pub(crate) since: Instant,
}

impl Instance {
    /// Starts one, and returns when it works.
    pub(crate) fn start(url: &str, name: String) -> Instance {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["the_child", "--exact", "--ignored", "--nocapture"])
            .env(child::URL, url)
            .env(child::NAME, &name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        while !line.trim_end().ends_with("working") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "{name} did not get to work");
        }
        // Whatever the harness still says must not block it.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Instance { name, process, since: Instant::now() }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn go_on(&mut self) {
        self.signal("-CONT");
        self.since = Instant::now();
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Which of them is next. Only who has been there for a full lease may end what others held, so one such is always
/// spared: without it nobody could say how soon work comes back.
pub(crate) fn victim(fleet: &[Instance], rng: &mut Rng) -> usize {
    let mut order: Vec<usize> = (0..fleet.len()).collect();
    order.sort_by_key(|n| fleet[*n].since);
    let is_steady = |n: &usize| fleet[*n].since.elapsed() > child::LEASE * 2;
    let spared = usize::from(!order.get(1).is_some_and(is_steady));
    order[spared + usize::try_from(rng.up_to((order.len() - spared - 1) as u64)).unwrap()]
}
