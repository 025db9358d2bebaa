//! A cluster that kubeadm made: its objects, its hosts and its keys become the state of a cluster in container mode.
//!
//! ```text
//!   Node objects, ConfigMaps of kubeadm ──┐
//!   static pods, kubelet, containerd ─────┼─► what kubeon keeps, or why not ─► state + keys ─► plan
//!   /etc/kubernetes/pki ── keys ──────────┘
//! ```

mod host;
mod objects;
mod settings;
mod static_pods;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::{DesiredCluster, HostSpec, PlanRefused};
use kubeon_store::{HostLogin, Status};
use kubeon_wire::Facts;

use self::host::KubeadmHost;
use self::objects::{KubeadmNode, KubeadmObjects};
use super::access::{AdoptionRequest, contact, logins, reports};
use super::checks::refusal;
use super::found_cluster::FoundCluster;
use super::key_files;
use crate::cluster_nodes::{MAX_CONCURRENT, command_output};
use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::contact::Contact;
use crate::engine::{Engine, StoredCluster, set_spec};
use crate::error::{EngineError, note_text};
use crate::preview::preview_through;

/// What the probe finds on every master of kubeadm.
const API_SERVER: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
/// kubectl of the host, as its administrator.
const KUBECTL: &str = "PATH=\"$PATH:/usr/local/bin\" KUBECONFIG=/etc/kubernetes/admin.conf kubectl --request-timeout=20s --cache-dir=/dev/null";
/// Time limit of a query.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether kubeadm made the masters, and kubeon changed none of them.
pub(super) fn made(reports: &[(HostAddress, Facts)]) -> bool {
    let is_of_kubeadm =
        |facts: &Facts| facts.claim.is_none() && facts.foreign.iter().any(|path| path == API_SERVER);
    !reports.is_empty() && reports.iter().all(|(_, facts)| is_of_kubeadm(facts))
}

/// Reads the cluster from the masters that reported, and the plan of its first change.
///
/// # Errors
/// Refuses with all reasons what kubeon could not keep, and hosts that do not answer.
pub(super) async fn read(
    engine: &Engine<'_>,
    name: &ClusterName,
    request: &AdoptionRequest<'_>,
    first_contact: Contact,
    masters: Vec<(HostAddress, Facts)>,
) -> Result<FoundCluster, EngineError> {
    let objects = read_objects(&first_contact, name, &masters).await?;
    let named = named_workers(engine, name, request).await?;
    let logins_of = login_addresses(name, &objects.nodes, masters.iter().chain(&named))?;
    first_contact.hosts.disconnect().await;
    let of_role = |is_master: bool| -> Vec<HostSpec> {
        let nodes = objects.nodes.iter().zip(&logins_of).filter(|(node, _)| node.is_master == is_master);
        nodes.map(|(_, address)| HostSpec::at(*address)).collect()
    };
    let contact = contact(engine, name, request.access, &of_role(true), &of_role(false)).await?;
    let facts = reports(&contact, name, &logins_of).await?;
    let hosts = hosts(&contact, name, &objects, facts).await?;
    let spec = settings::desired(name, &objects, &hosts).map_err(|reasons| refusal(name, reasons))?;
    let spec = supported(engine, name, spec)?;
    let masters: Vec<HostAddress> = spec.masters.iter().map(|host| host.address).collect();
    let keys = key_files::of_kubeadm(&contact, name, &masters, spec.settings.ca_years).await?;
    let logins = logins(engine, &spec, request.access)?;
    let state = new_state(spec, logins);
    let target = ClusterTarget::stored(engine, state.clone(), TargetOptions::default())?;
    let bundles = target.bundles(engine)?;
    let plan = preview_through(engine, &target, &bundles, &contact).await?;
    Ok(FoundCluster { contact, state, keys, plan: Some(Box::new(plan)) })
}

/// What the API server of the first master tells.
async fn read_objects(
    contact: &Contact,
    name: &ClusterName,
    masters: &[(HostAddress, Facts)],
) -> Result<KubeadmObjects, EngineError> {
    let Some((master, _)) = masters.first() else {
        return Err(refusal(name, [("masters", "none is named".to_owned())]));
    };
    let mut outputs = [const { String::new() }; 3];
    for (output, query) in outputs.iter_mut().zip(objects::queries()) {
        *output = command_output(&contact.hosts, *master, &format!("{KUBECTL} {query}"), TIMEOUT)
            .await
            .map_err(|why| refusal(name, [(*master, format!("kubectl: {why}"))]))?;
    }
    KubeadmObjects::parse(&outputs).map_err(|why| refusal(name, [(*master, why)]))
}

/// The facts of the named workers.
async fn named_workers(
    engine: &Engine<'_>,
    name: &ClusterName,
    request: &AdoptionRequest<'_>,
) -> Result<Vec<(HostAddress, Facts)>, EngineError> {
    if request.workers.is_empty() {
        return Ok(Vec::new());
    }
    let workers: Vec<HostSpec> = request.workers.iter().copied().map(HostSpec::at).collect();
    let contact = contact(engine, name, request.access, &[], &workers).await?;
    let facts = reports(&contact, name, request.workers).await;
    contact.hosts.disconnect().await;
    facts
}

/// The address to log in at each node: that of the named host which has the address of the node, else the latter.
///
/// # Errors
/// Refuses named hosts that are no node.
fn login_addresses<'f>(
    name: &ClusterName,
    nodes: &[KubeadmNode],
    named: impl Iterator<Item = &'f (HostAddress, Facts)>,
) -> Result<Vec<HostAddress>, EngineError> {
    let mut logins: Vec<HostAddress> = nodes.iter().map(|node| node.address).collect();
    let mut reasons = Vec::new();
    for (host, facts) in named {
        let is_at =
            |node: &KubeadmNode| node.address == *host || facts.addresses.contains(&node.address.ip());
        match nodes.iter().position(is_at) {
            Some(index) => logins[index] = *host,
            None => reasons.push((*host, "is no node of the cluster".to_owned())),
        }
    }
    if reasons.is_empty() { Ok(logins) } else { Err(refusal(name, reasons)) }
}

/// The hosts of all nodes, with their files.
async fn hosts(
    contact: &Contact,
    name: &ClusterName,
    objects: &KubeadmObjects,
    facts: Vec<(HostAddress, Facts)>,
) -> Result<Vec<KubeadmHost>, EngineError> {
    let nodes = objects.nodes.iter().cloned();
    let reads = facts.into_iter().zip(nodes).map(|((address, facts), node)| async move {
        KubeadmHost::read(contact, address, node, facts).await.map_err(|why| (address, why))
    });
    let results: Vec<_> = futures::stream::iter(reads).buffered(MAX_CONCURRENT).collect().await;
    let (mut hosts, mut reasons) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(host) => hosts.push(host),
            Err(reason) => reasons.push(reason),
        }
    }
    if reasons.is_empty() { Ok(hosts) } else { Err(refusal(name, reasons)) }
}

/// Checks that kubeon can plan the cluster: the version has a bundle, and kubeon does not set the arguments of the owner itself.
fn supported(
    engine: &Engine<'_>,
    name: &ClusterName,
    spec: DesiredCluster,
) -> Result<DesiredCluster, EngineError> {
    let checked = kubeon_plan::validate_existing(spec, &engine.supported()?);
    let (spec, notes) = checked.map_err(|PlanRefused { refusals, .. }| {
        let reasons = refusals.into_iter().map(|refusal| {
            let subject = format!("{} {}", refusal.field, refusal.value);
            (subject.trim_end().to_owned(), refusal.reason)
        });
        refusal(name, reasons)
    })?;
    notes.iter().for_each(|note| engine.output.warn(&note_text(note)));
    Ok((*spec).clone())
}

/// The state of a cluster that exists, on whose hosts kubeon changed nothing yet.
fn new_state(spec: DesiredCluster, logins: BTreeMap<HostAddress, HostLogin>) -> StoredCluster {
    let mut state = StoredCluster::new(spec.name.clone(), spec.clone());
    (state.status, state.version, state.logins) = (Status::Running, Some(spec.version), logins);
    state.take_over(spec.hosts().map(|host| host.address).collect());
    set_spec(&mut state, spec);
    state
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim;

    use super::objects::tests::nodes;
    use super::*;

    fn address(text: &str) -> HostAddress {
        text.parse().unwrap()
    }

    #[test]
    fn only_masters_of_kubeadm_that_kubeon_did_not_change_are_read() {
        let master = sim::made_by_kubeadm("h1", &kubeon_api::HostRole::Master);
        let worker = sim::made_by_kubeadm("h2", &kubeon_api::HostRole::Worker);
        let of = |facts: &Facts| (address("10.0.0.1"), facts.clone());
        assert!(made(&[of(&master)]));
        assert!(!made(&[of(&master), of(&worker)]) && !made(&[of(&sim::bare("h1"))]) && !made(&[]));
    }

    #[test]
    fn a_host_may_have_another_address_to_log_in_at() {
        let name: ClusterName = "demo".parse().unwrap();
        let mut facts = sim::bare("h2");
        facts.addresses = vec!["192.168.1.2".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let named = [(address("192.168.1.2"), facts.clone()), (address("10.0.0.1"), sim::bare("h1"))];
        let found = login_addresses(&name, &nodes(), named.iter()).unwrap();
        assert_eq!(found, [address("10.0.0.1"), address("192.168.1.2")]);
        let stranger = [(address("10.0.0.9"), sim::bare("h9"))];
        let error = login_addresses(&name, &nodes(), stranger.iter()).unwrap_err().to_string();
        assert!(error.contains("10.0.0.9  is no node of the cluster"), "{error}");
    }

    #[test]
    fn the_state_is_of_a_running_cluster_that_no_change_reached() {
        let state = new_state(sim::cluster(&["10.0.0.1"], &["10.0.0.2"]), BTreeMap::new());
        assert_eq!((state.status, state.generation), (Status::Running, 0));
        assert_eq!(state.taken_over.len(), 2);
        assert!(state.may_be_on_hosts() && !state.encrypts_secrets && state.addresses.api.is_some());
        let mut smaller = state;
        set_spec(&mut smaller, sim::cluster(&["10.0.0.1"], &[]));
        assert_eq!(smaller.taken_over, [address("10.0.0.1")].into(), "a removed host is as any new one");
    }
}
