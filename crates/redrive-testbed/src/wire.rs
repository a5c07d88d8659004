//! One connection through the proxy: enough of PostgreSQL's protocol to know which statement an answer belongs to.
//!
//! Requests travel in groups that end with a `Sync` (or are a single `Query`), and the server answers each group with
//! messages that end with `ReadyForQuery`. So the nth group and the nth `ReadyForQuery` belong together, however many
//! groups are under way.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};

use crate::address::Address;
use crate::proxy::{Cut, Shared};

/// Small, so that a server that nobody listens to soon cannot send on.
const RECEIVE_BYTES: u32 = 64 * 1024;
const CHUNK_BYTES: usize = 16 * 1024;

/// Asks for TLS and for GSSAPI encryption: codes in place of a protocol version.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// More than any client says at the start.
const STARTUP_BYTES_MAX: usize = 10_000;

/// Why a connection ended.
pub(crate) enum End {
    /// A rule wanted it.
    Cut,
    /// Either side closed it.
    Closed,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Closed
    }
}

/// Forwards both ways until the end; returns when both sockets are closed.
pub(crate) async fn serve(mut client: TcpStream, shared: &Shared) -> End {
    let started = async {
        client.set_nodelay(true)?;
        let startup = startup(&mut client).await?;
        let mut server = dial(&shared.upstream()).await?;
        server.write_all(&startup).await?;
        Ok::<_, io::Error>(server)
    };
    let Ok(mut server) = started.await else { return End::Closed };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let owed = Owed::default();
    owed.push(false); // the answer to the start-up, which no rule can mean
    let ended = tokio::select! {
        biased;
        ended = requests(from_client, to_server, shared, &owed) => ended,
        ended = replies(from_server, to_client, shared, &owed) => ended,
    };
    ended.err().unwrap_or(End::Closed)
}

/// The client's first message. Encryption is declined, as by a server without a certificate.
async fn startup(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        let length = client.read_u32().await?;
        let mut message = length.to_be_bytes().to_vec();
        message.resize((length as usize).clamp(8, STARTUP_BYTES_MAX), 0);
        client.read_exact(&mut message[4..]).await?;
        if !ENCRYPTION_REQUESTS.iter().any(|code| message[4..8] == code.to_be_bytes()) {
            return Ok(message);
        }
        client.write_all(b"N").await?;
    }
}

async fn dial(upstream: &Address) -> io::Result<TcpStream> {
    let mut found = tokio::net::lookup_host((upstream.host.as_str(), upstream.port)).await?;
    let address = found.find(|address| address.is_ipv4()).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn requests(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    shared: &Shared,
    owed: &Owed,
) -> Result<(), End> {
    let (mut messages, mut statements) = (Messages::default(), Statements::default());
    // A group is forwarded whole or not at all: a statement that is cut off leaves no half of it behind.
    let (mut group, mut ready) = (Vec::new(), Vec::new());
    let mut lose_reply = false;
    while messages.read(&mut client).await? {
        while let Some(message) = messages.next() {
            group.extend_from_slice(message);
            match statements.read(message).and_then(|text| shared.judge(&text)) {
                Some(Cut::Request) => {
                    server.write_all(&ready).await?;
                    return Err(End::Cut);
                }
                Some(Cut::Reply) => lose_reply = true,
                None => {}
            }
            if matches!(message[0], b'S' | b'Q' | b'F') {
                owed.push(std::mem::take(&mut lose_reply));
            }
            if !matches!(message[0], b'P' | b'B' | b'D' | b'E' | b'C') {
                ready.append(&mut group);
            }
        }
        server.write_all(&ready).await?;
        ready.clear();
    }
    Ok(())
}

async fn replies(
    mut server: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    shared: &Shared,
    owed: &Owed,
) -> Result<(), End> {
    let mut messages = Messages::default();
    let mut frozen = shared.frozen.subscribe();
    let (mut held, mut ready) = (Vec::new(), Vec::new());
    while messages.read(&mut server).await? {
        frozen.wait_for(|frozen| !frozen).await.map_err(|_| End::Closed)?;
        while let Some(message) = messages.next() {
            if !owed.is_next_lost() {
                ready.extend_from_slice(message);
                if message[0] == b'Z' {
                    owed.pop();
                }
                continue;
            }
            held.extend_from_slice(message);
            match message {
                [b'Z', .., b'I'] => {
                    client.write_all(&ready).await?;
                    return Err(End::Cut);
                }
                // A transaction is open: what shall get lost is the answer to its commit.
                [b'Z', ..] => {
                    ready.append(&mut held);
                    owed.postpone();
                }
                _ => {}
            }
        }
        client.write_all(&ready).await?;
        ready.clear();
    }
    Ok(())
}

/// The answers that the server still owes.
#[derive(Default)]
struct Owed(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    /// For each, whether it is to be lost.
    lost: VecDeque<bool>,
    /// Whether a loss waits for the next group to be sent.
    postponed: bool,
}

impl Owed {
    fn push(&self, lost: bool) {
        let mut answers = self.lock();
        let postponed = std::mem::take(&mut answers.postponed);
        answers.lost.push_back(lost || postponed);
    }

    fn pop(&self) {
        self.lock().lost.pop_front();
    }

    fn is_next_lost(&self) -> bool {
        self.lock().lost.front() == Some(&true)
    }

    fn postpone(&self) {
        let mut answers = self.lock();
        answers.lost.pop_front();
        match answers.lost.front_mut() {
            Some(next) => *next = true,
            None => answers.postponed = true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The texts behind the names that a client gave to its prepared statements and portals.
#[derive(Default)]
struct Statements {
    prepared: BTreeMap<Vec<u8>, String>,
    portals: BTreeMap<Vec<u8>, String>,
}

impl Statements {
    /// The text that this message has the server execute, if it does.
    fn read(&mut self, message: &[u8]) -> Option<String> {
        let mut fields = message[5..].split(|byte| *byte == 0);
        let (first, second) = (fields.next()?.to_vec(), fields.next().unwrap_or_default());
        match message[0] {
            b'P' => {
                self.prepared.insert(first, String::from_utf8_lossy(second).into_owned());
                None
            }
            b'B' => {
                let text = self.prepared.get(second).cloned().unwrap_or_default();
                self.portals.insert(first, text);
                None
            }
            b'E' => self.portals.get(&first).cloned(),
            b'Q' => Some(String::from_utf8_lossy(&first).into_owned()),
            _ => None,
        }
    }
}

/// Whole messages out of a stream of bytes: a type, the length of the rest, the rest.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    /// How many of them were given out.
    taken: usize,
}

impl Messages {
    /// Waits for more bytes; false at the end of the stream.
    async fn read(&mut self, from: &mut ReadHalf<'_>) -> io::Result<bool> {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        let mut chunk = [0; CHUNK_BYTES];
        let count = from.read(&mut chunk).await?;
        self.bytes.extend_from_slice(&chunk[..count]);
        Ok(count > 0)
    }

    fn next(&mut self) -> Option<&[u8]> {
        let rest = &self.bytes[self.taken..];
        let length = u32::from_be_bytes(*rest.get(1..)?.first_chunk()?) as usize;
        let message = rest.get(..length + 1)?;
        self.taken += message.len();
        Some(message)
    }
}
