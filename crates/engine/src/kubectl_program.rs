//! Links the kubectl of the bundle for the users of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::Version;
use kubeon_atomic_file::AtomicFile;
use kubeon_bundle::{Arch, Bundle, Part, PartKind};

use crate::bundles;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::user_kubeconfig::{cannot, point};

/// Unpacks the bundle's kubectl once and links it in `bin` of the state folder. Returns the link.
///
/// # Errors
/// Refuses when the version has no bundle or the bundle has no kubectl; fails when a file cannot be written.
pub(crate) fn link(engine: &Engine<'_>, version: Version) -> Result<PathBuf, EngineError> {
    let store = bundles::store(&engine.environment)?;
    let bundle =
        store.find(version, Arch::native()).map_err(|error| EngineError::refused(error.to_string()))?;
    let folder = engine.store.base().join("bin");
    fs::create_dir_all(&folder).map_err(|error| cannot("create", &folder, &error))?;
    let program = folder.join(format!("kubectl-{version}"));
    if !program.is_file() {
        unpack(&bundle, &program)?;
    }
    let link = folder.join("kubectl");
    point(&link, &program)?;
    Ok(link)
}

/// Unpacks the program `kubectl` atomically.
fn unpack(bundle: &Bundle, program: &Path) -> Result<(), EngineError> {
    let has_kubectl = |part: &&Part| {
        part.kind != PartKind::Image && part.programs.iter().any(|program| program.ends_with("/kubectl"))
    };
    let manifest = bundle.manifest();
    let part = manifest.parts.iter().find(has_kubectl).ok_or_else(|| {
        EngineError::refused(format!("the bundle of {} has no kubectl", manifest.kubernetes))
    })?;
    let blob = bundle.blob(&part.digest);
    match unpack_blob(&blob, program) {
        Ok(true) => Ok(()),
        Ok(false) => Err(EngineError::failed(format!("{} contains no kubectl", blob.display()))),
        Err(error) => Err(cannot("unpack", &blob, &error)),
    }
}

/// Unpacks the program. Returns whether the archive contains it.
fn unpack_blob(blob: &Path, program: &Path) -> io::Result<bool> {
    let file = fs::File::open(blob)?;
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.path()?.ends_with("kubectl") || !entry.header().entry_type().is_file() {
            continue;
        }
        let folder = program.parent().unwrap_or(Path::new("."));
        let new = AtomicFile::new_in(folder, 0o755)?;
        io::copy(&mut entry, &mut new.as_file())?;
        new.commit(program)?;
        return Ok(true);
    }
    Ok(false)
}
