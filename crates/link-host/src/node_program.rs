//! The node program on the control machine.

use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use sha2::{Digest as _, Sha256};

/// The file of the node program and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeProgram {
    pub(crate) path: PathBuf,
    digest: Digest,
}

impl NodeProgram {
    /// Reads the file to compute its digest.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let mut sum = Sha256::new();
        std::io::copy(&mut std::fs::File::open(path)?, &mut HashWriter(&mut sum))?;
        let digest = hex::encode(sum.finalize()).parse().map_err(std::io::Error::other)?;
        Ok(Self { path: path.to_owned(), digest })
    }

    /// SHA-256 of the program; part of its name on a host.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// Hashes what is written.
pub(crate) struct HashWriter<'a>(pub(crate) &'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
