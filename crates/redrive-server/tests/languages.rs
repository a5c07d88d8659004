//! The guides, followed to the letter: the first job with curl, and a worker in PHP, Python and TypeScript, each run by
//! its own interpreter against a real server.
//!
//! A language whose interpreter cannot be had is left out with a note; `scripts/setup.sh` installs them.

#![expect(clippy::print_stdout, reason = "what was left out is said")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[expect(dead_code, reason = "what only other tests ask for")]
#[path = "support/client.rs"]
mod client;
#[expect(dead_code, reason = "what only other tests ask for")]
#[path = "support/ground.rs"]
mod ground;
#[path = "support/served.rs"]
mod served;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tokio::process::{Child, Command};

use crate::client::within;
use crate::ground::Ground;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether this program can be run here.
async fn is_there(program: &str) -> bool {
    let asked =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    let is_there = asked.is_ok_and(|status| status.success());
    if !is_there {
        println!("note: {program} is not installed, so this was not tested; scripts/setup.sh installs it");
    }
    is_there
}

fn start(ground: &Ground, program: &str, file: &Path) -> Child {
    Command::new(program)
        .arg(file)
        .env("REDRIVE_URL", format!("http://{}", ground.client.address))
        .env_remove("REDRIVE_TOKEN")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// A worker does what it can, and says of the rest why not.
async fn greets(program: &str, file: &Path) {
    let ground = Ground::new().await;
    let good = ground.enqueue(json!({ "kind": "greet", "payload": { "name": "Ada" } })).await;
    let bad = ground.enqueue(json!({ "kind": "greet", "payload": { "nome": "Ada" } })).await;
    let foreign = ground.enqueue(json!({ "kind": "resize" })).await;
    let _worker = start(&ground, program, file);
    let greeted = ground.get(&format!("/jobs/{good}?wait=1m")).await;
    assert_eq!(greeted["state"], "succeeded", "{greeted}");
    assert_eq!(greeted["output"], json!({ "greeting": "Hello, Ada" }));
    let refused = ground.get(&format!("/jobs/{bad}?wait=1m")).await;
    assert_eq!(refused["state"], "dead", "{refused}");
    assert_eq!(refused["attempts"][0]["failure"]["message"], "there is no name");
    // It goes on waiting for more.
    let later = ground.enqueue(json!({ "kind": "greet", "payload": { "name": "Bo" } })).await;
    assert_eq!(ground.get(&format!("/jobs/{later}?wait=1m")).await["output"]["greeting"], "Hello, Bo");
    assert_eq!(ground.state(&foreign).await, "waiting");
}

#[tokio::test]
async fn the_php_worker_runs_jobs() {
    if is_there("php").await {
        greets("php", &root().join("examples/workers/worker.php")).await;
    }
}

#[tokio::test]
async fn the_python_worker_runs_jobs() {
    if is_there("python3").await {
        greets("python3", &root().join("examples/workers/worker.py")).await;
    }
}

/// Compiled first, with every check on, as not every node reads TypeScript.
#[tokio::test]
async fn the_typescript_worker_runs_jobs() {
    if !is_there("node").await {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("typescript");
    let compiler = folder.join("node_modules/.bin/tsc");
    if !compiler.exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&folder);
        npm.args(["typescript@5.9", "@types/node@20"]).stdin(Stdio::null());
        if !within(npm.status()).await.is_ok_and(|status| status.success()) {
            println!("note: npm cannot install typescript, so this was not tested");
            return;
        }
    }
    std::fs::write(folder.join("package.json"), r#"{ "type": "module", "private": true }"#).unwrap();
    std::fs::copy(root().join("examples/workers/worker.ts"), folder.join("worker.ts")).unwrap();
    let mut tsc = Command::new(&compiler);
    tsc.args(["--strict", "--target", "es2022", "--module", "nodenext", "worker.ts"]).current_dir(&folder);
    let compiled = within(tsc.output()).await.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    greets("node", &folder.join("worker.js")).await;
}

#[test]
fn the_guide_shows_the_workers_as_they_are() {
    let guide = read("docs/guides/workers.md");
    for name in ["worker.php", "worker.py", "worker.ts"] {
        let code = read(&format!("examples/workers/{name}"));
        assert!(guide.contains(code.trim_end()), "docs/guides/workers.md shows another {name}");
        assert!(code.lines().count() <= 30, "{name} is no longer short");
        assert!(
            code.lines().all(|line| line.len() <= 120),
            "{name} is short only because its lines are long"
        );
    }
}

/// The blocks of a guide that a reader types, one after the other.
fn commands(guide: &str) -> String {
    let blocks = guide.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_first_job_goes_as_the_guide_says() {
    if !is_there("curl").await || !is_there("python3").await {
        return;
    }
    let ground = Ground::with("[egress]\nallow = [\"127.0.0.0/8\"]").await;
    // A port on which nothing listens yet.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let script = commands(&read("docs/guides/first-job.md"))
        .replace("127.0.0.1:7373", &ground.client.address.to_string())
        .replace("8000", &port);
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &script]).stdin(Stdio::null()).kill_on_drop(true);
    let output = within(bash.output()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for said in [r#""deduplicated":false"#, r#""next":["#, r#""state":"succeeded""#, r#""totalSucceeded":1"#]
    {
        assert!(text.contains(said), "the guide does not come to {said}: {text}");
    }
}
