//! The snapshot out of which a cluster is being made, as a part for its hosts.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use kubeon_api::{ClusterName, Digest};
use kubeon_atomic_file::AtomicFile;
use kubeon_store::RestoredPart;
use sha2::{Digest as _, Sha256};

use crate::engine::Engine;
use crate::error::EngineError;

/// The compression level: a snapshot is compressed once and sent to a few masters.
const LEVEL: i32 = 3;
/// The name of the snapshot in its part.
const NAME: &str = "snapshot.db";

/// Packs a snapshot as a part for hosts into a folder.
pub(crate) fn pack(folder: &Path, snapshot: &Path) -> Result<RestoredPart, EngineError> {
    let failed = |error: io::Error| {
        EngineError::failed(format!("cannot write to {}", folder.display())).row("cause", error.to_string())
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let file = AtomicFile::new_in(folder, 0o600).map_err(failed)?;
    let mut source = File::open(snapshot).map_err(failed)?;
    let unpacked_size = source.metadata().map_err(failed)?.len();
    let encoder = zstd::Encoder::new(file.as_file(), LEVEL).map_err(failed)?;
    let mut archive = tar::Builder::new(encoder);
    let mut header = tar::Header::new_gnu();
    header.set_size(unpacked_size);
    header.set_mode(0o600);
    header.set_mtime(0);
    archive.append_data(&mut header, NAME, &mut source).map_err(failed)?;
    archive.into_inner().and_then(zstd::Encoder::finish).map_err(failed)?;
    let (digest, size) = digest_of(file.as_file()).map_err(failed)?;
    let digest: Digest = digest.parse().map_err(|_| EngineError::failed("a digest that is none"))?;
    file.commit(&folder.join(digest.as_str())).map_err(failed)?;
    Ok(RestoredPart::new(digest, size, unpacked_size))
}

fn digest_of(mut file: &File) -> io::Result<(String, u64)> {
    use io::{Read as _, Seek as _};
    file.rewind()?;
    let (mut hash, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((hex::encode(hash.finalize()), size));
        }
        hash.update(&buffer[..read]);
        size += read as u64;
    }
}

/// Removes the packed snapshot of a cluster.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn remove(engine: &Engine<'_>, cluster: &ClusterName) -> Result<(), EngineError> {
    let folder = engine.store.restore_folder(cluster);
    fs::remove_dir_all(&folder).map_err(|error| {
        EngineError::failed(format!("cannot remove {}", folder.display())).row("cause", error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_snapshot_is_named_by_its_digest_and_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("demo.db");
        fs::write(&snapshot, [7_u8; 5000]).unwrap();
        let part = pack(&folder.path().join("restore"), &snapshot).unwrap();
        let path = folder.path().join("restore").join(part.digest.as_str());
        let packed = fs::read(&path).unwrap();
        assert_eq!(hex::encode(Sha256::digest(&packed)), part.digest.as_str());
        assert_eq!((packed.len() as u64, part.unpacked_size), (part.size, 5000));
        let mut archive = tar::Archive::new(zstd::Decoder::new(&packed[..]).unwrap());
        let names: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(names, [Path::new(NAME)]);
        let again = pack(&folder.path().join("restore"), &snapshot).unwrap();
        assert_eq!((&again.digest, again.size), (&part.digest, part.size));
        assert_ne!(again.attempt, part.attempt, "another restore of the same snapshot");
    }
}
