//! SHA-256 of streams and files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use kubeon_api::Digest;
use sha2::{Digest as _, Sha256};

/// Writes to another writer, and counts and hashes the bytes.
pub(crate) struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> HashingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    /// The inner writer, the digest and the number of bytes written.
    pub(crate) fn finish(self) -> io::Result<(W, Digest, u64)> {
        Ok((self.inner, to_digest(&self.hash.finalize())?, self.size))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn to_digest(hash: &[u8]) -> io::Result<Digest> {
    hex::encode(hash).parse().map_err(io::Error::other)
}

/// The digest of bytes in memory.
pub(crate) fn of_bytes(bytes: &[u8]) -> io::Result<Digest> {
    to_digest(&Sha256::digest(bytes))
}

/// The digest and size of everything in a reader.
pub(crate) fn of_reader(mut reader: impl Read) -> io::Result<(Digest, u64)> {
    let mut writer = HashingWriter::new(io::sink());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        writer.write_all(&buffer[..count])?;
    }
    let (_, digest, size) = writer.finish()?;
    Ok((digest, size))
}

/// The digest and size of a file.
pub(crate) fn of_file(path: &Path) -> io::Result<(Digest, u64)> {
    of_reader(File::open(path)?)
}
