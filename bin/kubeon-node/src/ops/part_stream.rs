//! Passes a part's bytes from the reader of standard input to the step that unpacks them.
//!
//! ```text
//!   reader: read ─► SHA-256 ─┬─ chunk ─► step: zstd ─► tar ─► files
//!                            ◄─ spare buffer ─
//! ```
//!
//! The reader always takes exactly `size` bytes from the stream, also if the step fails, so that it finds the
//! next request. The bytes may come from another host instead, and may be kept for further hosts.

use std::io::{self, BufRead, Read};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use sha2::{Digest as _, Sha256};

use crate::failure::plain;
use crate::input::Input;

/// Bytes of one chunk.
const CHUNK: usize = 512 << 10;
/// Capacity of the channel in chunks: reader and step work at the same time without a whole part in memory.
const CHANNEL_CAPACITY: usize = 8;

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

/// Both ends of a new stream.
#[must_use]
pub fn pair() -> (PartWriter, PartReader) {
    let (chunks, arriving) = sync_channel(CHANNEL_CAPACITY);
    let (give_back, spare) = channel();
    let arriving = PartReader {
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
    /// Takes exactly `size` bytes from the input, and gives them to `also`. If the step has ended, the remaining bytes are not
    /// kept for it.
    ///
    /// # Errors
    /// If the input fails or ends before; the step then reads an error.
    pub fn take<R: Read>(
        self,
        input: &mut Input<R>,
        size: u64,
        also: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        match self.pass(input, size, also) {
            Ok(sum) => {
                drop(self.chunks.send(Chunk::End(sum)));
                Ok(())
            }
            Err((received, error)) => {
                // The send fails if the step has ended, which then needs no chunk.
                drop(self.chunks.send(Chunk::Cut(received)));
                Err(error)
            }
        }
    }

    /// The same with bytes that another host forwards; the step reads why they end before.
    pub fn take_forwarded<R: Read>(
        self,
        input: &mut Input<R>,
        size: u64,
        from: Ipv4Addr,
        also: &mut dyn FnMut(&[u8]),
    ) {
        let end = match self.pass(input, size, also) {
            Ok(sum) => Chunk::End(sum),
            Err((received, error)) => {
                let why = plain(&error);
                Chunk::Failed(format!("{from} forwarded {received} of {size} bytes: {why}"))
            }
        };
        drop(self.chunks.send(end));
    }

    /// Ends the stream before its first byte. The step reads why.
    pub fn fail(self, why: String) {
        drop(self.chunks.send(Chunk::Failed(why)));
    }

    /// Passes the bytes on, and returns their SHA-256, or how many arrived before an error.
    fn pass<R: Read>(
        &self,
        input: &mut Input<R>,
        size: u64,
        also: &mut dyn FnMut(&[u8]),
    ) -> Result<String, (u64, io::Error)> {
        let (mut sum, mut wanted, mut left) = (Sha256::new(), true, size);
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
            also(&chunk[..received]);
            if wanted {
                sum.update(&chunk[..received]);
                if let Err(refused) = self.chunks.send(Chunk::Bytes(chunk, received)) {
                    wanted = false;
                    if let Chunk::Bytes(chunk, _) = refused.0 {
                        own = chunk;
                    }
                }
            } else {
                own = chunk;
            }
        }
        Ok(hex::encode(sum.finalize()))
    }
}

impl PartReader {
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
