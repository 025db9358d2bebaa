//! A cluster out of a snapshot of etcd: on its own hosts after `destroy`, or on others.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use kubeon_api::Digest;
use kubeon_atomic_file::AtomicFile;
use kubeon_plan::HostSpec;
use kubeon_store::{RestoredPart, Status};
use sha2::{Digest as _, Sha256};

use crate::cluster_request::HostRequest;
use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::etcd_snapshot::{self, state_file};
use crate::login_merge::refuse_unused_flags;
use crate::login_request::HostLoginRequest;

/// The compression level of the part: a snapshot is compressed once and sent to a few masters.
const LEVEL: i32 = 3;
/// The name of the snapshot in its part.
const NAME: &str = "snapshot.db";

/// What a cluster is restored from, and onto which hosts.
#[derive(Debug, Clone)]
pub struct RestoreRequest<'a> {
    /// The cluster.
    pub name: &'a str,
    /// The snapshot.
    pub file: &'a Path,
    /// The masters; empty for those of the stored cluster.
    pub masters: Vec<HostRequest>,
    /// The workers; if masters are given, these are all workers.
    pub workers: Vec<HostRequest>,
}

/// The target of a cluster that is made out of a snapshot. A cluster that is not known on this machine is read from the
/// file beside the snapshot.
///
/// # Errors
/// Refuses a damaged snapshot, and one that is not known as a snapshot of the cluster.
pub fn target(
    engine: &Engine<'_>,
    request: RestoreRequest<'_>,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let snapshot = etcd_snapshot::check(request.file)?;
    let flags = options.logins.clone();
    let mut state = known_or_imported(engine, &request)?;
    let Some(taken) = state.snapshots.get(&snapshot.sha256).copied() else {
        let error = EngineError::refused(format!(
            "{} is not known as a snapshot of {}",
            request.file.display(),
            state.name
        ));
        let hint = format!("kubeon state import {} <{}", state.name, state_file(request.file).display());
        return Err(error.row("sha256", snapshot.sha256).row("fix", hint));
    };
    let part = pack(&engine.store.restore_folder(&state.name), request.file)?;
    state.restoring = Some(part);
    (state.status, state.version) = (Status::Creating, None);
    state.spec.version = taken.version;
    state.bundle.clear();
    (state.leaving, state.joining) = Default::default();
    (state.leaving_masters, state.joining_masters) = Default::default();
    let added: Vec<HostRequest> = request.masters.iter().chain(&request.workers).cloned().collect();
    if !added.is_empty() {
        state.spec.masters = request.masters.into_iter().map(HostSpec::from).collect();
        state.spec.workers = request.workers.into_iter().map(HostSpec::from).collect();
        state.logins.retain(|host, _| added.iter().any(|added| added.address == *host));
    }
    let mut target = ClusterTarget::stored(engine, state, options)?;
    for HostRequest { address, login, .. } in added {
        target.logins.insert(address, HostLoginRequest { flags: login, ..HostLoginRequest::default() });
    }
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

/// Removes the packed snapshot of a cluster that is not being restored, such as one whose restore was refused.
///
/// # Errors
/// When it cannot be removed.
pub fn forget_unused(engine: &Engine<'_>, name: &str) -> Result<(), EngineError> {
    let name = engine.name(Some(name))?;
    let restores = engine.store.exists(&name) && engine.load(&name)?.restoring.is_some();
    let folder = engine.store.restore_folder(&name);
    if restores || !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(&folder).map_err(|error| {
        EngineError::failed(format!("cannot remove {}", folder.display())).row("cause", error.to_string())
    })
}

fn known_or_imported(
    engine: &Engine<'_>,
    request: &RestoreRequest<'_>,
) -> Result<StoredCluster, EngineError> {
    let name = engine.name(Some(request.name))?;
    if !engine.store.exists(&name) {
        let path = state_file(request.file);
        let file = File::open(&path).map_err(|error| {
            EngineError::refused(format!("Cluster[{name}] not exist, and {} cannot be read", path.display()))
                .row("cause", error.to_string())
        })?;
        let lock = engine.store.lock(&name, "kubeon etcd restore")?;
        engine.store.import(&lock, file)?;
        engine.output.info(&format!("{name}: its state and keys come from {}", path.display()));
    }
    engine.load(&name)
}

/// Packs a snapshot as a part for hosts into a folder.
fn pack(folder: &Path, snapshot: &Path) -> Result<RestoredPart, EngineError> {
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
    Ok(RestoredPart { digest, size, unpacked_size })
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
        assert_eq!(pack(&folder.path().join("restore"), &snapshot).unwrap(), part, "the same again");
    }
}
