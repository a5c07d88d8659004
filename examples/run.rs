//! Every program runs to its end and finds what it expects, a hundred times as fast as written.

use std::process::Command;

fn runs(program: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_redrive-examples")).args([program, "--quick"]).output();
    let output = output.expect("it can be started");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
}

#[test]
fn the_article_feed_runs_to_its_end() {
    runs("article_feed");
}

#[test]
fn the_media_library_runs_to_its_end() {
    runs("media_library");
}

#[test]
fn the_application_that_goes_offline_runs_to_its_end() {
    runs("offline_sync");
}
