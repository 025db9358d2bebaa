//! Serves the parts of this session to other hosts of the run.
//!
//! A client sends the digest of a part and a newline, and gets its bytes until their end.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use kubeon_wire::FORWARDING_PORT;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::spool::Spool;
use crate::client_threads::serve_clients;

/// The most clients at a time: the engine names a host as the source of one other for each part.
const MOST_CLIENTS: usize = 4;
/// The longest wait for the other side.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for the beginning of a part, and for its next bytes. It is longer than the wait of a client for its source, so
/// that the host behind a lost one is the first that gives up.
pub(super) const PART_TIMEOUT: Duration = IDLE_TIMEOUT.saturating_mul(2);
const BUFFER: usize = 256 << 10;
/// The length of a digest.
const DIGEST: usize = 64;

/// Listens on the address, at [`FORWARDING_PORT`] if that is free, and serves in threads of its own. Returns the port.
pub(super) fn begin(address: Ipv4Addr, tls: Arc<ServerConfig>, spool: Arc<Spool>) -> io::Result<u16> {
    let listener = TcpListener::bind((address, FORWARDING_PORT)).or_else(|error| match error.kind() {
        // Such as the session of an interrupted run.
        io::ErrorKind::AddrInUse => TcpListener::bind((address, 0)),
        _ => Err(error),
    })?;
    let port = listener.local_addr()?.port();
    serve_clients(listener, MOST_CLIENTS, move |stream| {
        // The client sees that the stream ended before the end of the part.
        let _ = serve(stream, Arc::clone(&tls), &spool);
    })?;
    Ok(port)
}

fn serve(stream: TcpStream, tls: Arc<ServerConfig>, spool: &Spool) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let connection = ServerConnection::new(tls).map_err(io::Error::other)?;
    let mut client = StreamOwned::new(connection, stream);
    let mut asked = [0; DIGEST + 1];
    client.read_exact(&mut asked)?;
    let digest = str::from_utf8(&asked[..DIGEST]).map_err(io::Error::other)?;
    let part = spool.find(digest, PART_TIMEOUT).ok_or(io::ErrorKind::NotFound)?;
    let file = part.open()?;
    let (mut buffer, mut offset) = (vec![0; BUFFER], 0);
    while offset < part.size {
        let read = part.read(&file, &mut buffer, offset, Some(PART_TIMEOUT))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        client.write_all(&buffer[..read])?;
        offset += read as u64;
    }
    client.conn.send_close_notify();
    client.flush()
}
