//! A real file server on loopback with ranges and entity tags, which misbehaves as it is told and counts what it sends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::target::{Asked, read_request};

/// What is written at once.
const PIECE: usize = 64 << 10;

/// How a request is answered.
#[derive(Clone, Debug)]
pub(crate) enum How {
    /// As it should be.
    Well,
    /// The connection is closed after so many bytes of the body.
    Cut(u64),
    /// Nothing more comes after so many bytes.
    Stall(u64),
    /// With this status and these header lines, and without the file.
    Say(u16, &'static str),
    /// With this status and these header lines in front of all of the file.
    Lie(u16, String),
}

/// One answer, as far as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) path: String,
    pub(crate) status: u16,
    /// From which byte of the file.
    pub(crate) from: u64,
    /// How many bytes of it.
    pub(crate) bytes: u64,
}

#[derive(Clone)]
struct File {
    bytes: Arc<Vec<u8>>,
    tag: String,
}

type Script = Arc<dyn Fn(usize, &Asked) -> How + Send + Sync>;

struct Inner {
    files: Mutex<BTreeMap<String, File>>,
    sent: Mutex<Vec<Sent>>,
    script: Script,
    pause: Duration,
    total: watch::Sender<u64>,
    open: watch::Sender<(usize, usize)>,
}

/// The server. It ends with the test.
#[derive(Clone)]
pub(crate) struct Flaky {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

/// Bytes that are the same whenever they are asked for.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl Flaky {
    /// Answers the n-th request, counted from 0, as `script` says.
    pub(crate) async fn start(script: impl Fn(usize, &Asked) -> How + Send + Sync + 'static) -> Flaky {
        Flaky::paced(Duration::ZERO, script).await
    }

    /// With a pause between two pieces.
    pub(crate) async fn paced(
        pause: Duration,
        script: impl Fn(usize, &Asked) -> How + Send + Sync + 'static,
    ) -> Flaky {
        let socket = TcpSocket::new_v4().unwrap();
        // What lies in the kernel counts as sent: little may.
        socket.set_send_buffer_size(64 << 10).unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            files: Mutex::default(),
            sent: Mutex::default(),
            script: Arc::new(script),
            pause,
            total: watch::Sender::new(0),
            open: watch::Sender::new((0, 0)),
        });
        let server = Flaky { address, inner: inner.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let inner = inner.clone();
                tokio::spawn(async move { inner.serve(stream).await });
            }
        });
        server
    }

    /// Puts a file in, or another in its place.
    pub(crate) fn put(&self, path: &str, bytes: Vec<u8>, tag: &str) {
        let file = File { bytes: Arc::new(bytes), tag: tag.to_owned() };
        self.inner.files.lock().unwrap().insert(path.to_owned(), file);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.inner.sent.lock().unwrap().clone()
    }

    /// The answers for one file, in their order.
    pub(crate) fn sent_of(&self, path: &str) -> Vec<Sent> {
        self.sent().into_iter().filter(|sent| sent.path == path).collect()
    }

    /// The most answers that were under way at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.inner.open.borrow().1
    }

    /// Returns when so many bytes have been sent in all.
    pub(crate) async fn wait_for_bytes(&self, bytes: u64) {
        self.inner.total.subscribe().wait_for(|total| *total >= bytes).await.unwrap();
    }

    pub(crate) fn total(&self) -> u64 {
        *self.inner.total.borrow()
    }
}

impl Inner {
    async fn serve(&self, mut stream: TcpStream) {
        while let Some(asked) = read_request(&mut stream).await {
            self.open.send_modify(|(now, most)| {
                *now += 1;
                *most = (*most).max(*now);
            });
            let goes_on = self.answer(&mut stream, &asked).await;
            self.open.send_modify(|(now, _)| *now -= 1);
            if !goes_on {
                return;
            }
        }
    }

    /// Whether the connection goes on.
    async fn answer(&self, stream: &mut TcpStream, asked: &Asked) -> bool {
        let path = asked.line.split(' ').nth(1).unwrap().to_owned();
        let file = self.files.lock().unwrap().get(&path).cloned();
        let n = {
            let mut sent = self.sent.lock().unwrap();
            sent.push(Sent { path, status: 0, from: 0, bytes: 0 });
            sent.len() - 1
        };
        let how = (self.script)(n, asked);
        let (Some(file), false) = (file, matches!(how, How::Say(..))) else {
            let (status, headers) =
                if let How::Say(status, headers) = how { (status, headers) } else { (404, "") };
            self.sent.lock().unwrap()[n].status = status;
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n{headers}\r\n");
            return stream.write_all(head.as_bytes()).await.is_ok();
        };
        let (status, from, head) = match &how {
            How::Lie(status, headers) => (*status, 0, format!("HTTP/1.1 {status} X\r\n{headers}\r\n")),
            _ => honest_head(&file, asked),
        };
        {
            let mut sent = self.sent.lock().unwrap();
            (sent[n].status, sent[n].from) = (status, from);
        }
        let length = file.bytes.len() as u64;
        let end = match how {
            How::Cut(bytes) | How::Stall(bytes) => (from + bytes).min(length),
            _ if status == 416 => from,
            _ => length,
        };
        let is_sent = stream.write_all(head.as_bytes()).await.is_ok()
            && self.send(stream, n, &file.bytes[from as usize..end as usize]).await;
        match how {
            How::Well if is_sent => true,
            How::Stall(_) if is_sent => {
                // Until the other side has had enough.
                while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                false
            }
            _ => false,
        }
    }

    async fn send(&self, stream: &mut TcpStream, n: usize, bytes: &[u8]) -> bool {
        for piece in bytes.chunks(PIECE) {
            if stream.write_all(piece).await.is_err() {
                return false;
            }
            self.sent.lock().unwrap()[n].bytes += piece.len() as u64;
            self.total.send_modify(|total| *total += piece.len() as u64);
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        true
    }
}

/// Status, first byte, and the head of what a good server answers.
fn honest_head(file: &File, asked: &Asked) -> (u16, u64, String) {
    let length = file.bytes.len() as u64;
    let is_same = asked.headers.get("if-range").is_none_or(|tag| *tag == file.tag);
    let range = asked.headers.get("range").filter(|_| is_same);
    let from =
        range.map(|range| range.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap());
    let tag = &file.tag;
    match from {
        None => (200, 0, format!("HTTP/1.1 200 OK\r\netag: {tag}\r\ncontent-length: {length}\r\n\r\n")),
        Some(from) if from >= length => (
            416,
            length,
            format!("HTTP/1.1 416 X\r\ncontent-range: bytes */{length}\r\ncontent-length: 0\r\n\r\n"),
        ),
        Some(from) => {
            let (last, left) = (length - 1, length - from);
            let range = format!("content-range: bytes {from}-{last}/{length}\r\ncontent-length: {left}");
            (206, from, format!("HTTP/1.1 206 X\r\netag: {tag}\r\n{range}\r\n\r\n"))
        }
    }
}

/// How many bytes were sent that had been sent before, after each break of one file.
pub(crate) fn sent_again(answers: &[Sent]) -> Vec<u64> {
    let of_file: Vec<&Sent> = answers.iter().filter(|sent| matches!(sent.status, 200 | 206)).collect();
    of_file.windows(2).map(|two| (two[0].from + two[0].bytes).saturating_sub(two[1].from)).collect()
}
