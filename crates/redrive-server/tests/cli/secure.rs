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

#[test]
fn a_server_whose_only_token_was_revoked_does_not_start_open_and_says_the_way_back() {
    let ground = Ground::new();
    let store = "sqlite:jobs.db";
    let token_file = ["--token-file", "admin.token"];
    let serving = ground.serve(store, &token_file);
    let token = fs::read_to_string(ground.path("admin.token")).unwrap();
    let key_id = token.split('_').nth(1).unwrap().to_owned();
    let there = ["--server", serving.url(), "--token-file", "admin.token"];
    ground.run(&[&["tokens", "revoke", "--yes", &key_id][..], &there].concat()).good();
    serving.stop();

    let start = ["serve", "--listen", "127.0.0.1:0", "--store", store];
    let said = ground.run(&[&start[..], &token_file].concat());
    assert_eq!(said.code, Some(78), "{}{}", said.out, said.err);
    assert!(said.err.contains("admin.token holds a token that was revoked"), "{}", said.err);
    assert!(said.err.contains("remove it to have a new one made"), "{}", said.err);
    let said = ground.run(&start);
    assert_eq!(said.code, Some(78), "{}{}", said.out, said.err);
    assert!(said.err.contains("every token of sqlite:jobs.db was revoked or has expired"), "{}", said.err);

    // As the hint says.
    assert!(
        said.err.contains("redrive tokens create --scope admin --store sqlite:jobs.db NAME"),
        "{}",
        said.err
    );
    let made = ground.run(&["tokens", "create", "--scope", "admin", "--store", store, "me"]).good();
    fs::write(ground.path("mine.token"), made).unwrap();
    let serving = ground.serve(store, &[]);
    let stats = ["stats", "--server", serving.url()];
    assert!(ground.run(&stats).err.contains("this needs a token"));
    ground.run(&[&stats[..], &["--token-file", "mine.token"]].concat()).good();
    serving.stop();
}

#[test]
fn a_token_that_is_good_for_no_time_is_not_made() {
    let ground = Ground::new();
    let words =
        ["tokens", "create", "shop", "--scope", "enqueue", "--store", "sqlite:jobs.db", "--expires-in"];
    let said = ground.run(&[&words[..], &["0s"]].concat());
    assert_ne!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(said.out.is_empty() && said.err.contains("such as 90d"), "{}{}", said.out, said.err);
    ground.run(&[&words[..], &["1s"]].concat()).good();
}
