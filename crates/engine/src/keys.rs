//! The keys of a cluster. They are created before the first host is written to. After that they must stay the
//! same, because the hosts use them.

use std::path::{Path, PathBuf};

use kubeon_pki::{ClusterPki, PkiError};

use crate::engine::{Engine, StoredCluster};
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;

impl Engine<'_> {
    /// The keys of a cluster. Creates missing keys as long as no host was written to.
    ///
    /// # Errors
    /// Refuses when a key is damaged, or is missing and hosts may use it. Fails when a file cannot be read or
    /// written.
    pub fn keys(&self, state: &StoredCluster) -> Result<ClusterPki, EngineError> {
        let keys = keys_in(&self.store.secret_folder(&state.name), state)?;
        Ok(keys.with_longest_life(self.environment.leaf_minutes))
    }

    /// Checks that the keys that hosts may use exist. Writes nothing.
    ///
    /// # Errors
    /// As for [`Engine::keys`].
    pub fn check_keys(&self, state: &StoredCluster) -> Result<(), EngineError> {
        check_keys_in(&self.store.secret_folder(&state.name), state)
    }
}

fn keys_in(folder: &Path, state: &StoredCluster) -> Result<ClusterPki, EngineError> {
    let keys = if state.may_be_on_hosts() {
        ClusterPki::load(folder, state.keys, state.encrypts_secrets)
    } else {
        ClusterPki::load_or_create(folder, state.spec.settings.ca_years)
    };
    keys.map_err(|error| refusal(&error, folder, state))
}

fn check_keys_in(folder: &Path, state: &StoredCluster) -> Result<(), EngineError> {
    if !state.may_be_on_hosts() {
        return Ok(());
    }
    ClusterPki::check(folder, state.keys, state.encrypts_secrets)
        .map_err(|error| refusal(&error, folder, state))
}

fn refusal(error: &PkiError, folder: &Path, state: &StoredCluster) -> EngineError {
    match error {
        PkiError::Missing { paths } => missing_keys(folder, paths, state),
        PkiError::Unreadable { .. } => EngineError::refused(chain(error)),
        _ => EngineError::failed(chain(error)),
    }
}

/// New keys never replace the keys that a cluster was created with.
fn missing_keys(folder: &Path, paths: &[PathBuf], state: &StoredCluster) -> EngineError {
    let name = &state.name;
    let missing: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    EngineError::refused(format!("the keys that {name} was made with are missing"))
        .row("missing", missing.join("\n"))
        .row("cause", format!("the hosts of {name} may use these keys and would not trust new keys"))
        .remedy(EngineRemedy::RestoreKeys { cluster: name.clone(), folder: folder.to_owned() })
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;
    use kubeon_store::Status;

    use super::*;
    use crate::error::ErrorCategory;

    #[test]
    fn the_key_for_secrets_is_made_for_an_old_cluster_and_never_again() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("demo");
        let key = folder.join("encryption.keys");
        let mut state = StoredCluster::new("demo".parse().unwrap(), cluster(&["10.0.0.1"], &[]));
        keys_in(&folder, &state).unwrap();
        std::fs::remove_file(&key).unwrap();
        state.generation = 1;
        check_keys_in(&folder, &state).unwrap();
        assert!(!key.exists(), "the check creates no key");
        keys_in(&folder, &state).unwrap();
        assert!(key.exists(), "the older program made none");

        state.encrypts_secrets = true;
        std::fs::remove_file(&key).unwrap();
        for error in [keys_in(&folder, &state).err().unwrap(), check_keys_in(&folder, &state).unwrap_err()] {
            assert!(error.to_string().contains("encryption.keys"), "{error}");
        }
        assert!(!key.exists(), "Secrets in etcd need the old key");
    }

    #[test]
    fn missing_keys_are_created_only_before_hosts_were_written_to() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("demo");
        let etcd = folder.join("ca-etcd.pem");
        let mut state = StoredCluster::new("demo".parse().unwrap(), cluster(&["10.0.0.1"], &[]));
        check_keys_in(&folder, &state).unwrap();
        assert!(!folder.exists(), "the check creates no key");
        keys_in(&folder, &state).unwrap();
        std::fs::remove_file(&etcd).unwrap();
        keys_in(&folder, &state).unwrap();
        assert!(etcd.exists(), "an interrupted create continues");

        let running = StoredCluster { status: Status::Running, ..state.clone() };
        state.generation = 1;
        for existing in [state, running] {
            keys_in(&folder, &existing).unwrap();
            let kept = std::fs::read(&etcd).unwrap();
            std::fs::remove_file(&etcd).unwrap();
            let error = keys_in(&folder, &existing).err().unwrap();
            let words = error.to_string();
            assert_eq!(error.category, ErrorCategory::Refused);
            let checked = check_keys_in(&folder, &existing).unwrap_err();
            assert_eq!(
                (checked.category, checked.to_string()),
                (error.category, words.clone()),
                "both refuse with the same error"
            );
            assert!(words.contains(&etcd.display().to_string()), "{words}");
            assert!(!words.contains("ca-kubernetes"), "{words}");
            assert!(!etcd.exists(), "no new key is created");
            std::fs::write(&etcd, kept).unwrap();
        }
    }
}
