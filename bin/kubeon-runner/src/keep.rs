//! What outlives a Job: the engine's state of a cluster and its admin kubeconfig, each in a Secret that the operator made
//! for this Job, and beside them the keys of its hosts in a ConfigMap.
//!
//! ```text
//!   /state ─► import ─► home ─► work ─► export ─► Secret      before the first effect on a host, and at the end
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::args::Settings;
use crate::commands::Engine;
use crate::inputs;
use crate::job::{HelperError, Job};
use crate::known_hosts::{self, KnownHosts};
use crate::meta::{LARGEST_SECRET, Meta, MetaError, Place, TOKEN};
use crate::outcome::Outcome;

/// The key of the state in its Secret.
const STATE: &str = "state.tar.zst";
/// The key of the cluster's name beside it.
const NAME: &str = "name";
/// The key of the kubeconfig in its Secret.
const KUBECONFIG: &str = "kubeconfig";
/// How long saving may take while the program waits for it; it waits for 120 s.
const SAVE: Duration = Duration::from_secs(100);

/// Why something was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The program does not give it.
    #[error("cannot take the state from the program: {0}")]
    Export(#[from] HelperError),
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(String, io::Error),
    /// The meta cluster does not take it.
    #[error("cannot write {0}: {1}")]
    Write(Place, MetaError),
    /// The meta cluster did not take it in time.
    #[error("cannot write {0}: no success in time")]
    Late(Place),
    /// There is no way to the meta cluster.
    #[error(
        "there is nowhere to keep the state: no service account's token is mounted at {TOKEN}; a Job that the operator makes \
         has it, others need serviceAccountName: kubeon-runner"
    )]
    Nowhere,
    /// The runner was told to stop first.
    #[error("told to stop")]
    Stopped,
}

/// A folder for the program's state, gone when dropped.
pub fn home(job: &Job) -> io::Result<TempDir> {
    let settings = &job.settings;
    let parent = settings.flags.kubeon.scratch.as_deref().unwrap_or(&settings.environment.temporary);
    let home = tempfile::Builder::new().prefix("kubeon-").tempdir_in(parent)?;
    fs::set_permissions(home.path(), Permissions::from_mode(0o700))?;
    Ok(home)
}

/// Moves state between Secrets and the program's folder.
pub struct Keep<'a> {
    /// Whose.
    pub job: &'a Job,
    /// The program and its folder.
    pub engine: &'a Engine,
    /// The keys of the hosts, where they have a ConfigMap of their own.
    pub known_hosts: Option<&'a KnownHosts>,
}

impl Keep<'_> {
    /// The meta cluster; none for somebody who runs this by hand and keeps nothing.
    ///
    /// # Errors
    /// When there is none and somebody counts on the state being kept.
    pub fn meta(&self) -> Result<Option<&Meta>, SaveError> {
        match &self.job.meta {
            None if self.job.settings.must_keep() => Err(SaveError::Nowhere),
            meta => Ok(meta.as_ref()),
        }
    }

    /// The cluster whose state an earlier operation left; none when none did.
    pub fn left(&self) -> Option<String> {
        let name = self.job.settings.flags.kubeon.state.with_file_name(NAME);
        fs::read_to_string(name).ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// Puts what an earlier operation left in place.
    ///
    /// # Errors
    /// What came of it, when that cannot be done.
    pub async fn restore(&self, cluster: &str) -> Result<(), Outcome> {
        let file = &self.job.settings.flags.kubeon.state;
        let told = |error: &dyn std::fmt::Display| {
            Outcome::failed(1, format!("cannot restore the state from {}: {error}", file.display()))
        };
        let state = match File::open(file) {
            Ok(state) => state,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(told(&error)),
        };
        if state.metadata().map_err(|error| told(&error))?.len() == 0 {
            return Ok(());
        }
        let mut command = self.engine.import_state(cluster);
        let import = self.job.helper(&mut command, Some(state), LARGEST_SECRET).await;
        import.map(|_| ()).map_err(|error| self.job.stop.told().map_or_else(|| told(&error), Outcome::told))
    }

    /// Saves the state while the program waits for it.
    ///
    /// # Errors
    /// When that did not succeed, or the runner was told to stop meanwhile.
    pub async fn save_while_held(&self, cluster: &str) -> Result<(), SaveError> {
        tokio::select! {
            saved = self.save_state(cluster) => saved,
            () = self.job.stop.asked() => Err(SaveError::Stopped),
        }
    }

    /// Saves the state, and before it the keys of the hosts: what the next Job finds there wins over the state's, so
    /// they must never be older.
    ///
    /// # Errors
    /// When that did not succeed.
    pub async fn save_state(&self, cluster: &str) -> Result<(), SaveError> {
        if self.meta()?.is_none() {
            return Ok(());
        }
        if let Some(known) = self.known_hosts {
            self.save_known_hosts(known).await?;
        }
        let state = self.job.helper(&mut self.engine.export_state(cluster), None, LARGEST_SECRET).await?;
        let named = self.job.settings.flags.meta.state_secret.as_ref();
        let data = BTreeMap::from([(STATE, state), (NAME, cluster.as_bytes().to_vec())]);
        self.write(self.place(cluster, named, "state"), data).await
    }

    async fn save_known_hosts(&self, known: &KnownHosts) -> Result<(), SaveError> {
        let text = known.now()?;
        if known.differs(&text) {
            self.write_text(known.map(), &text).await?;
            known.written(&text);
        }
        self.job.board.send_modify(|board| board.host_keys_pinned(&known.new_in(&text)));
        Ok(())
    }

    /// Writes that no key of a host is known any more, where they have a ConfigMap.
    ///
    /// # Errors
    /// When that did not succeed.
    pub async fn forget_known_hosts(&self) -> Result<(), SaveError> {
        match self.known_hosts {
            Some(known) => self.write_text(known.map(), "").await,
            None => Ok(()),
        }
    }

    /// Writes that nothing is remembered any more.
    ///
    /// # Errors
    /// When that did not succeed.
    pub async fn forget(&self, cluster: &str) -> Result<(), SaveError> {
        let flags = &self.job.settings.flags.meta;
        let nothing = |key| BTreeMap::from([(key, Vec::new())]);
        self.write(self.place(cluster, flags.state_secret.as_ref(), "state"), nothing(STATE)).await?;
        self.write(self.place(cluster, flags.kubeconfig_secret.as_ref(), "kubeconfig"), nothing(KUBECONFIG))
            .await
    }

    /// Writes the admin kubeconfig, and gives it.
    ///
    /// # Errors
    /// When it is not there, or that did not succeed.
    pub async fn save_kubeconfig(&self, cluster: &str) -> Result<String, SaveError> {
        let text = read(&self.engine.kubeconfig(cluster))?;
        let named = self.job.settings.flags.meta.kubeconfig_secret.as_ref();
        let data = BTreeMap::from([(KUBECONFIG, text.clone().into_bytes())]);
        self.write(self.place(cluster, named, "kubeconfig"), data).await?;
        Ok(text)
    }

    async fn write(&self, place: Place, data: BTreeMap<&'static str, Vec<u8>>) -> Result<(), SaveError> {
        let Some(meta) = self.meta()? else { return Ok(()) };
        self.in_time(&place, meta.save_secret(&place, data)).await
    }

    async fn write_text(&self, place: &Place, text: &str) -> Result<(), SaveError> {
        let Some(meta) = self.meta()? else { return Ok(()) };
        self.in_time(place, meta.save_text(place, known_hosts::KEY, text.to_owned())).await
    }

    async fn in_time(
        &self,
        place: &Place,
        saving: impl Future<Output = Result<(), MetaError>>,
    ) -> Result<(), SaveError> {
        tokio::select! {
            saved = saving => saved.map_err(|error| SaveError::Write(place.clone(), error)),
            () = self.job.stop.last_word(SAVE) => Err(SaveError::Late(place.clone())),
        }
    }

    fn place(&self, cluster: &str, named: Option<&String>, what: &str) -> Place {
        place(&self.job.settings, cluster, named, ("Secret", what))
    }
}

/// Where something of a cluster is kept: under the name that was given, else under the one that it has by itself.
pub fn place(
    settings: &Settings,
    cluster: &str,
    named: Option<&String>,
    (kind, what): (&'static str, &str),
) -> Place {
    let of_cluster = inputs::namespace(settings);
    let name = named.cloned().unwrap_or_else(|| format!("{of_cluster}-{cluster}-{what}"));
    let namespace = settings.flags.meta.secret_namespace.clone().unwrap_or(of_cluster);
    Place { kind, namespace, name }
}

fn read(file: &Path) -> Result<String, SaveError> {
    fs::read_to_string(file).map_err(|error| SaveError::Read(file.display().to_string(), error))
}
