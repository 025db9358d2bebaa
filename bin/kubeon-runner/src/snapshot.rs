//! The commands that write a snapshot of etcd to an object store, and that make a cluster out of one or return it to one. The
//! Secret of the store is mounted.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kubeon_api::Operation;

use crate::args::RunnerSettings;
use crate::commands::ClusterCommands;
use crate::inputs::InputError;

/// The credentials file of the AWS tools, in the Secret.
const CREDENTIALS: &str = "credentials";
/// The key of the encrypted snapshots, in the Secret and in the folder of the program.
const KEY: &str = "snapshot.key";
/// The authorities of the store, in the Secret.
const AUTHORITIES: &str = "ca.crt";

/// The command that writes a snapshot.
///
/// # Errors
/// When an input is missing, or the key cannot be copied.
pub(crate) fn save(settings: &RunnerSettings, kubeon: &ClusterCommands) -> Result<Command, InputError> {
    let folder = settings.environment.snapshot_folder.as_deref().ok_or(InputError::NoSnapshotFolder)?;
    let key = key(settings, kubeon)?;
    let command = kubeon.snapshot(folder, &key, settings.environment.snapshot_keep.as_deref());
    with_object_store(settings, command)
}

/// The command that makes the cluster out of a snapshot, if the declaration names one.
///
/// # Errors
/// As for [`save`].
pub(crate) fn restore(
    settings: &RunnerSettings,
    kubeon: &ClusterCommands,
) -> Result<Option<Command>, InputError> {
    let Some(snapshot) = &settings.environment.snapshot_restore else { return Ok(None) };
    let key = key(settings, kubeon)?;
    with_object_store(settings, kubeon.restore(snapshot, &key)).map(Some)
}

/// The command that returns the cluster to the snapshot that the declaration names. One that was interrupted continues.
///
/// # Errors
/// As for [`save`].
pub(crate) fn rollback(settings: &RunnerSettings, kubeon: &ClusterCommands) -> Result<Command, InputError> {
    let snapshot = settings.environment.snapshot_restore.as_deref().ok_or(InputError::NoSnapshot)?;
    let key = key(settings, kubeon)?;
    with_object_store(settings, kubeon.rollback(snapshot, &key))
}

/// The command that changes version or settings. A change to another version takes a snapshot to the store first, if there is
/// one.
///
/// # Errors
/// As for [`save`].
pub(crate) fn before_upgrade(
    settings: &RunnerSettings,
    kubeon: &ClusterCommands,
) -> Result<Command, InputError> {
    let mut command = kubeon.work(Operation::Updating);
    let Some(folder) = settings.environment.snapshot_folder.as_deref() else { return Ok(command) };
    if kubeon.new_version(Operation::Updating).is_none() {
        return Ok(command);
    }
    command.arg("--snapshot").arg(folder).arg("--key").arg(key(settings, kubeon)?);
    with_object_store(settings, command)
}

/// Adds the variables of the store.
fn with_object_store(settings: &RunnerSettings, mut command: Command) -> Result<Command, InputError> {
    let (environment, secret) = (&settings.environment, &settings.flags.kubeon.snapshots);
    let credentials = secret.join(CREDENTIALS);
    fs::metadata(&credentials).map_err(|error| InputError::SnapshotSecret(CREDENTIALS, error))?;
    command.env("AWS_SHARED_CREDENTIALS_FILE", credentials);
    let authorities = Some(secret.join(AUTHORITIES)).filter(|file| file.is_file());
    command.envs(authorities.map(|file| ("AWS_CA_BUNDLE", file)));
    command.envs(environment.snapshot_endpoint.as_ref().map(|endpoint| ("AWS_ENDPOINT_URL", endpoint)));
    command.envs(environment.snapshot_region.as_ref().map(|region| ("AWS_REGION", region)));
    Ok(command)
}

/// Copies the key to a file that only this user may read, because the group may read mounted files.
fn key(settings: &RunnerSettings, kubeon: &ClusterCommands) -> Result<PathBuf, InputError> {
    let key = kubeon.engine.home.join(KEY);
    copy_key(&settings.flags.kubeon.snapshots.join(KEY), &key)?;
    Ok(key)
}

fn copy_key(from: &Path, to: &Path) -> Result<(), InputError> {
    let copied = fs::read(from).and_then(|key| {
        File::options().write(true).create(true).truncate(true).mode(0o600).open(to)?.write_all(&key)
    });
    copied.map_err(|error| InputError::SnapshotSecret(KEY, error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_owner_may_read_the_copied_key() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("mounted"), folder.path().join("copied"));
        assert!(matches!(copy_key(&from, &to), Err(InputError::SnapshotSecret(KEY, _))));
        fs::write(&from, "secret").unwrap();
        copy_key(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&to).unwrap(), b"secret");
    }
}
