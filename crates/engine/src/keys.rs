//! The keys of a cluster: made before its first host is written to, and from then on those that its hosts know.

use std::path::{Path, PathBuf};

use kubeon_pki::{ClusterPki, PkiError};

use crate::engine::{Engine, StoredCluster};
use crate::error::{EngineError, chain};

impl Engine<'_> {
    /// The keys of a cluster. Those that are missing are made as long as no host can know them.
    ///
    /// # Errors
    /// Refuses when hosts may know what is missing here, and what is damaged; fails when a file cannot be read or
    /// written.
    pub fn keys(&self, state: &StoredCluster) -> Result<ClusterPki, EngineError> {
        keys_in(&self.store.secret_folder(&state.name), state)
    }

    /// Whether the keys that hosts may know are here. Writes nothing.
    ///
    /// # Errors
    /// As for [`Engine::keys`].
    pub fn look_for_keys(&self, state: &StoredCluster) -> Result<(), EngineError> {
        look_in(&self.store.secret_folder(&state.name), state)
    }
}

fn keys_in(folder: &Path, state: &StoredCluster) -> Result<ClusterPki, EngineError> {
    let keys = if state.may_be_on_hosts() {
        ClusterPki::load(folder)
    } else {
        ClusterPki::load_or_create(folder, state.spec.settings.ca_years)
    };
    keys.map_err(|error| refusal(&error, folder, state))
}

fn look_in(folder: &Path, state: &StoredCluster) -> Result<(), EngineError> {
    if !state.may_be_on_hosts() {
        return Ok(());
    }
    ClusterPki::look(folder).map_err(|error| refusal(&error, folder, state))
}

fn refusal(error: &PkiError, folder: &Path, state: &StoredCluster) -> EngineError {
    match error {
        PkiError::Missing { paths } => lost(folder, paths, state),
        PkiError::Unreadable { .. } => EngineError::refused(chain(error)),
        _ => EngineError::failed(chain(error)),
    }
}

/// New keys are never made in place of those that a cluster was made with.
fn lost(folder: &Path, paths: &[PathBuf], state: &StoredCluster) -> EngineError {
    let (name, folder) = (&state.name, folder.display());
    let missing: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    EngineError::refused(format!("the keys that {name} was made with are missing"))
        .row("missing", missing.join("\n"))
        .row("cause", format!("hosts may have them already: {name} would not know what new ones sign"))
        .row("way out", format!("put {folder} back from a backup, or from the machine where {name} was made"))
        .row("or else", format!("kubeon destroy {name}, then create it again"))
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;
    use kubeon_store::Status;

    use super::*;
    use crate::error::ErrorCategory;

    #[test]
    fn what_is_missing_is_made_only_while_no_host_can_know_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("demo");
        let etcd = folder.join("ca-etcd.pem");
        let mut state = StoredCluster::new("demo".parse().unwrap(), cluster(&["10.0.0.1"], &[]));
        look_in(&folder, &state).unwrap();
        assert!(!folder.exists(), "a look makes none");
        keys_in(&folder, &state).unwrap();
        std::fs::remove_file(&etcd).unwrap();
        keys_in(&folder, &state).unwrap();
        assert!(etcd.exists(), "a create that died half-way goes on");

        let running = StoredCluster { status: Status::Running, ..state.clone() };
        state.generation = 1;
        for made in [state, running] {
            keys_in(&folder, &made).unwrap();
            let kept = std::fs::read(&etcd).unwrap();
            std::fs::remove_file(&etcd).unwrap();
            let error = keys_in(&folder, &made).err().unwrap();
            let words = error.to_string();
            assert_eq!(error.category, ErrorCategory::Refused);
            let checked = look_in(&folder, &made).unwrap_err();
            assert_eq!(
                (checked.category, checked.to_string()),
                (error.category, words.clone()),
                "both refuse alike"
            );
            assert!(words.contains(&etcd.display().to_string()), "{words}");
            assert!(!words.contains("ca-kubernetes"), "{words}");
            assert!(!etcd.exists(), "nothing is made in its place");
            std::fs::write(&etcd, kept).unwrap();
        }
    }
}
