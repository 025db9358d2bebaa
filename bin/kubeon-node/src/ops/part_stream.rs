//! Passes a part's bytes from the reader of standard input to the step that unpacks them.
//!
//! ```text
//!   reader: read ─► SHA-256 ─┬─ chunk ─► step: zstd ─► tar ─► files
//!                            ◄─ spare buffer ─
//! ```
//!
//! The reader always takes exactly `size` bytes from the stream, also if the step fails, so that it finds the
//! next request.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use sha2::{Digest as _, Sha256};

use crate::input::Input;

/// Bytes of one chunk.
const CHUNK: usize = 512 << 10;
/// Capacity of the channel in chunks: reader and step work at the same time without a whole part in memory.
const CHANNEL_CAPACITY: usize = 8;

enum Chunk {
    Bytes(Vec<u8>, usize),
    End(String),
    Cut(u64),
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
    /// Takes exactly `size` bytes from the input. If the step has ended, the remaining bytes are discarded.
    ///
    /// # Errors
    /// If the input fails or ends before; the step then reads an error.
    pub fn take<R: Read>(self, input: &mut Input<R>, size: u64) -> io::Result<()> {
        let (mut sum, mut wanted, mut left) = (Sha256::new(), true, size);
        let mut own = Vec::new();
        while left > 0 {
            let mut chunk = if own.is_empty() { self.spare.try_recv().unwrap_or_default() } else { own };
            chunk.resize(CHUNK, 0);
            let length = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let received = input.bytes(&mut chunk[..length]).unwrap_or(0);
            left -= received as u64;
            if received < length {
                // The send fails if the step has ended, which then needs no chunk.
                drop(self.chunks.send(Chunk::Cut(size - left)));
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            own = Vec::new();
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
        drop(self.chunks.send(Chunk::End(hex::encode(sum.finalize()))));
        Ok(())
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
            Some(StreamEnd::Cut(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
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
