//! Files attached to a program: one file to download contains all of them.
//!
//! ```text
//!   program (ELF) │ file, file, … (zstd) │ index (JSON) │ its length (8 bytes, little endian) │ mark (16 bytes)
//! ```
//!
//! The kernel ignores what follows the program.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use kubeon_api::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The last bytes of a program with attached files.
const MARK: &[u8; 16] = b"kubeon-attached1";
/// The bytes of the index' length and of the mark.
const TRAILER: u64 = 24;
/// The most bytes of an index.
const INDEX_LIMIT: u64 = 1 << 20;
/// zstd's level: slow to pack, as fast to unpack as any other.
const LEVEL: i32 = 19;

/// A file that is attached to a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachment {
    /// Its name, such as `kubeon-node-amd64`.
    pub name: String,
    /// SHA-256 of the unpacked file.
    pub digest: Digest,
    /// Where the packed file begins, in bytes from the beginning of the program.
    offset: u64,
    /// The size of the packed file in bytes.
    size: u64,
}

/// Writes to `out` the program with the files, each a name and a path. Attached files of `program` are left out.
///
/// # Errors
/// When a file cannot be read or `out` cannot be written. Nothing half-written stays at `out`.
pub fn attach(program: &Path, files: &[(&str, &Path)], out: &Path) -> io::Result<()> {
    let mut bytes = std::fs::read(program)?;
    if let Some(first) = list(program)?.iter().map(|attachment| attachment.offset).min() {
        bytes.truncate(usize::try_from(first).map_err(io::Error::other)?);
    }
    let mut index = Vec::new();
    for (name, path) in files {
        let file = std::fs::read(path)?;
        let digest = hex::encode(Sha256::digest(&file)).parse().map_err(io::Error::other)?;
        let packed = zstd::encode_all(file.as_slice(), LEVEL)?;
        let (offset, size) = (bytes.len() as u64, packed.len() as u64);
        index.push(Attachment { name: (*name).to_owned(), digest, offset, size });
        bytes.extend(packed);
    }
    let index = serde_json::to_vec(&index)?;
    bytes.write_all(&index)?;
    bytes.extend((index.len() as u64).to_le_bytes());
    bytes.extend(MARK);
    kubeon_atomic_file::write_atomically(out, &bytes, 0o755)
}

/// The files that are attached to the program; none when it has no attached files.
///
/// # Errors
/// When the program cannot be read or its index is damaged.
pub fn list(program: &Path) -> io::Result<Vec<Attachment>> {
    let mut file = File::open(program)?;
    let size = file.metadata()?.len();
    let Some(trailer) = size.checked_sub(TRAILER) else { return Ok(Vec::new()) };
    file.seek(SeekFrom::Start(trailer))?;
    let (mut length, mut mark) = ([0; 8], [0; 16]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut mark)?;
    if &mark != MARK {
        return Ok(Vec::new());
    }
    let length = u64::from_le_bytes(length);
    let begin = trailer.checked_sub(length).filter(|_| length <= INDEX_LIMIT).ok_or_else(damaged)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut index = Vec::new();
    file.take(length).read_to_end(&mut index)?;
    let index: Vec<Attachment> = serde_json::from_slice(&index).map_err(|_| damaged())?;
    let is_inside = |attachment: &Attachment| {
        attachment.offset.checked_add(attachment.size).is_some_and(|end| end <= begin)
    };
    if index.iter().all(is_inside) { Ok(index) } else { Err(damaged()) }
}

impl Attachment {
    /// Unpacks the file from the program that it is attached to.
    ///
    /// # Errors
    /// When it cannot be read, or has another digest than the index says.
    pub fn unpack(&self, program: &Path) -> io::Result<Vec<u8>> {
        let mut file = File::open(program)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let unpacked = zstd::decode_all(file.take(self.size)).map_err(|_| damaged())?;
        if hex::encode(Sha256::digest(&unpacked)) == self.digest.as_str() {
            Ok(unpacked)
        } else {
            Err(damaged())
        }
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the files attached to this program are damaged: download it again",
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    fn attached(folder: &Folder) -> PathBuf {
        let program = folder.file("program", &[7; 100]);
        let (amd64, arm64) = (folder.file("amd64", &[1; 5000]), folder.file("arm64", b"two"));
        let out = folder.0.path().join("out");
        attach(&program, &[("node-amd64", &amd64), ("node-arm64", &arm64)], &out).unwrap();
        out
    }

    #[test]
    fn the_program_comes_first_and_every_file_can_be_unpacked() {
        let folder = Folder::new();
        let out = attached(&folder);
        assert!(std::fs::read(&out).unwrap().starts_with(&[7; 100]));
        let listed = list(&out).unwrap();
        let names: Vec<&str> = listed.iter().map(|attachment| attachment.name.as_str()).collect();
        assert_eq!(names, ["node-amd64", "node-arm64"]);
        assert_eq!(listed[0].unpack(&out).unwrap(), [1; 5000]);
        assert_eq!(listed[1].unpack(&out).unwrap(), b"two");
        assert_eq!(listed[1].digest.as_str(), hex::encode(Sha256::digest(b"two")));
    }

    #[test]
    fn a_second_attachment_replaces_the_first() {
        let folder = Folder::new();
        let out = attached(&folder);
        let again = folder.0.path().join("again");
        attach(&out, &[("node-arm64", &folder.file("arm64", b"two"))], &again).unwrap();
        let once = folder.0.path().join("once");
        let program = folder.0.path().join("program");
        attach(&program, &[("node-arm64", &folder.file("arm64", b"two"))], &once).unwrap();
        assert_eq!(std::fs::read(again).unwrap(), std::fs::read(once).unwrap());
    }

    #[test]
    fn a_program_without_files_has_none() {
        let folder = Folder::new();
        for bytes in [&b""[..], b"short", &[0; 1000]] {
            assert_eq!(list(&folder.file("plain", bytes)).unwrap(), []);
        }
        assert_eq!(list(&std::env::current_exe().unwrap()).unwrap(), []);
    }

    #[test]
    fn damage_is_reported() {
        let folder = Folder::new();
        let whole = std::fs::read(attached(&folder)).unwrap();
        let mut other = whole.clone();
        other[101] ^= 0xff;
        let other = folder.file("other", &other);
        let listed = list(&other).unwrap();
        assert!(listed[0].unpack(&other).unwrap_err().to_string().contains("download it again"));
        for length in [0_u64, 5, u64::MAX] {
            let mut wrong = whole.clone();
            let at = wrong.len() - 24;
            wrong[at..at + 8].copy_from_slice(&length.to_le_bytes());
            assert!(list(&folder.file("wrong", &wrong)).is_err(), "{length}");
        }
        let mut foreign = whole[..whole.len() - 24].to_vec();
        let index = br#"[{"name":"x","digest":"0000000000000000000000000000000000000000000000000000000000000000","offset":0,"size":99999}]"#;
        foreign.extend(index);
        foreign.extend((index.len() as u64).to_le_bytes());
        foreign.extend(MARK);
        assert!(list(&folder.file("foreign", &foreign)).is_err());
    }
}
