//! A served process that speaks TLS, and a command line that knows whom to trust.

use std::fs;

use crate::authority::Authority;
use crate::ground::{Ground, Serving};

/// More looks than a process needs that was told to read its files again.
const LOOKS_MAX: usize = 1_000;

/// Gives the server a certificate of this authority, whose own is then in `ca.pem`.
fn certify(ground: &Ground, authority: &Authority) {
    let (cert, key) = authority.vouch_for("127.0.0.1");
    fs::write(ground.path("cert.pem"), cert).unwrap();
    fs::write(ground.path("key.pem"), key).unwrap();
    authority.write(&ground.path("ca.pem"));
}

fn serve(ground: &Ground, more: &str) -> Serving {
    let config = format!("[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n{more}");
    fs::write(ground.path("redrive.toml"), config).unwrap();
    ground.serve("sqlite:jobs.db", &[])
}

#[test]
fn a_command_asks_over_tls_whom_its_file_vouches_for_and_nobody_else() {
    let ground = Ground::new();
    certify(&ground, &Authority::new());
    let serving = serve(&ground, "");
    assert!(serving.url().starts_with("https://"), "{}", serving.url());
    let there = ["stats", "--server", serving.url()];
    let refused = ground.run(&there);
    assert_eq!(refused.code, Some(69), "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("no secure connection"), "{}", refused.err);
    ground.run(&[&there[..], &["--ca-file", "ca.pem"]].concat()).good();
    ground.run_with(&[("REDRIVE_CA_FILE", "ca.pem")], &there).good();
    // Found through the file that the server has left beside its store.
    ground.run(&["stats", "--store", "sqlite:jobs.db", "--ca-file", "ca.pem"]).good();
    let wrong = ground.run(&[&there[..], &["--ca-file", "redrive.toml"]].concat());
    assert_eq!(wrong.code, Some(2), "{}{}", wrong.out, wrong.err);
    assert!(wrong.err.contains("there is no certificate in redrive.toml"), "{}", wrong.err);
    serving.stop();
}

#[test]
fn a_server_that_is_hung_up_on_shows_its_new_certificate() {
    let ground = Ground::new();
    certify(&ground, &Authority::new());
    let serving = serve(&ground, "");
    let ask = |ca: &str| ground.run(&["stats", "--server", serving.url(), "--ca-file", ca]);
    ask("ca.pem").good();
    fs::rename(ground.path("ca.pem"), ground.path("old.pem")).unwrap();
    certify(&ground, &Authority::new());
    assert_ne!(ask("ca.pem").code, Some(0), "nobody has told it yet");
    serving.hang_up();
    let looks = (0..LOOKS_MAX).find(|_| ask("ca.pem").code == Some(0));
    assert!(looks.is_some(), "the new certificate is not shown");
    assert_ne!(ask("old.pem").code, Some(0));
    serving.stop();
}

#[test]
fn a_server_that_asks_for_certificates_is_reached_with_one() {
    let ground = Ground::new();
    certify(&ground, &Authority::new());
    let operators = Authority::new();
    operators.write(&ground.path("operators.pem"));
    let (cert, key) = operators.vouch_for("anna");
    fs::write(ground.path("anna.pem"), cert + &key).unwrap();
    let serving = serve(&ground, "client_ca = \"operators.pem\"\n");
    let there = ["stats", "--server", serving.url(), "--ca-file", "ca.pem"];
    assert_ne!(ground.run(&there).code, Some(0));
    ground.run(&[&there[..], &["--cert-file", "anna.pem"]].concat()).good();
    serving.stop();
}
