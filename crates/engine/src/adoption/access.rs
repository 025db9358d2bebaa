//! Who is adopted, and the connections to the hosts.

use std::collections::BTreeMap;

use futures::future::join_all;
use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::{DesiredCluster, HostSpec};
use kubeon_ports::ProbeHost as _;
use kubeon_store::HostLogin;
use kubeon_wire::Facts;

use super::checks;
use crate::cluster_nodes::NodeAccess;
use crate::contact::{Contact, ContactPurpose};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::login_merge::{merge_remembered, refuse_unused_flags};

/// Which cluster is adopted, and from which masters.
pub struct AdoptionRequest<'a> {
    /// The name of the cluster.
    pub name: &'a str,
    /// Login addresses of masters, at least one. Each must answer.
    pub masters: &'a [HostAddress],
    /// Login addresses of workers that kubeadm made, where they differ from the addresses of their nodes.
    pub workers: &'a [HostAddress],
    /// How to log in to all hosts of the cluster.
    pub access: &'a NodeAccess,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

/// Connections to masters and workers.
pub(super) async fn contact(
    engine: &Engine<'_>,
    name: &ClusterName,
    access: &NodeAccess,
    masters: &[HostSpec],
    workers: &[HostSpec],
) -> Result<Contact, EngineError> {
    let addresses = masters.iter().chain(workers).map(|host| host.address);
    let requests = merge_remembered(addresses, masters, &access.logins, &BTreeMap::new());
    let logins = engine.logins(&requests)?;
    engine.contact(name, logins, &access.host_keys, ContactPurpose::Connect).await
}

/// The facts of every host.
pub(super) async fn reports(
    contact: &Contact,
    name: &ClusterName,
    masters: &[HostAddress],
) -> Result<Vec<(HostAddress, Facts)>, EngineError> {
    let answers = join_all(masters.iter().map(|host| contact.hosts.facts(*host))).await;
    let (mut reports, mut refused) = (Vec::new(), Vec::new());
    for (host, answer) in masters.iter().zip(answers) {
        match answer {
            Ok(facts) => reports.push((*host, facts)),
            Err(failure) => refused.push((*host, failure.cause)),
        }
    }
    if refused.is_empty() {
        return Ok(reports);
    }
    Err(checks::refusal(name, refused).remedy(contact.remedy()))
}

/// The logins of all hosts, without anything secret.
pub(super) fn logins(
    engine: &Engine<'_>,
    spec: &DesiredCluster,
    access: &NodeAccess,
) -> Result<BTreeMap<HostAddress, HostLogin>, EngineError> {
    let hosts = spec.hosts().map(|host| host.address);
    let mut requests = merge_remembered(hosts, &spec.masters, &access.logins, &BTreeMap::new());
    refuse_unused_flags(&access.logins, &spec.masters, &requests)?;
    for request in requests.values_mut() {
        // They are not remembered, so that nobody is asked for them again.
        let flags = &mut request.flags;
        (flags.password, flags.sudo_password, flags.key_password) = (None, None, None);
    }
    Ok(engine.logins(&requests)?.remembered)
}
