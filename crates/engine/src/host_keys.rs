//! Which host keys are trusted: those that are pinned, those that the user knows, and those that a person accepts.

use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt as _;
use kubeon_api::{ClusterName, HostAddress};
use kubeon_link_host::{HostKeyPolicy, HostKeys, KeyPlace, Login, SeenKey, SshHosts, SshSettings};

use crate::engine::Engine;
use crate::error::{EngineError, chain};
use crate::login::Logins;
use crate::memory_file::MemoryFile;

/// How many hosts are asked for their key at once.
const AT_ONCE: usize = 64;

/// Which host keys are accepted besides the pinned ones.
#[derive(Debug, Clone, Default)]
pub struct HostKeyOptions {
    /// Accept the keys of hosts that are reached for the first time.
    pub accept_new: bool,
    /// A further file of known keys.
    pub known_hosts: Option<PathBuf>,
}

/// What is done about keys that nobody knows yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// Taken as they are and forgotten: nothing is written. Only where no secret is sent.
    Look,
    /// Accepted by flag, by a person, or refused.
    Settle,
    /// Refused.
    Refuse,
}

impl Engine<'_> {
    /// The keys to compare with.
    ///
    /// # Errors
    /// When a file of keys cannot be read, or a person does not accept what hosts show.
    pub async fn host_keys(
        &self,
        cluster: &ClusterName,
        logins: &mut Logins,
        options: &HostKeyOptions,
        unknown: UnknownKeys,
    ) -> Result<Arc<HostKeys>, EngineError> {
        let policy = match unknown {
            UnknownKeys::Look => HostKeyPolicy::Probe,
            UnknownKeys::Settle | UnknownKeys::Refuse if options.accept_new => HostKeyPolicy::AcceptNew,
            UnknownKeys::Settle | UnknownKeys::Refuse => HostKeyPolicy::Pinned,
        };
        let files = self.key_files(logins, options)?;
        if unknown == UnknownKeys::Settle && policy == HostKeyPolicy::Pinned && self.output.can_ask() {
            let accepted = self.ask(logins, self.known(cluster, policy, &files)?).await?;
            let keys = self.known(cluster, policy, &files)?;
            return Ok(Arc::new(keys.with_accepted(&accepted)));
        }
        Ok(Arc::new(self.known(cluster, policy, &files)?))
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
            Some(name) => KeyPlace::Elsewhere(name.clone()),
            None => KeyPlace::File(path.clone()),
        };
        let mut keys = HostKeys::new(policy).with_pinned_of(&path, place).map_err(unreadable)?;
        for file in files {
            keys = keys.with_known_hosts(file).map_err(unreadable)?;
        }
        Ok(keys)
    }

    /// Files of keys that the user knows, besides those pinned for the cluster.
    fn key_files(&self, logins: &mut Logins, options: &HostKeyOptions) -> Result<Vec<PathBuf>, EngineError> {
        let mut files = Vec::new();
        if let Some(file) = &options.known_hosts {
            if !file.is_file() {
                return Err(EngineError::refused(format!(
                    "--known-hosts {}: there is no such file",
                    file.display()
                )));
            }
            files.push(file.clone());
        }
        files.extend(self.environment.home.as_ref().map(|home| home.join(".ssh/known_hosts")));
        if !logins.lab_keys.is_empty() {
            let file = in_memory(&logins.lab_keys)?;
            files.push(file.path());
            logins.held.push(file);
        }
        Ok(files)
    }

    /// Shows what hosts show that nobody knows, and asks once for all.
    async fn ask(&self, logins: &Logins, known: HostKeys) -> Result<Vec<SeenKey>, EngineError> {
        let mut settings = SshSettings::new(Login::new("root"));
        settings.logins = logins.logins.clone();
        let hosts = SshHosts::new(settings, Arc::new(known));
        let shown = futures::stream::iter(logins.logins.keys().copied().collect::<Vec<HostAddress>>())
            .map(|host| {
                let hosts = hosts.clone();
                async move { hosts.read_host_key(host).await.ok() }
            })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        // Hosts that do not answer or show another key than the known one are reported when they are observed.
        let mut new: Vec<SeenKey> =
            shown.into_iter().flatten().filter(|key| hosts.host_keys().is_new(key)).collect();
        new.sort_by_key(|key| key.host);
        if new.is_empty() {
            return Ok(new);
        }
        self.output.say("SSH keys of hosts that are seen for the first time:");
        for key in &new {
            self.output.say(&format!("  {:<15}  {}", key.host.to_string(), key.fingerprint));
        }
        if !self.output.confirm("Are these the right hosts?")? {
            return Err(EngineError::refused("the keys of the hosts were not accepted")
                .row("compare", "on the host: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
                .row("instead", "--known-hosts FILE, or --accept-new"));
        }
        Ok(new)
    }
}

fn in_memory(text: &str) -> Result<MemoryFile, EngineError> {
    MemoryFile::new(text).map_err(|error| EngineError::failed(format!("cannot hold host keys: {error}")))
}
