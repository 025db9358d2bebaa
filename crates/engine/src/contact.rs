//! Connections to the hosts of a cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_link_host::{HostKeys, Limits, Login, NodeProgram, SshHosts, SshSettings};
use kubeon_plan::{DesiredCluster, Observation};
use kubeon_reconcile::Planned;
use kubeon_store::ClusterLock;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::host_keys::{HostKeyOptions, UnknownKeys};
use crate::login::Logins;
use crate::remedy::EngineRemedy;

/// Time limit of a connection in a quick probe.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The hosts of a cluster, with the host keys and logins that open them.
pub struct Contact {
    /// The connections to the hosts.
    pub hosts: SshHosts,
    keys: Arc<HostKeys>,
    /// The logins. Their keys stay in memory while the hosts are connected.
    pub logins: Logins,
}

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContactPurpose {
    /// Observe the hosts and write nothing.
    Observe,
    /// Observe the hosts within this time limit.
    QuickProbe(Duration),
    /// Run commands on the hosts of a known cluster.
    Connect,
    /// Change the hosts.
    Change,
}

impl Engine<'_> {
    /// Prepares connections to hosts. Connects only to read unknown host keys that the user must accept.
    ///
    /// # Errors
    /// When keys or the node program cannot be read, or the user does not accept a key.
    pub async fn contact(
        &self,
        cluster: &ClusterName,
        mut logins: Logins,
        options: &HostKeyOptions,
        purpose: ContactPurpose,
    ) -> Result<Contact, EngineError> {
        let unknown = match purpose {
            // A password is never sent to a host whose key is unknown, not even to observe it.
            ContactPurpose::Observe if logins.send_secrets() => UnknownKeys::Ask,
            ContactPurpose::Observe => UnknownKeys::AcceptOnce,
            ContactPurpose::QuickProbe(_) => UnknownKeys::Refuse,
            ContactPurpose::Connect | ContactPurpose::Change => UnknownKeys::Ask,
        };
        let keys = self.host_keys(cluster, &mut logins, options, unknown).await?;
        let mut settings = SshSettings::new(Login::new("root"));
        settings.logins = logins.logins.clone();
        if let ContactPurpose::QuickProbe(limit) = purpose {
            settings.limits =
                Limits { connect: limit.min(CONNECT_TIMEOUT), facts: limit, ..Limits::default() };
        }
        if purpose == ContactPurpose::Change {
            settings.node_programs = self.node_programs()?;
            settings.packed_programs =
                self.environment.cache.as_ref().map(|cache| cache.join("node-programs"));
        }
        Ok(Contact { hosts: SshHosts::new(settings, Arc::clone(&keys)), keys, logins })
    }

    /// The node program of the environment, then those that are attached to this program, else the one next to it.
    fn node_programs(&self) -> Result<Vec<NodeProgram>, EngineError> {
        let mut programs = Vec::new();
        if let Some(path) = &self.environment.node_program {
            programs.push(read_node_program(path)?);
        }
        let Some(program) = &self.environment.program else {
            let unknown = "the folder of this program is unknown: set KUBEON_NODE_PROGRAM to kubeon-node";
            return if programs.is_empty() { Err(EngineError::refused(unknown)) } else { Ok(programs) };
        };
        let attached = NodeProgram::attached_to(program);
        programs.extend(attached.map_err(|error| {
            EngineError::refused(format!("cannot read the node programs in {}: {error}", program.display()))
        })?);
        if programs.is_empty() {
            programs.push(read_node_program(&program.with_file_name("kubeon-node"))?);
        }
        Ok(programs)
    }
}

fn read_node_program(path: &Path) -> Result<NodeProgram, EngineError> {
    NodeProgram::read(path).map_err(|error| {
        EngineError::refused(format!("cannot use the node program {}: {error}", path.display()))
            .row("fix", "put kubeon-node next to kubeon, or set KUBEON_NODE_PROGRAM to its path")
    })
}

impl Contact {
    /// What a user can do about hosts that were refused.
    pub fn remedy(&self) -> Option<EngineRemedy> {
        self.keys.refused_unknown().then_some(EngineRemedy::TrustHostKeys)
    }

    /// Lets the hosts of the plan that have no node program yet get it from each other.
    pub(crate) fn spread_programs(&self, spec: &DesiredCluster, planned: &Planned) {
        let busy: BTreeSet<HostAddress> = planned.plan().steps.iter().map(|step| step.host).collect();
        let has_program = |host: HostAddress| match planned.snapshot.hosts.get(&host) {
            Some(Observation::Fresh(facts)) => {
                facts.node_program.as_ref().is_some_and(|digest| self.hosts.has_program(digest))
            }
            _ => false,
        };
        let hosts = spec.hosts().filter(|host| busy.contains(&host.address) && !has_program(host.address));
        let hosts = hosts.map(|host| (host.address, host.cluster_address().ip())).collect();
        self.hosts.spread_programs(hosts);
    }

    /// Pins the accepted host keys.
    ///
    /// # Errors
    /// When the keys cannot be written.
    pub fn pin(&self, engine: &Engine<'_>, lock: &ClusterLock) -> Result<(), EngineError> {
        if self.keys.new_keys().is_empty() {
            return Ok(());
        }
        engine.store.save_known_hosts(lock, &self.keys.pinned_text())?;
        Ok(())
    }
}
