//! Hosts that can be talked to.

use std::sync::Arc;
use std::time::Duration;

use kubeon_api::ClusterName;
use kubeon_link_host::{HostKeys, Limits, Login, NodeProgram, SshHosts, SshSettings};
use kubeon_store::ClusterLock;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::host_keys::{HostKeyOptions, UnknownKeys};
use crate::login::Logins;

/// How long a host may take to accept a connection at a glance.
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
pub enum ContactPurpose {
    /// Look, and write nothing anywhere.
    Look,
    /// Look, for no longer than a glance.
    Glance(Duration),
    /// EngineOutput to a cluster that is known.
    Connect,
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
        options: &HostKeyOptions,
        purpose: ContactPurpose,
    ) -> Result<Contact, EngineError> {
        let unknown = match purpose {
            // A password is never sent to a host whose key is unknown, not even to observe it.
            ContactPurpose::Look if logins.send_secrets() => UnknownKeys::Settle,
            ContactPurpose::Look => UnknownKeys::Look,
            ContactPurpose::Glance(_) => UnknownKeys::Refuse,
            ContactPurpose::Connect | ContactPurpose::Change => UnknownKeys::Settle,
        };
        let keys = self.host_keys(cluster, &mut logins, options, unknown).await?;
        let mut settings = SshSettings::new(Login::new("root"));
        settings.logins = logins.logins.clone();
        if let ContactPurpose::Glance(limit) = purpose {
            settings.limits = Limits { connect: limit.min(ANSWER), facts: limit, ..Limits::default() };
        }
        if purpose == ContactPurpose::Change {
            settings.node_program = Some(self.node_program()?);
        }
        Ok(Contact { hosts: SshHosts::new(settings, Arc::clone(&keys)), keys, logins })
    }

    fn node_program(&self) -> Result<NodeProgram, EngineError> {
        let Some(path) = self.environment.node_program.clone() else {
            return Err(EngineError::refused(
                "the folder of this program is unknown: set KUBEON_NODE_PROGRAM to kubeon-node",
            ));
        };
        NodeProgram::read(&path).map_err(|error| {
            EngineError::refused(format!("cannot read the node program {}: {error}", path.display()))
                .row("way out", "put kubeon-node beside kubeon, or set KUBEON_NODE_PROGRAM to it")
        })
    }
}

impl Contact {
    /// Pins the keys that hosts showed and that were accepted.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn pin(&self, engine: &Engine<'_>, lock: &ClusterLock) -> Result<(), EngineError> {
        if self.keys.new_keys().is_empty() {
            return Ok(());
        }
        engine.store.save_known_hosts(lock, &self.keys.pinned_text())?;
        Ok(())
    }
}
