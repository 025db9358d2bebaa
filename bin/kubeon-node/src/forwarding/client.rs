//! Receives a part from another host of the run.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::Digest;
use kubeon_wire::{PART_PIECE, PartForwarder};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use sha2::{Digest as _, Sha256};

use super::server::{IDLE_TIMEOUT, PART_TIMEOUT};
use super::tls::RunTls;
use crate::input::Input;
use crate::ops::part_stream::PartWriter;

/// A firewall may drop the packets: then the engine sends the part itself.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that are read from a socket at a time.
const READ_BUFFER: usize = 64 << 10;

/// Passes the bytes of a part to `keep`, and those that it does not keep to `feed`. A failure is passed on as well. Returns
/// whether all arrived.
pub(super) fn receive(
    tls: &RunTls,
    (digest, size): (&Digest, u64),
    source: &PartForwarder,
    feed: PartWriter,
    keep: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    match connect(tls, digest, source) {
        Ok(stream) => {
            let pieces = CheckedPieces {
                first_wait: stream.sock.0.get_ref().try_clone().ok(),
                stream,
                pieces: &source.pieces,
                next: 0,
                piece: Vec::new(),
                taken: 0,
                left: size,
            };
            feed.take_forwarded(&mut Input::new(pieces), (digest, size), source.address, keep)
        }
        Err(error) => {
            feed.fail(format!("{} forwards nothing: {error}", source.address));
            false
        }
    }
}

fn connect(
    tls: &RunTls,
    digest: &Digest,
    source: &PartForwarder,
) -> io::Result<StreamOwned<ClientConnection, BufferedSocket>> {
    let address = SocketAddr::new(IpAddr::V4(source.address), source.port);
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    // The source waits for its own source, which waits for another one: the first piece passes through all of them.
    stream.set_read_timeout(Some(PART_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let name = ServerName::IpAddress(IpAddr::V4(source.address).into());
    let connection = ClientConnection::new(Arc::clone(&tls.client), name).map_err(io::Error::other)?;
    let socket = BufferedSocket(BufReader::with_capacity(READ_BUFFER, stream));
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(format!("{digest}\n").as_bytes())?;
    stream.flush()?;
    Ok(stream)
}

/// A socket that is read in large pieces: rustls asks for 4 KiB at a time.
struct BufferedSocket(BufReader<TcpStream>);

impl Read for BufferedSocket {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        self.0.read(place)
    }
}

impl Write for BufferedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// Reads whole pieces, and returns only bytes of pieces whose SHA-256 matches.
struct CheckedPieces<'a, R> {
    stream: R,
    /// The socket until the first piece has arrived: the others follow it closely.
    first_wait: Option<TcpStream>,
    pieces: &'a [String],
    next: usize,
    piece: Vec<u8>,
    /// Bytes of the piece that were returned.
    taken: usize,
    /// Bytes of the part that follow the piece.
    left: u64,
}

impl<R: Read> Read for CheckedPieces<'_, R> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() && self.left > 0 {
            self.read_piece()?;
        }
        let length = place.len().min(self.piece.len() - self.taken);
        place[..length].copy_from_slice(&self.piece[self.taken..self.taken + length]);
        self.taken += length;
        Ok(length)
    }
}

impl<R: Read> CheckedPieces<'_, R> {
    fn read_piece(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.left).unwrap_or(PART_PIECE).min(PART_PIECE);
        self.piece.resize(length, 0);
        self.taken = length;
        self.stream.read_exact(&mut self.piece)?;
        if self.pieces.get(self.next) != Some(&hex::encode(Sha256::digest(&self.piece))) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it sent other bytes than it should"));
        }
        if let Some(socket) = self.first_wait.take() {
            socket.set_read_timeout(Some(IDLE_TIMEOUT))?;
        }
        self.taken = 0;
        self.next += 1;
        self.left -= length as u64;
        Ok(())
    }
}
