//! Replaces the keys of a cluster in phases: see [`ClusterKeys`]. The phase is stored before any host is written to, so that
//! every later change keeps to it, and a rotation continues where it ended.

use kubeon_api::{ClusterKeys, ClusterName};
use kubeon_pki::{ClusterPki, PkiError};
use kubeon_store::Status;

use crate::change::ReadyCluster;
use crate::engine::{Engine, StoredCluster};
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;

impl Engine<'_> {
    /// Asks whether the keys of the cluster may be replaced. An open rotation was confirmed when it began.
    ///
    /// # Errors
    /// Refuses when the user does not confirm.
    pub fn confirm_rotation(&self, state: &StoredCluster, yes: bool) -> Result<(), EngineError> {
        let name = &state.name;
        if yes || state.keys.rotation().is_some() {
            return Ok(());
        }
        let question = format!(
            "Replace all keys of {name}? Its nodes restart their services four times, one after another, and every copy of \
             its kubeconfig becomes invalid."
        );
        if self.output.confirm(&question)? {
            return Ok(());
        }
        let error = EngineError::refused(format!("the keys of {name} would be replaced: not confirmed"));
        Err(error.remedy(EngineRemedy::ConfirmRotation(name.clone())))
    }

    /// Makes the new keys and opens the first phase, unless a rotation is open.
    ///
    /// # Errors
    /// Refuses when a change of the cluster is not complete. Fails when a file cannot be written.
    pub fn begin_rotation(
        &self,
        mut state: StoredCluster,
        command: &str,
    ) -> Result<StoredCluster, EngineError> {
        if state.keys.rotation().is_some() {
            return Ok(state);
        }
        if state.status != Status::Running
            || !state.leaving.is_empty()
            || !state.joining.is_empty()
            || state.changes_members()
        {
            let error = EngineError::refused(format!("a change of {} is not complete", state.name));
            return Err(error.remedy(EngineRemedy::CompleteChange(state.name)));
        }
        let lock = self.lock(&state, true, command)?;
        let folder = self.store.secret_folder(&state.name);
        self.check_keys(&state)?;
        ClusterPki::make_next(&folder, state.keys, state.spec.settings.ca_years).map_err(failed)?;
        let next = state.keys.advanced();
        state.set_keys(next);
        self.store.save(&lock, &mut state)?;
        Ok(state)
    }

    /// Opens the phase after the one that all hosts completed. After the last phase, removes the old keys.
    ///
    /// # Errors
    /// Refuses when a host did not complete the phase, or another command changed the keys meanwhile. Fails when a file
    /// cannot be removed or written.
    pub fn advance_rotation(
        &self,
        completed: ClusterKeys,
        cluster: &ReadyCluster,
        command: &str,
    ) -> Result<StoredCluster, EngineError> {
        let name = &cluster.spec.name;
        if !cluster.unreachable.is_empty() {
            return Err(unreachable(name, completed, &cluster.unreachable));
        }
        let mut state = self.load(name)?;
        let lock = self.lock(&state, true, command)?;
        if state.keys != completed {
            return Err(EngineError::refused(format!("another command changed the keys of {name}")));
        }
        let next = completed.advanced();
        if next.rotation().is_none() {
            ClusterPki::remove_old(&self.store.secret_folder(name), next).map_err(failed)?;
        }
        state.set_keys(next);
        self.store.save(&lock, &mut state)?;
        Ok(state)
    }
}

fn failed(error: PkiError) -> EngineError {
    EngineError::failed(chain(&error))
}

fn unreachable(name: &ClusterName, keys: ClusterKeys, hosts: &[String]) -> EngineError {
    let phase = keys.rotation().map_or("", |phase| phase.as_str());
    EngineError::failed(format!("phase {phase} of the rotation of {name} is not complete"))
        .row("hosts", hosts.join(", "))
        .row("cause", "they do not answer, and the next phase would exclude them")
        .remedy(EngineRemedy::ContinueRotation(name.clone()))
}
