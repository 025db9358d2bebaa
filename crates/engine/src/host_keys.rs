//! Trusted host keys: pinned keys, keys in the user's known_hosts files, and keys that the user accepts.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt as _;
use kubeon_api::{ClusterName, HostAddress};
use kubeon_link_host::{HostKeyPolicy, HostKeys, KeySource, Login, SeenKey, SshHosts, SshSettings};

use crate::engine::Engine;
use crate::error::{EngineError, chain};
use crate::login::{DEFAULT_PORT, Logins};
use crate::memory_file::MemoryFile;
use crate::remedy::{EngineRemedy, RefusedInput};

/// Number of hosts whose key is read at once.
const MAX_CONCURRENT: usize = 64;

/// Host keys that are accepted besides the pinned keys.
#[derive(Debug, Clone, Default)]
pub struct HostKeyOptions {
    /// Accept the keys of unknown hosts, except of hosts that get a password.
    pub accept_new: bool,
    /// A further known_hosts file.
    pub known_hosts: Option<PathBuf>,
}

/// How to handle unknown host keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// Accept for this run and do not pin. Only allowed when no secret is sent.
    AcceptOnce,
    /// Accept if a flag says so, else ask the user.
    Ask,
    /// Refuse.
    Refuse,
}

impl Engine<'_> {
    /// The trusted host keys of a cluster.
    ///
    /// # Errors
    /// When a known_hosts file cannot be read, or the user does not accept a key.
    pub async fn host_keys(
        &self,
        cluster: &ClusterName,
        logins: &mut Logins,
        options: &HostKeyOptions,
        unknown: UnknownKeys,
    ) -> Result<Arc<HostKeys>, EngineError> {
        let policy = match unknown {
            UnknownKeys::AcceptOnce => HostKeyPolicy::Probe,
            UnknownKeys::Ask | UnknownKeys::Refuse if options.accept_new => HostKeyPolicy::AcceptNew,
            UnknownKeys::Ask | UnknownKeys::Refuse => HostKeyPolicy::Pinned,
        };
        let files = self.key_files(logins, options)?;
        let known = || -> Result<HostKeys, EngineError> {
            let mut known = self.known(cluster, policy, &files)?.with_password_hosts(logins.password_hosts());
            for (host, before) in &logins.former {
                let port = logins.logins.get(host).map_or(DEFAULT_PORT, |login| login.port);
                known = known.with_moved_host(*before, SocketAddrV4::new(host.ip(), port));
            }
            Ok(known)
        };
        let questions: Vec<HostAddress> = match policy {
            HostKeyPolicy::Pinned => logins.logins.keys().copied().collect(),
            // A person must confirm the keys of these hosts.
            HostKeyPolicy::AcceptNew => logins.password_hosts().collect(),
            HostKeyPolicy::Probe => Vec::new(),
        };
        if unknown == UnknownKeys::Ask && !questions.is_empty() && self.output.can_ask() {
            let accepted = self.ask(logins, questions, known()?).await?;
            return Ok(Arc::new(known()?.with_accepted(&accepted)));
        }
        Ok(Arc::new(known()?))
    }

    fn known(
        &self,
        cluster: &ClusterName,
        policy: HostKeyPolicy,
        files: &[PathBuf],
    ) -> Result<HostKeys, EngineError> {
        let unreadable = |error| EngineError::refused(chain(&error));
        let path = self.store.known_hosts_path(cluster);
        let place = match &self.environment.pinned_in {
            Some(name) => KeySource::Elsewhere(name.clone()),
            None => KeySource::File(path.clone()),
        };
        let mut keys = HostKeys::new(policy).with_pinned_of(&path, place).map_err(unreadable)?;
        for file in files {
            keys = keys.with_known_hosts(file).map_err(unreadable)?;
        }
        Ok(keys)
    }

    /// The known_hosts files besides the keys that are pinned for the cluster.
    fn key_files(&self, logins: &mut Logins, options: &HostKeyOptions) -> Result<Vec<PathBuf>, EngineError> {
        let mut files = Vec::new();
        if let Some(file) = &options.known_hosts {
            if !file.is_file() {
                let input = RefusedInput::KnownHosts(file.clone());
                return Err(EngineError::input("a file cannot be read", input, "there is no such file"));
            }
            files.push(file.clone());
        }
        files.extend(self.environment.home.as_ref().map(|home| home.join(".ssh/known_hosts")));
        if !logins.lab_keys.is_empty() {
            let file = in_memory(&logins.lab_keys)?;
            files.push(file.path());
            logins.memory_files.push(file);
        }
        Ok(files)
    }

    /// Prints the unknown keys of hosts and asks once for all of them.
    async fn ask(
        &self,
        logins: &Logins,
        questions: Vec<HostAddress>,
        known: HostKeys,
    ) -> Result<Vec<SeenKey>, EngineError> {
        let mut settings = SshSettings::new(Login::new("root"));
        settings.logins = logins.logins.clone();
        let hosts = SshHosts::new(settings, Arc::new(known));
        // Of a large cluster, only the new hosts are contacted.
        let port = |host: &HostAddress| logins.logins.get(host).map_or(DEFAULT_PORT, |login| login.port);
        let unknown = questions.into_iter().filter(|host| !hosts.host_keys().knows(*host, port(host)));
        let unknown: Vec<HostAddress> = unknown.collect();
        let shown = futures::stream::iter(unknown)
            .map(|host| {
                let hosts = hosts.clone();
                async move { hosts.read_host_key(host).await.ok() }
            })
            .buffer_unordered(MAX_CONCURRENT)
            .collect::<Vec<_>>()
            .await;
        // Hosts that do not answer or show a changed key are reported when they are observed.
        let mut new: Vec<SeenKey> =
            shown.into_iter().flatten().filter(|key| hosts.host_keys().is_new(key)).collect();
        new.sort_by_key(|key| key.host);
        if new.is_empty() {
            return Ok(new);
        }
        self.output.info("SSH keys of hosts that are seen for the first time:");
        for key in &new {
            self.output.info(&format!("  {:<15}  {}", key.host.to_string(), key.fingerprint));
        }
        if !self.output.confirm("Are these the right hosts?")? {
            let error = EngineError::refused("the keys of the hosts were not accepted");
            return Err(error.remedy(EngineRemedy::TrustHostKeys));
        }
        Ok(new)
    }
}

fn in_memory(text: &str) -> Result<MemoryFile, EngineError> {
    MemoryFile::new(text)
        .map_err(|error| EngineError::failed(format!("cannot store host keys in memory: {error}")))
}
