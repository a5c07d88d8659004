//! What is said of policies that are wrong: in files of either language, and by name.

use std::fs;

use super::ground::Ground;

/// What a check says of a file with this in it.
fn mistakes(ground: &Ground, file: &str, text: &str) -> String {
    fs::write(ground.path(file), text).unwrap();
    let said = ground.run(&["policy", "check", file]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{text}: {}", said.err);
    assert!(!said.err.contains("redrive policy check"), "that has just been done: {}", said.err);
    said.err
}

#[test]
fn a_check_says_each_mistake_of_a_toml_file_with_its_place_and_in_its_words() {
    let ground = Ground::new();
    assert_eq!(
        mistakes(&ground, "b2.toml", "max_atempts = 4\n"),
        "error: the policy is not understood\n\
         b2.toml:1:1: max_atempts is not known here; did you mean max_attempts?\n"
    );
    let several =
        "timeout = 90\ngive_up_after = \"90\"\n[backoff]\nkind = \"fixd\"\ndelay = \"1s\"\n[jitter]\n";
    assert_eq!(
        mistakes(&ground, "several.toml", several),
        "error: the policy is not understood\n\
         several.toml:2:1: give_up_after: \"90\" has no unit; write \"90s\" for seconds (units: ms, s, m, h, d, w)\n\
         several.toml:4:1: backoff.kind: \"fixd\" is not known; did you mean \"fixed\"?\n"
    );
    let said = mistakes(&ground, "bad.toml", "timeout = \nmax_atempts = 4\n");
    assert!(said.contains("\nbad.toml:1:11: this is not TOML: "), "{said}");
    assert!(said.contains("\nbad.toml:2:1: max_atempts is not known here"), "{said}");
}

#[test]
fn a_check_says_each_mistake_of_a_json_file_once() {
    let ground = Ground::new();
    for (text, mistake) in [
        (r#"{"maxAtempts":4}"#, "maxAtempts is not known here; did you mean maxAttempts?"),
        (
            r#"{"backoff":{"kind":"fixd","delay":"1s"}}"#,
            "backoff.kind: \"fixd\" is not known; did you mean \"fixed\"?",
        ),
        (
            r#"{"backoff":{"kind":"fixed","delay":"-1s"}}"#,
            "backoff.delay: \"-1s\" is negative; write a duration of 0s or more, such as \"90s\"",
        ),
    ] {
        let said = mistakes(&ground, "p.json", text);
        assert_eq!(said, format!("error: the policy is not understood: {mistake} (RETRY_INVALID)\n"));
    }
    let said = mistakes(&ground, "p.json", r#"{"preset":"medai","maxAttempts":"x"}"#);
    assert!(said.contains("did you mean \"media\"?; maxAttempts: \"x\" is not a count"), "{said}");
}

#[test]
fn a_preview_reads_what_a_check_calls_good() {
    let ground = Ground::new();
    let text = "max_attempts = 3\njitter = \"none\"\n[backoff]\nkind = \"fixed\"\ndelay = \"3s\"\n";
    fs::write(ground.path("p.toml"), text).unwrap();
    assert_eq!(ground.run(&["policy", "check", "p.toml"]).good(), "good: 2 retries within 6s\n");
    let said = ground.run(&["policy", "preview", "@p.toml"]).good();
    assert!(said.ends_with("\n2 retries within 6s\n"), "{said}");
    ground.run(&["enqueue", "mail", "--delay", "1h", "--policy", "@p.toml"]).good();
    fs::write(ground.path("p.toml"), "max_atempts = 3\n").unwrap();
    let said = ground.run(&["policy", "preview", "@p.toml"]);
    assert!(said.err.contains("\np.toml:1:1: max_atempts is not known here; did you mean "), "{}", said.err);
}

#[test]
fn a_misspelt_name_is_held_against_the_configured_ones_too() {
    let ground = Ground::new();
    fs::write(ground.path("redrive.toml"), "[policies.patient]\nmax_attempts = 2\n").unwrap();
    let enqueue = ["enqueue", "mail", "--delay", "1h", "--policy"];
    for words in [&["policy", "preview"][..], &["explain-classify", "unavailable", "--policy"], &enqueue] {
        let said = ground.run(&[words, &["patent"]].concat());
        assert_eq!(said.code, Some(1), "{words:?}");
        assert!(
            said.err.contains("there is no preset \"patent\"; did you mean \"patient\"?"),
            "{}",
            said.err
        );
        let said = ground.run(&[words, &["x"]].concat()).err;
        assert!(said.contains("write one of media, ") && said.contains(", patient"), "{said}");
        assert!(said.contains("hint: see all of them with: redrive policy presets"), "{said}");
        ground.run(&[words, &["patient"]].concat()).good();
    }
}
