//! The command that writes a snapshot of etcd to an object store. The Secret of the store is mounted.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::args::RunnerSettings;
use crate::commands::ClusterCommands;
use crate::inputs::InputError;

/// The credentials file of the AWS tools, in the Secret.
const CREDENTIALS: &str = "credentials";
/// The key of the encrypted snapshots, in the Secret and in the folder of the program.
const KEY: &str = "snapshot.key";
/// The authorities of the store, in the Secret.
const AUTHORITIES: &str = "ca.crt";

/// The command. The key is copied to a file that only this user may read, because the group may read mounted files.
///
/// # Errors
/// When an input is missing, or the key cannot be copied.
pub(crate) fn command(settings: &RunnerSettings, kubeon: &ClusterCommands) -> Result<Command, InputError> {
    let (environment, secret) = (&settings.environment, &settings.flags.kubeon.snapshots);
    let folder = environment.snapshot_folder.as_deref().ok_or(InputError::NoSnapshotFolder)?;
    let credentials = secret.join(CREDENTIALS);
    fs::metadata(&credentials).map_err(|error| InputError::SnapshotSecret(CREDENTIALS, error))?;
    let key = kubeon.engine.home.join(KEY);
    copy_key(&secret.join(KEY), &key)?;
    let mut command = kubeon.snapshot(folder, &key, environment.snapshot_keep.as_deref());
    command.env("AWS_SHARED_CREDENTIALS_FILE", credentials);
    let authorities = Some(secret.join(AUTHORITIES)).filter(|file| file.is_file());
    command.envs(authorities.map(|file| ("AWS_CA_BUNDLE", file)));
    command.envs(environment.snapshot_endpoint.as_ref().map(|endpoint| ("AWS_ENDPOINT_URL", endpoint)));
    command.envs(environment.snapshot_region.as_ref().map(|region| ("AWS_REGION", region)));
    Ok(command)
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
