//! `redrive bench` as a user runs it: the real binary, with few jobs. What is fast is not asserted here; what it says is.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redrive"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("the binary starts")
}

/// The results of a run that prints exactly one JSON object.
fn results(arguments: &[&str]) -> Vec<Value> {
    let output = bench(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("exactly one JSON value is printed");
    printed["results"].as_array().expect("results is a list").clone()
}

fn names(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["name"].as_str().expect("each has a name")).collect()
}

#[test]
fn throughput_is_reported_beside_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/bench.db", folder.path().display());
    let only = ["--only", "enqueue_one", "--only", "enqueue_64", "--only", "enqueue_bulk", "--only", "drain"];
    let mut arguments = vec!["--store", &store, "--jobs", "500", "--rounds", "1", "--json"];
    arguments.extend(only);
    let results = results(&arguments);
    assert_eq!(names(&results), ["enqueue_one", "enqueue_64", "enqueue_bulk", "drain"]);
    for result in &results {
        for value in ["rate", "limit_rate", "ratio"] {
            assert!(result[value].as_f64().unwrap() > 0.0, "{value} of {result}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[tokio::test]
async fn on_postgres_throughput_is_reported_beside_its_limit_for_several_processes() {
    let database = redrive_testbed::database().await;
    let only = ["enqueue_64", "enqueue_bulk", "drain", "drain_2", "retry_path", "drain_1m", "lateness"];
    let mut arguments =
        vec!["--store", database.url(), "--jobs", "200", "--waiting", "500", "--rounds", "1", "--json"];
    only.iter().for_each(|name| arguments.extend(["--only", name]));
    let results = results(&arguments);
    assert_eq!(results.len(), only.len());
    for result in &results {
        if result["name"] == "lateness" {
            assert_eq!(result["early"], 0);
        } else {
            assert!(result["ratio"].as_f64().unwrap() > 0.0, "{result}");
        }
    }
}

#[test]
fn several_processes_on_one_file_are_refused() {
    let output = bench(&["--only", "drain_2", "--jobs", "1"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("only PostgreSQL is shared by processes"), "{error}");
}

#[test]
fn no_job_starts_before_it_is_due() {
    let results = results(&["--jobs", "30", "--only", "lateness", "--json"]);
    assert_eq!(names(&results), ["lateness"]);
    let lateness = &results[0];
    assert_eq!(lateness["early"], 0);
    let [p50, p99, max] = ["p50_ms", "p99_ms", "max_ms"].map(|name| lateness[name].as_f64().unwrap());
    assert!(0.0 <= p50 && p50 <= p99 && p99 <= max, "{lateness}");
}

#[test]
fn the_retry_path_counts_attempts_and_latency_is_never_negative() {
    let results =
        results(&["--jobs", "50", "--rounds", "1", "--only", "retry_path", "--only", "latency", "--json"]);
    assert_eq!(names(&results), ["latency", "retry_path"]);
    assert!(results[0]["p50_ms"].as_f64().unwrap() > 0.0);
    assert!(results[1]["ratio"].as_f64().unwrap() > 0.0);
}

#[test]
fn jobs_of_next_month_are_left_alone_by_a_drain() {
    let arguments =
        ["--jobs", "50", "--waiting", "200", "--rounds", "1", "--only", "drain_1m", "--only", "memory"];
    let results = results(&[&arguments[..], &["--json"]].concat());
    assert_eq!(names(&results), ["memory", "drain_1m"]);
    assert!(results[1]["ratio"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        assert!(results[0]["rss_peak_mb"].as_f64().unwrap() > 1.0);
    }
}

#[test]
fn the_server_is_measured_as_a_process_that_takes_and_sends_every_job() {
    let results = results(&["--http", "--jobs", "200", "--rounds", "1", "--json"]);
    assert_eq!(names(&results), ["http_enqueue", "http_execute", "http_execute_256"]);
    for result in &results {
        assert!(result["ratio"].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn without_json_people_get_a_table() {
    let output = bench(&["--jobs", "20", "--rounds", "1", "--only", "enqueue_bulk"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("measure "), "{table}");
    assert!(table.contains("\nenqueue_bulk "), "{table}");
}

#[test]
fn a_typo_in_only_names_what_can_be_measured() {
    let output = bench(&["--only", "drian"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    for name in ["enqueue_one", "enqueue_64", "enqueue_bulk", "drain", "latency", "lateness", "retry_path"] {
        assert!(error.contains(name), "{error}");
    }
    assert!(error.contains("idle_1m") && error.contains("drain_1m"), "{error}");
}

#[test]
fn a_store_that_cannot_be_read_is_answered_with_what_to_write() {
    for wrong in ["mysql://somewhere", "/tmp/bench.db", "sqlite:"] {
        let output = bench(&["--store", wrong]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("write sqlite: and a path, for example sqlite:/tmp/bench.db"), "{error}");
    }
}

#[test]
fn a_folder_that_is_not_there_fails_and_says_what_to_do() {
    let output = bench(&["--store", "sqlite:/nowhere/at/all/bench.db", "--jobs", "1"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("choose another place with --store"), "{error}");
}

#[test]
fn a_page_of_many_jobs_is_reported_beside_the_same_page_of_few() {
    let results = results(&["--waiting", "1500", "--only", "list", "--json"]);
    assert_eq!(names(&results), ["list"]);
    assert!(results[0]["ratio"].as_f64().unwrap() > 0.0, "{}", results[0]);
    for page in ["plain", "deep", "kind_dead", "queue", "destination", "label", "group", "rare"] {
        let [few, many] = [0, 1].map(|side| results[0][page][side].as_f64().unwrap());
        assert!(few > 0.0 && many > 0.0, "{page} of {}", results[0]);
    }
}
