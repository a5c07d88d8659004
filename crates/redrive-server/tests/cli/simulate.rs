//! `redrive simulate` as a user runs it.

use std::fs;

use crate::ground::Ground;

const SMALL: [&str; 9] =
    ["simulate", "--arrivals", "20/s", "--capacity", "60/s", "--outage", "20s", "--outage-at", "5s"];

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_does_not() {
    let ground = Ground::new();
    let ask = |seed: &str, page: &str| {
        let more = ["--json", "--seed", seed, "--html", page];
        ground.run(&[&SMALL[..], &more].concat()).good()
    };
    let (first, again, other) = (ask("7", "first.html"), ask("7", "again.html"), ask("8", "other.html"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    let page = |name: &str| fs::read_to_string(ground.path(name)).unwrap();
    assert_eq!(page("first.html"), page("again.html"));
    let page = page("first.html");
    assert_eq!(page.matches("<svg").count(), 5);
    assert!(page.contains("prefers-color-scheme: dark") && !page.contains("http"), "complete in itself");

    let answer: serde_json::Value = serde_json::from_str(&first).unwrap();
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!((policies.len(), policies[0]["name"].as_str()), (5, Some("redrive")));
    for policy in policies {
        let keys: Vec<&str> = policy.as_object().unwrap().keys().map(String::as_str).collect();
        let mut wanted =
            ["name", "attempts", "failures", "calls_during_outage", "dead", "peak_per_s", "drain_s"].to_vec();
        wanted.push("ideal_drain_s");
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
    }
    assert_eq!((policies[0]["dead"].as_u64(), policies[0]["ideal_drain_s"].as_f64()), (Some(0), Some(10.0)));
}

#[test]
fn a_scenario_is_read_from_a_file_and_what_is_wrong_in_it_is_named() {
    let ground = Ground::new();
    let file = ground.path("outage.toml");
    let name = file.to_str().unwrap();
    fs::write(
        &file,
        "arrivals = \"10/s\"\ncapacity = \"40/s\"\n[[outage]]\nbegin = \"5s\"\nlength = \"10s\"\n",
    )
    .unwrap();
    let said = ground.run(&["simulate", "--scenario", name]).good();
    assert!(said.contains("redrive") && said.contains('▒') && said.contains("River's formula"), "{said}");
    fs::write(&file, "arrivals = \"10/s\"\nspeed = 3\n").unwrap();
    let said = ground.run(&["simulate", "--scenario", name]);
    assert_eq!((said.code, said.err.contains("speed")), (Some(2), true), "{}", said.err);
    let said = ground.run(&["simulate", "--preset", "fed"]);
    assert_eq!((said.code, said.err.contains("there is no preset")), (Some(2), true), "{}", said.err);
}
