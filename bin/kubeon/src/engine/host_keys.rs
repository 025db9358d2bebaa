//! Which host keys are trusted: those that are pinned, those that the user knows, and those that a person accepts.

use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt as _;
use kubeon_api::{ClusterName, HostAddress};
use kubeon_link_host::{HostKeys, KeyPlace, Login, Policy, SeenKey, Settings, SshHosts};

use super::Engine;
use super::login::Logins;
use super::memory::MemoryFile;
use crate::args::ContactFlags;
use crate::cli_error::{CliError, chain};

/// How many hosts are asked for their key at once.
const AT_ONCE: usize = 64;

/// What is done about keys that nobody knows yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
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
        flags: &ContactFlags,
        unknown: Unknown,
    ) -> Result<Arc<HostKeys>, CliError> {
        let policy = match unknown {
            Unknown::Look => Policy::Probe,
            Unknown::Settle | Unknown::Refuse if flags.accept_new => Policy::AcceptNew,
            Unknown::Settle | Unknown::Refuse => Policy::Pinned,
        };
        let files = self.key_files(cluster, logins, flags)?;
        if unknown == Unknown::Settle && policy == Policy::Pinned && self.context.talk.can_ask {
            let accepted = self.ask(logins, self.known(cluster, policy, &files)?).await?;
            let keys = self.known(cluster, policy, &files)?;
            return Ok(Arc::new(keys.with_accepted(&accepted)));
        }
        Ok(Arc::new(self.known(cluster, policy, &files)?))
    }

    fn known(&self, cluster: &ClusterName, policy: Policy, files: &[PathBuf]) -> Result<HostKeys, CliError> {
        let unreadable = |error| CliError::refused(chain(&error));
        let path = self.store.known_hosts_path(cluster);
        let place = match &self.context.environment.pinned_in {
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
    fn key_files(
        &self,
        _: &ClusterName,
        logins: &mut Logins,
        flags: &ContactFlags,
    ) -> Result<Vec<PathBuf>, CliError> {
        let mut files = Vec::new();
        if let Some(file) = &flags.known_hosts {
            if !file.is_file() {
                return Err(CliError::refused(format!(
                    "--known-hosts {}: there is no such file",
                    file.display()
                )));
            }
            files.push(file.clone());
        }
        files.extend(self.context.environment.home.as_ref().map(|home| home.join(".ssh/known_hosts")));
        if !logins.lab_keys.is_empty() {
            let file = hold(&logins.lab_keys)?;
            files.push(file.path());
            logins.held.push(file);
        }
        Ok(files)
    }

    /// Shows what hosts show that nobody knows, and asks once for all.
    async fn ask(&self, logins: &Logins, known: HostKeys) -> Result<Vec<SeenKey>, CliError> {
        let mut settings = Settings::new(Login::new("root"));
        settings.logins = logins.logins.clone();
        let hosts = SshHosts::new(settings, Arc::new(known));
        let shown = futures::stream::iter(logins.logins.keys().copied().collect::<Vec<HostAddress>>())
            .map(|host| {
                let hosts = hosts.clone();
                async move { hosts.look_at_key(host).await.ok() }
            })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        // Hosts that do not answer, or show another key than the known one, are told of by the look that follows.
        let mut new: Vec<SeenKey> =
            shown.into_iter().flatten().filter(|key| hosts.host_keys().is_new(key)).collect();
        new.sort_by_key(|key| key.host);
        if new.is_empty() {
            return Ok(new);
        }
        self.context.talk.say("SSH keys of hosts that are seen for the first time:");
        for key in &new {
            self.context.talk.say(&format!("  {:<15}  {}", key.host.to_string(), key.fingerprint));
        }
        if !self.context.talk.confirm("Are these the right hosts?")? {
            return Err(CliError::refused("the keys of the hosts were not accepted")
                .row("compare", "on the host: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
                .row("instead", "--known-hosts FILE, or --accept-new"));
        }
        Ok(new)
    }
}

fn hold(text: &str) -> Result<MemoryFile, CliError> {
    MemoryFile::new(text).map_err(|error| CliError::failed(format!("cannot hold host keys: {error}")))
}
