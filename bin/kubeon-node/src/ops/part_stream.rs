//! Passes a part's bytes from the reader of standard input to the step that unpacks them.
//!
//! ```text
//!   reader: read ─► SHA-256 ─┬─ chunk ───────────► step: zstd ─► tar ─► files
//!                            ◄─ spare buffer ─    │
//!                            └─ file of the part ─┘
//! ```
//!
//! The reader always takes exactly `size` bytes from the stream, also if the step fails, so that it finds the
//! next request. The bytes may come from another host instead. What is kept for further hosts is read from its file: then the
//! bytes arrive as fast as the network brings them, however long the step takes to unpack them.

use std::io::{self, BufRead, Read};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use kubeon_api::Digest;
use sha2::{Digest as _, Sha256};

use crate::failure::plain;
use crate::input::Input;
use crate::ticket_lock::Ticket;

/// Bytes of one chunk. A host passes a chunk on when all of it is there.
const CHUNK: usize = 256 << 10;
/// Capacity of the channel in chunks: reader and step work at the same time without a whole part in memory.
const CHANNEL_CAPACITY: usize = 16;

/// Reads the bytes that are kept in a file, and waits for more until no more are kept.
pub type KeptBytes = Box<dyn Read + Send>;

enum Chunk {
    Bytes(Vec<u8>, usize),
    End(String),
    Cut(u64),
    Failed(String),
}

/// The end of the stream that the reader writes to.
pub struct PartWriter {
    chunks: SyncSender<Chunk>,
    spare: Receiver<Vec<u8>>,
}

/// The end of the stream that the step reads from.
pub struct PartReader {
    /// The beginning of the part, up to all of it, if it is kept in a file.
    kept: Option<KeptBytes>,
    ticket: Ticket,
    chunks: Receiver<Chunk>,
    spare: Sender<Vec<u8>>,
    current: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes received so far.
    pub taken: u64,
    /// How the stream ended; `None` before its end.
    pub ended: Option<StreamEnd>,
}

/// How a part's bytes ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// All bytes arrived; the value is their SHA-256.
    Whole(String),
    /// The connection ended after this many bytes.
    Cut(u64),
    /// Another host did not forward all bytes. The text says why.
    NotForwarded(String),
}

/// Both ends of a new stream. The step unpacks it after those with earlier tickets. `kept` are the bytes that the functions of the writer
/// keep, of which the writer passes on nothing.
#[must_use]
pub fn pair(kept: Option<KeptBytes>, ticket: Ticket) -> (PartWriter, PartReader) {
    let (chunks, arriving) = sync_channel(CHANNEL_CAPACITY);
    let (give_back, spare) = channel();
    let arriving = PartReader {
        kept,
        ticket,
        chunks: arriving,
        spare: give_back,
        current: Vec::new(),
        start: 0,
        end: 0,
        taken: 0,
        ended: None,
    };
    (PartWriter { chunks, spare }, arriving)
}

impl PartWriter {
    /// Takes exactly `size` bytes from the input, and gives them to `keep`, which returns whether it keeps them. The others are
    /// passed to the step, unless it has ended. Returns the SHA-256 of all.
    ///
    /// # Errors
    /// If the input fails or ends before; the step then reads an error.
    pub fn take<R: Read>(
        self,
        input: &mut Input<R>,
        size: u64,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> io::Result<String> {
        let mut sum = Sha256::new();
        let mut hash_and_keep = |bytes: &[u8]| {
            sum.update(bytes);
            keep(bytes)
        };
        let passed = self.pass(input, size, &mut hash_and_keep);
        match passed {
            Ok(()) => {
                let sum = hex::encode(sum.finalize());
                drop(self.chunks.send(Chunk::End(sum.clone())));
                Ok(sum)
            }
            Err((received, error)) => {
                // The send fails if the step has ended, which then needs no chunk.
                drop(self.chunks.send(Chunk::Cut(received)));
                Err(error)
            }
        }
    }

    /// The same with bytes that another host forwards. The input has checked each of them, so they are the bytes of `digest`.
    /// Returns whether all arrived; the step reads why they end before.
    pub fn take_forwarded<R: Read>(
        self,
        input: &mut Input<R>,
        (digest, size): (&Digest, u64),
        from: Ipv4Addr,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let (end, whole) = match self.pass(input, size, keep) {
            Ok(()) => (Chunk::End(digest.to_string()), true),
            Err((received, error)) => {
                let why = plain(&error);
                (Chunk::Failed(format!("{from} forwarded {received} of {size} bytes: {why}")), false)
            }
        };
        drop(self.chunks.send(end));
        whole
    }

    /// Ends the stream before its first byte. The step reads why.
    pub fn fail(self, why: String) {
        drop(self.chunks.send(Chunk::Failed(why)));
    }

    /// Passes on the bytes that are not kept. Fails with the number of bytes that arrived before the error.
    fn pass<R: Read>(
        &self,
        input: &mut Input<R>,
        size: u64,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), (u64, io::Error)> {
        let (mut wanted, mut left) = (true, size);
        let mut own = Vec::new();
        while left > 0 {
            let mut chunk = if own.is_empty() { self.spare.try_recv().unwrap_or_default() } else { own };
            chunk.resize(CHUNK, 0);
            let length = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let received = input.bytes(&mut chunk[..length]).map_err(|error| (size - left, error))?;
            left -= received as u64;
            if received < length {
                return Err((size - left, io::ErrorKind::UnexpectedEof.into()));
            }
            own = Vec::new();
            if keep(&chunk[..received]) || !wanted {
                own = chunk;
            } else if let Err(refused) = self.chunks.send(Chunk::Bytes(chunk, received)) {
                wanted = false;
                if let Chunk::Bytes(chunk, _) = refused.0 {
                    own = chunk;
                }
            }
        }
        Ok(())
    }
}

impl PartReader {
    /// Waits until the parts that began before were unpacked.
    pub fn wait_for_turn(&self) {
        self.ticket.wait();
    }

    /// Whether the bytes arrive independently of how fast they are read.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Receives the remaining bytes and returns how the stream ended.
    pub fn finish(&mut self) -> StreamEnd {
        loop {
            if let Some(ended) = &self.ended {
                return ended.clone();
            }
            self.next_chunk();
        }
    }

    fn next_chunk(&mut self) {
        if self.next_kept_chunk() {
            return;
        }
        let empty = std::mem::take(&mut self.current);
        if !empty.is_empty() {
            // The send fails if the reader has finished.
            drop(self.spare.send(empty));
        }
        (self.start, self.end) = (0, 0);
        match self.chunks.recv() {
            Ok(Chunk::Bytes(bytes, length)) => {
                self.current = bytes;
                self.end = length;
                self.taken += length as u64;
            }
            Ok(Chunk::End(sum)) => self.ended = Some(StreamEnd::Whole(sum)),
            Ok(Chunk::Cut(received)) => self.ended = Some(StreamEnd::Cut(received)),
            Ok(Chunk::Failed(why)) => self.ended = Some(StreamEnd::NotForwarded(why)),
            Err(_) => self.ended = Some(StreamEnd::Cut(self.taken)),
        }
    }

    /// Reads the next bytes of the file; `false` when no more are kept: what follows is passed on.
    fn next_kept_chunk(&mut self) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        self.current.resize(CHUNK, 0);
        (self.start, self.end) = (0, 0);
        match kept.read(&mut self.current) {
            Ok(0) => {
                self.kept = None;
                false
            }
            Ok(length) => {
                self.end = length;
                self.taken += length as u64;
                true
            }
            Err(error) => {
                let why = format!("the bytes that were kept cannot be read: {}", plain(&error));
                self.ended = Some(StreamEnd::NotForwarded(why));
                true
            }
        }
    }
}

impl BufRead for PartReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.start == self.end && self.ended.is_none() {
            self.next_chunk();
        }
        match self.ended {
            Some(StreamEnd::Cut(_) | StreamEnd::NotForwarded(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(&self.current[self.start..self.end]),
        }
    }

    fn consume(&mut self, amount: usize) {
        self.start += amount;
    }
}

impl Read for PartReader {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(place.len());
        place[..length].copy_from_slice(&available[..length]);
        self.consume(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::ticket_lock::TicketLock;

    #[test]
    fn what_is_kept_no_longer_is_passed_on() {
        let bytes: Vec<u8> = (0..40 * CHUNK + 5).map(|index| (index % 251) as u8).collect();
        let digest = hex::encode(Sha256::digest(&bytes));
        for chunks_kept in [0, 1, 3, 41] {
            let kept: KeptBytes = Box::new(Cursor::new(bytes.clone()).take((chunks_kept * CHUNK) as u64));
            let (feed, mut arriving) = pair(Some(kept), Arc::new(TicketLock::default()).ticket());
            let sent = bytes.clone();
            let writer = thread::spawn(move || {
                let mut chunks = 0;
                let mut keep = |_: &[u8]| {
                    chunks += 1;
                    chunks <= chunks_kept
                };
                feed.take(&mut Input::new(&sent[..]), sent.len() as u64, &mut keep)
            });
            let mut received = Vec::new();
            arriving.read_to_end(&mut received).unwrap();
            assert!(received == bytes, "{chunks_kept}");
            assert_eq!(arriving.finish(), StreamEnd::Whole(digest.clone()));
            assert_eq!(writer.join().unwrap().unwrap(), digest);
        }
    }
}
