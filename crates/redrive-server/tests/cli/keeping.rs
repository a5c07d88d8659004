//! Copies, what comes back of them, holding, correcting, and the schema.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive::{Engine, Filter, Json, NewJob, Page, SqliteStore, StateName};

use crate::ground::{Ground, Said};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// One copy while others enqueue, and what is in it.
fn copy_under_load(ground: &Ground, round: usize) {
    let (store, copy) = (format!("live{round}.db"), format!("copy{round}.db"));
    block_on(async {
        let engine = Engine::builder(SqliteStore::open(ground.path(&store)).await.unwrap()).produce_any();
        let engine = engine.build().unwrap();
        let job = |n: u64| NewJob::of_kind("mail", Json::of(&n).unwrap());
        let mut before = Vec::new();
        for n in 0..200 {
            before.push(engine.enqueue(job(n)).await.unwrap().id);
        }
        let over = AtomicBool::new(false);
        let load = async {
            let mut n = 200;
            while !over.load(Ordering::SeqCst) {
                let jobs: Vec<NewJob> = (n..n + 50).map(job).collect();
                engine.enqueue_all(jobs).await.unwrap();
                n += 50;
            }
            n
        };
        let copied = async {
            let (from, to) = (format!("sqlite:{store}"), copy.clone());
            let mut command = ground.command(&["backup", &to, "--store", &from]);
            let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            over.store(true, Ordering::SeqCst);
            output
        };
        let (enqueued, output) = tokio::join!(load, copied);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(enqueued > 200, "there was no load");

        let back = format!("back{round}.db");
        let to = format!("sqlite:{back}");
        ground.run(&["restore", &copy, "--store", &to]).good();
        let restored = Engine::builder(SqliteStore::open(ground.path(&back)).await.unwrap()).produce_any();
        let restored = restored.build().unwrap();
        for id in before {
            assert!(restored.get(id).await.unwrap().is_some(), "{id} was acknowledged before the copy began");
        }
        assert!(restored.is_held().await.unwrap());
        let waiting = restored.list(&Filter::state(StateName::Waiting), Page::default()).await.unwrap();
        assert!(!waiting.jobs.is_empty());
        restored.drain_due().await.unwrap();
        let after = restored.counts().await.unwrap();
        assert!(after.iter().all(|queue| queue.running == 0 && queue.totals.succeeded == 0));
    });
}

#[test]
fn a_copy_made_under_load_holds_everything_that_was_acknowledged_and_starts_held() {
    let ground = Ground::new();
    for round in 0..3 {
        copy_under_load(&ground, round);
    }
    let mode = fs::metadata(ground.path("copy0.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "payloads are in it");
}

#[test]
fn nothing_is_overwritten_and_nothing_else_is_taken_for_a_copy() {
    let ground = Ground::new();
    let store = ground.store_with_a_dead_job("jobs.db");
    ground.run(&["backup", "copy.db", "--store", &store]).good();
    let again = ground.run(&["backup", "copy.db", "--store", &store]);
    assert_eq!(again.code, Some(4), "{}", again.err);
    let over = ground.run(&["restore", "copy.db", "--store", &store]);
    assert_eq!(over.code, Some(4), "{}", over.err);
    fs::write(ground.path("letter.txt"), "dear reader").unwrap();
    let letter = ground.run(&["restore", "letter.txt", "--store", "sqlite:new.db"]);
    assert_ne!(letter.code, Some(0));
    assert!(!ground.path("new.db").exists() && !ground.path("new.db.part").exists());
    let postgres = ground.run(&["backup", "copy2.db", "--store", "postgres://nobody@127.0.0.1/x"]);
    assert!(postgres.code == Some(1) && postgres.err.contains("pg_dump"), "{}", postgres.err);
}

#[test]
fn a_store_that_is_put_out_of_the_way_leaves_room_for_its_copy() {
    let ground = Ground::new();
    let store = ground.store_with_a_dead_job("jobs.db");
    ground.run(&["backup", "copy", "--store", &store]).good();
    ground.run(&["migrate", "--check", "--store", &store]).good();
    ground.run(&["doctor", "--store", &store]);
    fs::create_dir(ground.path("newer")).unwrap();
    for name in ["jobs.db", "jobs.db.lock"] {
        fs::rename(ground.path(name), ground.path("newer").join(name)).unwrap();
    }
    ground.run(&["restore", "copy", "--store", &store]).good();
    assert!(ground.run(&["stats", "--store", &store, "--json"]).json()["held"] == true);
}

#[test]
fn commands_that_meet_on_one_file_take_turns() {
    let ground = Ground::new();
    ground.run(&["enqueue", "mail", "--store", "sqlite:jobs.db"]).good();
    let enqueue = || ground.command(&["enqueue", "mail", "--store", "sqlite:jobs.db"]).output().unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(enqueue)).collect();
        for one in all {
            Said::of(&one.join().unwrap()).good();
        }
    });
    assert_eq!(ground.run(&["stats", "--store", "sqlite:jobs.db", "--json"]).json()["waiting"], 7);
}

#[test]
fn whoever_only_looks_makes_no_store_of_another_database() {
    let ground = Ground::new();
    let other = rusqlite::Connection::open(ground.path("theirs.db")).unwrap();
    other.execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    drop(other);
    let before = fs::read(ground.path("theirs.db")).unwrap();
    for words in [["jobs", "list"], ["tokens", "list"]] {
        let said = ground.run(&[&words[..], &["--store", "sqlite:theirs.db"]].concat());
        assert!(said.code == Some(69) && said.err.contains("no tables of Redrive's"), "{}", said.err);
    }
    assert_eq!(fs::read(ground.path("theirs.db")).unwrap(), before);
    assert_eq!(ground.run(&["tokens", "list", "--store", "sqlite:none.db"]).code, Some(69));
    assert!(!ground.path("none.db").exists());
}

#[test]
fn a_restored_store_runs_nothing_on_a_server_until_it_is_let_go_on() {
    let ground = Ground::new();
    let store = format!("sqlite:{}", ground.path("jobs.db").display());
    let id = ground.run(&["enqueue", "mail", "--payload", "1", "--store", &store]).good();
    ground.run(&["backup", "copy.db", "--store", &store]).good();
    let back = format!("sqlite:{}", ground.path("back.db").display());
    ground.run(&["restore", "copy.db", "--store", &back]).good();
    assert!(says_that_it_is_held(&ground, &back));
    let server = ground.serve(&back, &[]);
    let place = ["--server", server.url()];
    let stats = |place: &[&str]| ground.run(&[&["stats", "--json"], place].concat()).json();
    assert_eq!(stats(&place)["held"], true);
    ground.run(&[&["resume"], &place[..]].concat()).good();
    assert_eq!(stats(&place)["held"], false);
    ground.run(&[&["hold"], &place[..]].concat()).good();
    assert_eq!(stats(&place)["held"], true);
    assert!(ground.run(&[&["jobs", "show", id.trim()], &place[..]].concat()).good().contains("mail"));
    server.stop();
    assert!(!says_that_it_is_held(&ground, &store));
}

/// Whether a server says so before it serves.
fn says_that_it_is_held(ground: &Ground, store: &str) -> bool {
    let words = ["serve", "--listen", "127.0.0.1:0", "--store", store];
    let mut server = ground.command(&words).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let before: Vec<String> = log.take_while(|line| !line.contains("Serving")).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    before.iter().any(|line| line.contains("Held: nothing runs until `redrive resume`"))
}

#[test]
fn a_job_is_corrected_from_the_command_line_and_in_an_editor() {
    let ground = Ground::new();
    let store = format!("sqlite:{}", ground.path("jobs.db").display());
    let place = ["--store", &store];
    let id = ground
        .run(&[&["enqueue", "mail", "--payload", "{\"to\":\"a\"}", "--delay", "1h"], &place[..]].concat())
        .good();
    let id = id.trim();
    let show = || ground.run(&[&["jobs", "show", id, "--json"], &place[..]].concat()).json();
    ground
        .run(&[&["jobs", "edit", id, "--payload", "{\"to\":\"b\"}", "--label", "x=1"], &place[..]].concat())
        .good();
    assert_eq!((&show()["payload"]["to"], &show()["labels"]["x"]), (&"b".into(), &"1".into()));
    let editor = ground.path("editor");
    fs::write(&editor, "#!/bin/sh\nsed -i 's/\"b\"/\"c\"/' \"$1\"\n").unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let variables = [("EDITOR", editor.to_str().unwrap()), ("PATH", "/usr/bin:/bin")];
    ground.run_with(&variables, &[&["jobs", "edit", id], &place[..]].concat()).good();
    let job = show();
    assert_eq!((&job["payload"]["to"], job["edits"].as_array().unwrap().len()), (&"c".into(), 2));
    assert_eq!(job["edits"][1]["payload"]["to"], "b");
    assert!(job["edits"][1].get("labels").is_none(), "only what was changed is sent: {job}");
    let nothing = ground.run(&[&["jobs", "edit", id], &place[..]].concat());
    assert_eq!(nothing.code, Some(2), "{}", nothing.err);
}

#[test]
fn a_schema_is_checked_and_brought_up_to_date() {
    let ground = Ground::new();
    let store = ground.store_with_a_dead_job("jobs.db");
    let check = ["migrate", "--check", "--store", &store];
    ground.run(&check).good();
    ground.run(&["migrate", "--store", &store]).good();
    fs::write(ground.path("empty.db"), "").unwrap();
    let empty = format!("sqlite:{}", ground.path("empty.db").display());
    let behind = ground.run(&["migrate", "--check", "--store", &empty]);
    assert!(behind.code == Some(1) && behind.err.contains("no schema yet"), "{}", behind.err);
    ground.run(&["migrate", "--store", &empty]).good();
    ground.run(&["migrate", "--check", "--store", &empty]).good();
    assert_eq!(ground.run(&["migrate", "--store", "sqlite:nowhere.db"]).code, Some(69));
}
