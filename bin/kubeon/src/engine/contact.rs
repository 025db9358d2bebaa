//! Hosts that can be talked to.

use std::sync::Arc;
use std::time::Duration;

use kubeon_api::ClusterName;
use kubeon_link_host::{HostKeys, Limits, Login, NodeProgram, Settings, SshHosts};
use kubeon_store::Lock;

use super::host_keys::Unknown;
use super::login::Logins;
use super::{Engine, stop};
use crate::args::ContactFlags;
use crate::cli_error::CliError;

/// How long a host may take to take a connection at a glance; what runs on it has no part in that.
const ANSWER: Duration = Duration::from_secs(3);

/// The hosts of a cluster, and what was needed to reach them.
pub struct Contact {
    /// The way to the hosts.
    pub hosts: SshHosts,
    keys: Arc<HostKeys>,
    /// Keys held in memory for as long as hosts are reached.
    pub logins: Logins,
}

/// What is to be done with the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Look, and write nothing anywhere.
    Look,
    /// Look, for no longer than a glance.
    Glance(Duration),
    /// Talk to a cluster that is known.
    Talk,
    /// Change hosts.
    Change,
}

impl Engine<'_> {
    /// Gets ready to reach hosts; connects only to ask a person about new keys.
    ///
    /// # Errors
    /// When keys or the node program cannot be read, or a person does not accept a key.
    pub async fn contact(
        &self,
        cluster: &ClusterName,
        mut logins: Logins,
        flags: &ContactFlags,
        purpose: Purpose,
    ) -> Result<Contact, CliError> {
        let unknown = match purpose {
            // A password goes to whoever answers: a stranger gets none, not even for a look.
            Purpose::Look if logins.send_secrets() => Unknown::Settle,
            Purpose::Look => Unknown::Look,
            Purpose::Glance(_) => Unknown::Refuse,
            Purpose::Talk | Purpose::Change => Unknown::Settle,
        };
        let keys = self.host_keys(cluster, &mut logins, flags, unknown).await?;
        let mut settings = Settings::new(Login::new("root"));
        settings.logins = logins.logins.clone();
        if let Purpose::Glance(limit) = purpose {
            settings.limits = Limits { connect: limit.min(ANSWER), facts: limit, ..Limits::default() };
        }
        if purpose == Purpose::Change {
            settings.node_program = Some(self.node_program()?);
        }
        Ok(Contact { hosts: SshHosts::new(settings, Arc::clone(&keys)), keys, logins })
    }

    fn node_program(&self) -> Result<NodeProgram, CliError> {
        let Some(path) = self.context.environment.node_program() else {
            return Err(CliError::refused(
                "where this program lies cannot be told: set KUBEON_NODE_PROGRAM to kubeon-node",
            ));
        };
        NodeProgram::read(&path).map_err(|error| {
            CliError::refused(format!("cannot read the node program {}: {error}", path.display()))
                .row("way out", "put kubeon-node beside kubeon, or set KUBEON_NODE_PROGRAM to it")
        })
    }
}

impl Contact {
    /// Pins the keys that hosts showed and that were accepted.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn pin(&self, engine: &Engine<'_>, lock: &Lock) -> Result<(), CliError> {
        if self.keys.new_keys().is_empty() {
            return Ok(());
        }
        engine.store.save_known_hosts(lock, &self.keys.pinned_text()).map_err(stop)?;
        Ok(())
    }
}
