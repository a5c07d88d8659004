//! Where connections are to come in.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// How many may stand in line to be let in, if the system allows so many. Whoever finds the line full asks again a second
/// later.
const LINE: u32 = 4_096;

/// Takes connections at this address.
///
/// # Errors
///
/// The operating system's.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that was just stopped may be started again at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LINE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;

    use super::*;

    /// Nobody is let in yet, and everybody finds a place in line. Whoever finds none waits for a second; a slow machine is
    /// asked a few times.
    #[tokio::test]
    async fn a_crowd_that_comes_at_once_is_in_line_at_once() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let crowd = allowed.trim().parse::<usize>().unwrap_or(128).min(500);
        for _ in 0..5 {
            let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let coming = futures_util::future::try_join_all((0..crowd).map(|_| TcpStream::connect(address)));
            if let Ok(all) = tokio::time::timeout(Duration::from_millis(900), coming).await {
                assert_eq!(all.unwrap().len(), crowd);
                return;
            }
        }
        panic!("somebody has to come back later");
    }
}
