//! A real HTTP server on loopback that does as it is told, well or badly, and remembers what it was asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One request, as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its first line.
    pub(crate) line: String,
    /// Its headers, in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// Its body.
    pub(crate) body: Vec<u8>,
    /// When it arrived.
    pub(crate) at: std::time::Instant,
}

/// What to do with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Write this, and go on with the connection.
    Say(String),
    /// Write this, then close.
    SayAndClose(String),
    /// Write this, then reset the connection.
    SayAndReset(String),
    /// Write this, then nothing more, and keep the connection.
    SayAndHang(String),
    /// Write this, then one byte of this text every so often, for ever.
    SayAndDrip(String, &'static str, Duration),
    /// Write this, then this text again and again as fast as it is taken.
    SayAndFlood(String, &'static str),
}

/// An answer with a status and a body.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Reply {
    Reply::Say(format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()))
}

/// The server. It ends with the test.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: watch::Receiver<usize>,
    closed: watch::Receiver<usize>,
}

impl Target {
    /// Answers the n-th request, counted from 0, as `script` says.
    pub(crate) async fn start(script: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> Target {
        Target::listen("127.0.0.1:0", script).await
    }

    pub(crate) async fn listen(
        address: &str,
        script: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static,
    ) -> Target {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (count, connections) = watch::channel(0);
        let (ended, closed) = watch::channel(0);
        let (script, seen, ended) = (Arc::new(script), asked.clone(), Arc::new(ended));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let (script, seen, ended) = (script.clone(), seen.clone(), ended.clone());
                tokio::spawn(async move {
                    serve(stream, &seen, &*script).await;
                    ended.send_modify(|count| *count += 1);
                });
            }
        });
        Target { address, asked, connections, closed }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// Returns when so many connections have come.
    pub(crate) async fn wait_for_connections(&self, count: usize) {
        self.connections.clone().wait_for(|seen| *seen >= count).await.unwrap();
    }

    /// Returns when so many connections have ended.
    pub(crate) async fn wait_for_closed(&self, count: usize) {
        self.closed.clone().wait_for(|seen| *seen >= count).await.unwrap();
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Asked>>,
    script: &(dyn Fn(usize, &Asked) -> Reply + Send + Sync),
) {
    while let Some(asked) = read_request(&mut stream).await {
        let n = {
            let mut seen = seen.lock().unwrap();
            seen.push(asked.clone());
            seen.len() - 1
        };
        if !obey(&mut stream, script(n, &asked)).await {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn obey(stream: &mut TcpStream, reply: Reply) -> bool {
    match reply {
        Reply::Say(text) => stream.write_all(text.as_bytes()).await.is_ok(),
        Reply::SayAndClose(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            false
        }
        Reply::SayAndReset(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            // Closing with nothing to linger for is what sends a reset.
            stream.set_zero_linger().unwrap();
            false
        }
        Reply::SayAndHang(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            until_closed(stream).await
        }
        Reply::SayAndDrip(text, drop, every) => {
            let _ = stream.write_all(text.as_bytes()).await;
            for byte in drop.bytes().cycle() {
                tokio::time::sleep(every).await;
                if stream.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
            false
        }
        Reply::SayAndFlood(text, water) => {
            let _ = stream.write_all(text.as_bytes()).await;
            let water = water.repeat(1_000);
            while stream.write_all(water.as_bytes()).await.is_ok() {}
            false
        }
    }
}

async fn until_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {}
    false
}

pub(crate) async fn read_request(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers: BTreeMap<String, String> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = bytes[head_end + 4..].to_vec();
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { line, headers, body, at: std::time::Instant::now() })
}
