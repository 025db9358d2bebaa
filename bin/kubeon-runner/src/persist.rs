//! Persists the state of the cluster and its kubeconfigs, each in a Secret that the operator created for this Job, and the
//! host keys in a ConfigMap.
//!
//! ```text
//!   /state ─► import ─► home ─► work ─► export ─► Secret      before the first change of a host, and at the end
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::commands::KubeonProgram;
use crate::inputs;
use crate::job::JobContext;
use crate::known_hosts::{self, KnownHosts};
use crate::meta::{LARGEST_SECRET, MetaCluster, MetaError, WrittenObject};
use crate::outcome::WorkOutcome;
use crate::save_error::SaveError;

/// The key of the state in its Secret.
const STATE: &str = "state.tar.zst";
/// The key of the cluster's name in the same Secret.
const NAME: &str = "name";
/// The key of a kubeconfig in its Secret.
const KUBECONFIG: &str = "kubeconfig";
/// The time limit of one write. The program waits for 120 s.
const SAVE_TIMEOUT: Duration = Duration::from_secs(100);

/// A temporary folder for the program's state. Dropping the value removes the folder.
pub(crate) fn home(job: &JobContext) -> io::Result<TempDir> {
    let settings = &job.settings;
    let parent = settings.flags.kubeon.scratch.as_deref().unwrap_or(&settings.environment.temporary);
    let home = tempfile::Builder::new().prefix("kubeon-").tempdir_in(parent)?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o700))?;
    Ok(home)
}

/// Copies the state between the Secrets and the program's folder.
pub(crate) struct StatePersistence<'a> {
    /// The Job.
    pub job: &'a JobContext,
    /// The program and its folder.
    pub engine: &'a KubeonProgram,
    /// The host keys, when their ConfigMap is mounted.
    pub known_hosts: Option<&'a KnownHosts>,
}

impl StatePersistence<'_> {
    /// The meta cluster. None for a run outside a Job, which persists nothing.
    ///
    /// # Errors
    /// When there is none although the state must be persisted.
    pub(crate) fn meta(&self) -> Result<Option<&MetaCluster>, SaveError> {
        match &self.job.meta {
            None if self.job.settings.must_persist() => Err(SaveError::Nowhere),
            meta => Ok(meta.as_ref()),
        }
    }

    /// The name of the cluster whose state an earlier operation saved.
    pub(crate) fn saved_cluster(&self) -> Option<String> {
        let name = self.job.settings.flags.kubeon.state.with_file_name(NAME);
        fs::read_to_string(name).ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// Imports the state that an earlier operation saved, if there is one.
    ///
    /// # Errors
    /// The outcome of the Job, when the state cannot be imported.
    pub(crate) async fn restore(&self, cluster: &str) -> Result<(), WorkOutcome> {
        let file = &self.job.settings.flags.kubeon.state;
        let failed = |error: &dyn std::fmt::Display| {
            WorkOutcome::failed(1, format!("cannot restore the state from {}: {error}", file.display()))
        };
        let state = match File::open(file) {
            Ok(state) => state,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(&error)),
        };
        if state.metadata().map_err(|error| failed(&error))?.len() == 0 {
            return Ok(());
        }
        let mut command = self.engine.import_state(cluster);
        let import = self.job.run_tool(&mut command, Some(state), LARGEST_SECRET).await;
        import
            .map(|_| ())
            .map_err(|error| self.job.shutdown.request().map_or_else(|| failed(&error), WorkOutcome::stopped))
    }

    /// Saves the state while the program waits for it.
    ///
    /// # Errors
    /// When saving fails, or a shutdown is requested meanwhile.
    pub(crate) async fn save_while_held(&self, cluster: &str) -> Result<(), SaveError> {
        tokio::select! {
            saved = self.save_state(cluster) => saved,
            () = self.job.shutdown.requested() => Err(SaveError::Stopped),
        }
    }

    /// Saves the host keys, then the state. The next Job prefers the keys in the ConfigMap to those in the state, so
    /// they must never be older.
    ///
    /// # Errors
    /// When a write fails.
    pub(crate) async fn save_state(&self, cluster: &str) -> Result<(), SaveError> {
        if self.meta()?.is_none() {
            return Ok(());
        }
        if let Some(known) = self.known_hosts {
            self.save_known_hosts(known).await?;
        }
        let state = self.job.run_tool(&mut self.engine.export_state(cluster), None, LARGEST_SECRET).await?;
        let named = self.job.settings.flags.meta.state_secret.as_ref();
        let data = BTreeMap::from([(STATE, state), (NAME, cluster.as_bytes().to_vec())]);
        self.write(self.secret_ref(cluster, named, "state"), data).await
    }

    async fn save_known_hosts(&self, known: &KnownHosts) -> Result<(), SaveError> {
        let text = known.pinned()?;
        if known.differs(&text) {
            self.write_text(known.map(), &text).await?;
            known.written(&text);
        }
        self.job.view.send_modify(|view| view.host_keys_pinned(&known.new_in(&text)));
        Ok(())
    }

    /// Empties the ConfigMap of the host keys, when it is mounted.
    ///
    /// # Errors
    /// When a write fails.
    pub(crate) async fn forget_known_hosts(&self) -> Result<(), SaveError> {
        match self.known_hosts {
            Some(known) => self.write_text(known.map(), "").await,
            None => Ok(()),
        }
    }

    /// Empties the Secrets of a cluster that no longer exists.
    ///
    /// # Errors
    /// When a write fails.
    pub(crate) async fn forget(&self, cluster: &str) -> Result<(), SaveError> {
        let flags = &self.job.settings.flags.meta;
        let empty = |key| BTreeMap::from([(key, Vec::new())]);
        self.write(self.secret_ref(cluster, flags.state_secret.as_ref(), "state"), empty(STATE)).await?;
        self.write(
            self.secret_ref(cluster, flags.kubeconfig_secret.as_ref(), "kubeconfig"),
            empty(KUBECONFIG),
        )
        .await
    }

    /// Saves the admin kubeconfig and returns it.
    ///
    /// # Errors
    /// When its file is missing or the write fails.
    pub(crate) async fn save_kubeconfig(&self, cluster: &str) -> Result<String, SaveError> {
        let text = read(&self.engine.kubeconfig(cluster))?;
        let named = self.job.settings.flags.meta.kubeconfig_secret.as_ref();
        let data = BTreeMap::from([(KUBECONFIG, text.clone().into_bytes())]);
        self.write(self.secret_ref(cluster, named, "kubeconfig"), data).await?;
        Ok(text)
    }

    /// Saves a new kubeconfig for the operator, which observes the cluster with it.
    ///
    /// # Errors
    /// When it cannot be created or the write fails.
    pub(crate) async fn save_observer(&self, cluster: &str) -> Result<(), SaveError> {
        let Some(named) = &self.job.settings.flags.meta.observer_secret else { return Ok(()) };
        let text = self.job.run_tool(&mut self.engine.observer(cluster), None, LARGEST_SECRET).await?;
        let data = BTreeMap::from([(KUBECONFIG, text)]);
        self.write(self.secret_ref(cluster, Some(named), "observer"), data).await
    }

    async fn write(
        &self,
        target: WrittenObject,
        data: BTreeMap<&'static str, Vec<u8>>,
    ) -> Result<(), SaveError> {
        let Some(meta) = self.meta()? else { return Ok(()) };
        self.within_deadline(&target, meta.save_secret(&target, data)).await
    }

    async fn write_text(&self, target: &WrittenObject, text: &str) -> Result<(), SaveError> {
        let Some(meta) = self.meta()? else { return Ok(()) };
        self.within_deadline(target, meta.save_text(target, known_hosts::KEY, text.to_owned())).await
    }

    async fn within_deadline(
        &self,
        target: &WrittenObject,
        saving: impl Future<Output = Result<(), MetaError>>,
    ) -> Result<(), SaveError> {
        tokio::select! {
            saved = saving => saved.map_err(|error| SaveError::Write(target.clone(), error)),
            () = self.job.shutdown.deadline(SAVE_TIMEOUT) => Err(SaveError::Late(target.clone())),
        }
    }

    fn secret_ref(&self, cluster: &str, named: Option<&String>, suffix: &str) -> WrittenObject {
        inputs::object_ref(&self.job.settings, cluster, named, ("Secret", suffix))
    }
}

fn read(file: &Path) -> Result<String, SaveError> {
    fs::read_to_string(file).map_err(|error| SaveError::Read(file.display().to_string(), error))
}
