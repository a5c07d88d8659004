//! No server outlives who started it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use redrive_testbed::connect;

/// The program beside a server; its command prints the server's URL and then waits for its own standard input.
fn beside_a_server(command: &str) -> Command {
    let mut cluster = Command::new(env!("CARGO_BIN_EXE_cluster"));
    cluster.args(["run", "sh", "-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
    cluster
}

#[tokio::test]
async fn a_server_goes_when_the_process_that_started_it_is_killed() {
    let mut process = beside_a_server("echo $REDRIVE_TEST_POSTGRES; read -r _").spawn().unwrap();
    let mut url = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let client = connect(url.trim()).await.expect("it is running");
    let folder: String = client.query_one("SHOW data_directory", &[]).await.unwrap().get(0);

    process.kill().unwrap();
    process.wait().unwrap();

    let gone = async {
        while connect(url.trim()).await.is_ok() || std::path::Path::new(&folder).exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .expect("the server and its folder go by themselves");
}

#[test]
fn the_program_exits_as_its_command_did() {
    let output = beside_a_server("exit 7").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
}
