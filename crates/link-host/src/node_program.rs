//! The node programs on the control machine: one per architecture of hosts.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use kubeon_api::{Arch, Digest};
use kubeon_attachment::Attachment;
use sha2::{Digest as _, Sha256};

use crate::command::CommandInput;

/// The number of bytes of an ELF header up to and including `e_machine`.
const ELF_HEADER: usize = 20;

/// A node program, its architecture and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeProgram {
    arch: Arch,
    digest: Digest,
    source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    /// Attached to the program at this path.
    Attached(PathBuf, Attachment),
}

impl NodeProgram {
    /// Reads the file to compute its digest. Its ELF header names the architecture.
    ///
    /// # Errors
    /// When it cannot be read, or is not a program of a supported architecture.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        let mut header = [0; ELF_HEADER];
        let arch = file.read_exact(&mut header).ok().and_then(|()| elf_arch(&header));
        let arch = arch.ok_or_else(|| {
            std::io::Error::other("it is not a program for 64-bit Linux on x86_64 or aarch64")
        })?;
        let mut sum = Sha256::new();
        sum.update(header);
        std::io::copy(&mut file, &mut HashWriter(&mut sum))?;
        let digest = hex::encode(sum.finalize()).parse().map_err(std::io::Error::other)?;
        Ok(Self { arch, digest, source: Source::File(path.to_owned()) })
    }

    /// The node programs that are attached to a program, as `kubeon-node-<arch>`.
    ///
    /// # Errors
    /// When the program cannot be read or is damaged.
    pub fn attached_to(program: &Path) -> std::io::Result<Vec<Self>> {
        let attached = |attachment: Attachment| {
            let arch = attachment.name.strip_prefix("kubeon-node-")?.parse().ok()?;
            let digest = attachment.digest.clone();
            Some(Self { arch, digest, source: Source::Attached(program.to_owned(), attachment) })
        };
        Ok(kubeon_attachment::list(program)?.into_iter().filter_map(attached).collect())
    }

    /// The architecture of the hosts on which it runs.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// SHA-256 of the program; part of its name on a host.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The bytes of the program.
    pub(crate) async fn open(&self) -> std::io::Result<CommandInput> {
        match &self.source {
            Source::File(path) => {
                let file = tokio::fs::File::open(path).await;
                let file = file.map_err(|error| {
                    std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                Ok(CommandInput::Reader(Box::pin(file)))
            }
            Source::Attached(program, attachment) => {
                let (program, attachment) = (program.clone(), attachment.clone());
                let unpack = tokio::task::spawn_blocking(move || attachment.unpack(&program));
                Ok(CommandInput::Bytes(unpack.await.map_err(std::io::Error::other)??))
            }
        }
    }

    /// The whole program. Blocks.
    pub(crate) fn read_all(&self) -> std::io::Result<Vec<u8>> {
        match &self.source {
            Source::File(path) => std::fs::read(path)
                .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
            Source::Attached(program, attachment) => attachment.unpack(program),
        }
    }
}

/// The architecture of a little-endian 64-bit program.
fn elf_arch(header: &[u8; ELF_HEADER]) -> Option<Arch> {
    let machine = u16::from_le_bytes([header[18], header[19]]);
    let known = header.starts_with(b"\x7fELF\x02\x01");
    Arch::ALL.into_iter().find(|arch| known && arch.elf_machine() == machine)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_architecture_and_the_digest_covers_the_whole_file() {
        let path = std::env::current_exe().unwrap();
        let program = NodeProgram::read(&path).unwrap();
        assert_eq!(program.arch(), Arch::native());
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(program.digest().as_str(), hex::encode(Sha256::digest(&bytes)));
    }

    #[test]
    fn a_file_that_no_host_can_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut riscv = [0; 64];
        riscv[..6].copy_from_slice(b"\x7fELF\x02\x01");
        riscv[18] = 243;
        for bytes in [&b""[..], b"#!/bin/sh\nexit 0 # longer than a header\n", &riscv] {
            let path = folder.path().join("program");
            std::fs::write(&path, bytes).unwrap();
            assert!(NodeProgram::read(&path).unwrap_err().to_string().contains("x86_64 or aarch64"));
        }
        assert!(NodeProgram::read(&folder.path().join("absent")).is_err());
    }

    #[tokio::test]
    async fn an_attached_program_is_sent_as_the_bytes_of_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (node, out) = (folder.path().join("node"), folder.path().join("kubeon"));
        std::fs::write(&node, b"the bytes of a program").unwrap();
        let files = [("kubeon-node-arm64", node.as_path()), ("licence", &node)];
        kubeon_attachment::attach(&std::env::current_exe().unwrap(), &files, &out).unwrap();
        let [program] = NodeProgram::attached_to(&out).unwrap().try_into().unwrap();
        assert_eq!(program.arch(), Arch::Arm64);
        assert_eq!(program.digest().as_str(), hex::encode(Sha256::digest(b"the bytes of a program")));
        let CommandInput::Bytes(unpacked) = program.open().await.unwrap() else {
            panic!("bytes are expected")
        };
        assert_eq!(unpacked, b"the bytes of a program");
        assert_eq!(program.read_all().unwrap(), unpacked);
        assert_eq!(NodeProgram::attached_to(&node).unwrap(), []);
    }
}
