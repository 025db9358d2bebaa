//! A file in memory, for text that must not reach a disk.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory; it is deleted when dropped.
pub struct MemoryFile(File);

impl MemoryFile {
    /// Creates a file with this text.
    ///
    /// # Errors
    /// When the kernel cannot create the file.
    pub fn new(text: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("kubeon", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        Ok(Self(file))
    }

    /// A path that this process can open any number of times.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn can_be_read_more_than_once() {
        let file = MemoryFile::new("one\ntwo\n").unwrap();
        for _ in 0..2 {
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "one\ntwo\n");
        }
    }
}
