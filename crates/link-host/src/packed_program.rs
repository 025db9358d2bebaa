//! The node programs as they are sent to hosts: with gzip, half their size.

use std::collections::HashMap;
use std::fs;
use std::io::{Cursor, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzEncoder;
use kubeon_api::Digest;
use kubeon_atomic_file::AtomicFile;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use crate::command::CommandInput;
use crate::node_program::NodeProgram;

/// The bytes of a SHA-256.
const SHA256: usize = 32;

/// The packed programs. Each is packed once for all hosts, and with a folder also for later commands, as packing takes longer than
/// to send it.
#[derive(Default)]
pub(crate) struct PackedPrograms {
    folder: Option<PathBuf>,
    packed: Mutex<HashMap<Digest, Arc<[u8]>>>,
}

impl PackedPrograms {
    /// Keeps the last packed program of each architecture in the folder, if there is one.
    pub(crate) fn kept_in(folder: Option<PathBuf>) -> Self {
        Self { folder, packed: Mutex::default() }
    }

    /// The bytes of the program, packed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn open(&self, program: &NodeProgram) -> std::io::Result<CommandInput> {
        let mut packed = self.packed.lock().await;
        let bytes = match packed.get(program.digest()) {
            Some(bytes) => Arc::clone(bytes),
            None => {
                let (folder, opened) = (self.folder.clone(), program.clone());
                let open = tokio::task::spawn_blocking(move || open(folder.as_deref(), &opened));
                let bytes: Arc<[u8]> = open.await.map_err(std::io::Error::other)??.into();
                packed.insert(program.digest().clone(), Arc::clone(&bytes));
                bytes
            }
        };
        Ok(CommandInput::Reader(Box::pin(Cursor::new(bytes))))
    }
}

/// The packed program of the folder; else it is packed, and kept there.
fn open(folder: Option<&Path>, program: &NodeProgram) -> std::io::Result<Vec<u8>> {
    let file = folder.map(|folder| folder.join(format!("kubeon-node-{}.gz", program.arch())));
    if let Some(packed) = file.as_ref().and_then(|file| kept(file, program)) {
        return Ok(packed);
    }
    let mut packed = Vec::new();
    GzEncoder::new(program.read_all()?.as_slice(), Compression::fast()).read_to_end(&mut packed)?;
    if let Some(Err(error)) = file.as_ref().map(|file| keep(file, program, &packed)) {
        tracing::debug!(%error, "the packed node program is not kept for later commands");
    }
    Ok(packed)
}

/// The packed program that the file has, if it is this program and whole. In front of it the file has the program's SHA-256 and
/// that of the packed bytes.
fn kept(file: &Path, program: &NodeProgram) -> Option<Vec<u8>> {
    let mut bytes = fs::read(file).ok()?;
    let packed = bytes.get(2 * SHA256..)?;
    let is_whole = bytes.starts_with(&head(program, packed));
    bytes.drain(..2 * SHA256);
    is_whole.then_some(bytes)
}

fn keep(file: &Path, program: &NodeProgram, packed: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let new = AtomicFile::beside(file, 0o600)?;
    new.as_file().write_all(&head(program, packed))?;
    new.as_file().write_all(packed)?;
    // A file that a power failure leaves damaged is not used.
    new.commit_without_sync(file)
}

fn head(program: &NodeProgram, packed: &[u8]) -> Vec<u8> {
    let digest = hex::decode(program.digest().as_str()).unwrap_or_default();
    [digest.as_slice(), &Sha256::digest(packed)].concat()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn program(folder: &Path, content: &[u8]) -> NodeProgram {
        let mut bytes = fs::read(std::env::current_exe().unwrap()).unwrap()[..64].to_vec();
        bytes.extend(content);
        let path = folder.join("kubeon-node");
        fs::write(&path, bytes).unwrap();
        NodeProgram::read(&path).unwrap()
    }

    async fn sent(programs: &PackedPrograms, program: &NodeProgram) -> Vec<u8> {
        let CommandInput::Reader(mut reader) = programs.open(program).await.unwrap() else {
            panic!("a reader is expected")
        };
        let (mut packed, mut bytes) = (Vec::new(), Vec::new());
        reader.read_to_end(&mut packed).await.unwrap();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_program_is_packed_once_also_for_later_commands() {
        let folder = tempfile::tempdir().unwrap();
        let first = program(folder.path(), b"the first");
        let cache = folder.path().join("cache");
        let programs = || PackedPrograms::kept_in(Some(cache.clone()));
        let bytes = first.read_all().unwrap();
        assert_eq!(sent(&PackedPrograms::default(), &first).await, bytes);
        assert_eq!(sent(&programs(), &first).await, bytes);
        let file = cache.join(format!("kubeon-node-{}.gz", first.arch()));
        assert!(file.exists());

        // What is kept is sent even when the program itself is gone.
        let path = folder.path().join("kubeon-node");
        fs::remove_file(&path).unwrap();
        assert_eq!(sent(&programs(), &first).await, bytes);
        assert!(PackedPrograms::default().open(&first).await.is_err());

        // Another program takes its place, and what is damaged is packed again.
        let second = program(folder.path(), b"the second");
        assert_eq!(sent(&programs(), &second).await, second.read_all().unwrap());
        for damaged in [&b""[..], &[7; 80], &fs::read(&file).unwrap()[..100]] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(sent(&programs(), &second).await, second.read_all().unwrap());
            assert!(fs::read(&file).unwrap().len() > 100, "it is whole again");
        }
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_costs_only_the_time_to_pack() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), b"");
        let file = folder.path().join("kubeon-node");
        let programs = PackedPrograms::kept_in(Some(file.join("folder")));
        assert_eq!(sent(&programs, &program).await, program.read_all().unwrap());
    }
}
