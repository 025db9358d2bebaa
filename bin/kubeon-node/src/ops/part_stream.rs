//! Carries a part's bytes from the reader of standard input to the step that unpacks them.
//!
//! ```text
//!   reader: read ─► SHA-256 ─┬─ chunk ─► step: zstd ─► tar ─► files
//!                            ◄─ spare buffer ─
//! ```
//!
//! The reader takes exactly `size` bytes off the stream whatever becomes of the step, so that the next
//! request is found.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use sha2::{Digest as _, Sha256};

use crate::input::Input;

/// Bytes handed over at once.
const CHUNK: usize = 512 << 10;
/// Chunks under way: lets reader and step work at the same time without holding a part in memory.
const UNDER_WAY: usize = 8;

enum Chunk {
    Bytes(Vec<u8>, usize),
    End(String),
    Cut(u64),
}

/// The reader's end.
pub struct Feed {
    chunks: SyncSender<Chunk>,
    spare: Receiver<Vec<u8>>,
}

/// The step's end: a stream of the part's bytes.
pub struct Arriving {
    chunks: Receiver<Chunk>,
    spare: Sender<Vec<u8>>,
    current: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes taken so far.
    pub taken: u64,
    /// How the stream ended, once it did.
    pub ended: Option<Ended>,
}

/// How a part's bytes ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All came; their SHA-256.
    Whole(String),
    /// The connection ended after so many.
    Cut(u64),
}

/// Both ends of a new stream.
#[must_use]
pub fn pair() -> (Feed, Arriving) {
    let (chunks, arriving) = sync_channel(UNDER_WAY);
    let (give_back, spare) = channel();
    let arriving = Arriving {
        chunks: arriving,
        spare: give_back,
        current: Vec::new(),
        start: 0,
        end: 0,
        taken: 0,
        ended: None,
    };
    (Feed { chunks, spare }, arriving)
}

impl Feed {
    /// Takes exactly `size` bytes off the input. When the step is gone the rest is thrown away unread.
    ///
    /// # Errors
    /// When the input breaks or ends before; the step is told.
    pub fn take<R: Read>(self, input: &mut Input<R>, size: u64) -> io::Result<()> {
        let (mut sum, mut wanted, mut left) = (Sha256::new(), true, size);
        let mut own = Vec::new();
        while left > 0 {
            let mut chunk = if own.is_empty() { self.spare.try_recv().unwrap_or_default() } else { own };
            chunk.resize(CHUNK, 0);
            let length = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let came = input.bytes(&mut chunk[..length]).unwrap_or(0);
            left -= came as u64;
            if came < length {
                // The step may be gone; then nobody needs to know.
                drop(self.chunks.send(Chunk::Cut(size - left)));
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            own = Vec::new();
            if wanted {
                sum.update(&chunk[..came]);
                if let Err(refused) = self.chunks.send(Chunk::Bytes(chunk, came)) {
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

impl Arriving {
    /// Takes what is left and tells how the stream ended.
    pub fn finish(&mut self) -> Ended {
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
            // The reader may be done already.
            drop(self.spare.send(empty));
        }
        (self.start, self.end) = (0, 0);
        match self.chunks.recv() {
            Ok(Chunk::Bytes(bytes, length)) => {
                self.current = bytes;
                self.end = length;
                self.taken += length as u64;
            }
            Ok(Chunk::End(sum)) => self.ended = Some(Ended::Whole(sum)),
            Ok(Chunk::Cut(came)) => self.ended = Some(Ended::Cut(came)),
            Err(_) => self.ended = Some(Ended::Cut(self.taken)),
        }
    }
}

impl BufRead for Arriving {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.start == self.end && self.ended.is_none() {
            self.next_chunk();
        }
        match self.ended {
            Some(Ended::Cut(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(&self.current[self.start..self.end]),
        }
    }

    fn consume(&mut self, amount: usize) {
        self.start += amount;
    }
}

impl Read for Arriving {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let held = self.fill_buf()?;
        let length = held.len().min(place.len());
        place[..length].copy_from_slice(&held[..length]);
        self.consume(length);
        Ok(length)
    }
}
