//! Checks a cluster specification by itself, before any host is contacted. Reports every reason at once.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubernetes_cluster::defaults::{self, MAX_CA_YEARS};
use kubeon_api::kubernetes_cluster::{LoadBalancer, UnsupportedSetting};
use kubeon_api::{Cidr, HostAddress, HostRole, Refusal, RefusedField as Field, Remedy, Version};
use kubeon_wire::FORWARDING_PORT;

use crate::input::{DesiredCluster, HostSpec, Valid};
use crate::output::{Note, PlanRefused};

/// Ports on which the programs of a cluster listen on their hosts: etcd, API server and haproxy, overlay
/// network (UDP), kubelet, kube-proxy, controller manager and scheduler, and hosts that forward parts.
const OWN_PORTS: [u16; 12] =
    [2379, 2380, 2381, 6443, 8472, 10248, 10249, 10250, 10256, 10257, 10259, FORWARDING_PORT];

/// Checks the specification of a new cluster by itself: roles, addresses, names, networks, ports, version.
///
/// # Errors
/// Every reason why the specification cannot be planned.
pub fn validate(
    spec: DesiredCluster,
    supported: &[Version],
) -> Result<(Valid<DesiredCluster>, Vec<Note>), PlanRefused> {
    let refusals = node_ports_refusal(&spec).into_iter().collect();
    validate_with(spec, supported, refusals)
}

/// The same for a cluster that may exist already: it keeps a range of node ports that an older version permitted.
///
/// # Errors
/// Every reason why the specification cannot be planned.
pub fn validate_existing(
    spec: DesiredCluster,
    supported: &[Version],
) -> Result<(Valid<DesiredCluster>, Vec<Note>), PlanRefused> {
    validate_with(spec, supported, Vec::new())
}

fn validate_with(
    spec: DesiredCluster,
    supported: &[Version],
    mut refusals: Vec<Refusal>,
) -> Result<(Valid<DesiredCluster>, Vec<Note>), PlanRefused> {
    version(&spec, supported, &mut refusals);
    roles(&spec, &mut refusals);
    names(&spec, &mut refusals);
    cluster_addresses(&spec, &mut refusals);
    networks(&spec, &mut refusals);
    limits(&spec, &mut refusals);
    refusals.extend(unsupported(&spec));
    refusals.extend(extra_arguments::refusals(&spec.settings.extra_args));
    refusals.extend(kernel_parameters::refusals(&spec.settings.kernel_parameters));
    refusals.extend(taints::refusals(&spec));
    refusals.extend(static_pods::refusals(&spec));
    refusals.extend(registries_with_path(&spec));
    let notes = warnings(&spec);
    if refusals.is_empty() {
        return Ok((Valid(spec), notes));
    }
    Err(PlanRefused { cluster: spec.name.to_string(), refusals, notes })
}

fn version(spec: &DesiredCluster, supported: &[Version], refusals: &mut Vec<Refusal>) {
    if supported.contains(&spec.version) {
        return;
    }
    let known: Vec<String> = supported.iter().map(ToString::to_string).collect();
    let reason = format!(
        "is not in the catalogue; use one of {} ([check] Input version[{}] not support)",
        known.join(", "),
        spec.version
    );
    refusals.push(Refusal::new(Field::Version, spec.version, reason));
}

fn roles(spec: &DesiredCluster, refusals: &mut Vec<Refusal>) {
    if spec.masters.is_empty() {
        let reason = "is missing: a cluster needs at least one master (Cluster must has one node)";
        refusals.push(Refusal::new(Field::Master, "", reason));
    }
    let mut masters = BTreeSet::new();
    for host in &spec.masters {
        if !masters.insert(host.address) {
            let reason = "is named twice (Cluster master is duplicate)";
            refusals.push(Refusal::new(Field::Master, host.address, reason));
        }
    }
    let mut workers = BTreeSet::new();
    for host in &spec.workers {
        let reason = if masters.contains(&host.address) {
            "is a master already: a host has one role (Cluster ip is duplicate)"
        } else if !workers.insert(host.address) {
            "is named twice (Cluster worker is duplicate)"
        } else {
            continue;
        };
        refusals.push(Refusal::new(Field::Worker, host.address, reason));
    }
    let mut members = BTreeSet::new();
    for host in &spec.etcd_hosts {
        let reason = if masters.contains(&host.address) || workers.contains(&host.address) {
            "runs a node already: hosts of etcd run nothing else; without etcdList, etcd runs on the masters"
        } else if !members.insert(host.address) {
            "is named twice"
        } else {
            continue;
        };
        refusals.push(Refusal::new(Field::EtcdHost, host.address, reason));
    }
}

/// A mirror serves a whole registry.
fn registries_with_path(spec: &DesiredCluster) -> impl Iterator<Item = Refusal> {
    let registries = spec.settings.container_runtime.registry_mirrors.keys();
    registries.filter(|registry| registry.as_str().contains('/')).map(|registry| {
        let field = format!("spec.cluster.containerRuntime.registryMirrors {registry}");
        Refusal::setting(field, "has a path; a mirror serves a whole registry, such as docker.io")
    })
}

/// No two hosts have the same address in the cluster's network.
fn cluster_addresses(spec: &DesiredCluster, refusals: &mut Vec<Refusal>) {
    let mut first: BTreeMap<HostAddress, &HostSpec> = BTreeMap::new();
    for host in spec.hosts() {
        let address = host.cluster_address();
        // The same login address in two lists is refused elsewhere.
        let other = first.insert(address, host).filter(|other| other.address != host.address);
        if let Some(other) = other {
            let reason =
                format!("has the internal address {address}, which is the address of {}", other.address);
            let refusal = Refusal::host(host.address, reason);
            refusals.push(refusal.with(Remedy::SetInternalAddress(host.address)));
        }
    }
}

fn names(spec: &DesiredCluster, refusals: &mut Vec<Refusal>) {
    let mut first: BTreeMap<&str, &HostSpec> = BTreeMap::new();
    for (role, host) in spec.hosts_with_roles() {
        let Some(name) = &host.name else { continue };
        let field = match role {
            HostRole::Master => Field::MasterName,
            HostRole::Etcd => Field::EtcdHost,
            _ => Field::WorkerName,
        };
        if let Some(other) = first.insert(name.as_str(), host) {
            let reason =
                format!("is the name of {} already ([{role}] hostnames is duplicate)", other.address);
            refusals.push(Refusal::new(field, name, reason));
        }
    }
}

fn networks(spec: &DesiredCluster, refusals: &mut Vec<Refusal>) {
    let (pods, services) = (spec.settings.pod_cidr, spec.settings.service_cidr);
    if pods.overlaps(services) {
        let reason = format!("overlaps the service range {services}");
        let refusal = Refusal::new(Field::PodCidr, pods, reason);
        refusals.push(refusal.with(Remedy::Change(Field::ServiceCidr)));
    }
    for (field, net) in [(Field::PodCidr, pods), (Field::ServiceCidr, services)] {
        for host in spec.hosts().filter(|host| contains(net, host)) {
            refusals.push(Refusal::new(field, net, format!("contains the host {}", host.address)));
        }
    }
    if services.net().prefix_len() > 28 || services.net().prefix_len() < 12 {
        let reason = "must have a prefix between /12 and /28: it holds the address of every Service, and Kubernetes accepts no larger range";
        refusals.push(Refusal::new(Field::ServiceCidr, services, reason));
    }
    if spec.settings.load_balancer == LoadBalancer::Updater && services.net().prefix_len() == 28 {
        let reason = "has no room for the Service of the load balancer updater, its fifteenth address; use /27 or larger";
        refusals.push(Refusal::new(Field::ServiceCidr, services, reason));
    }
    refusals.extend(pod_network(spec));
}

/// Whether a network contains the login address or the cluster address of a host.
fn contains(net: Cidr, host: &HostSpec) -> bool {
    [host.address, host.cluster_address()].iter().any(|address| net.net().contains(&address.ip()))
}

fn pod_network(spec: &DesiredCluster) -> Option<Refusal> {
    let (prefix, mask) = (spec.settings.pod_cidr.net().prefix_len(), spec.settings.node_mask_size);
    let pods = spec.settings.pod_cidr;
    let (nodes, hosts) = (1_usize.checked_shl(u32::from(mask.saturating_sub(prefix))), spec.nodes().count());
    let reason = if mask < prefix || mask > 30 || mask - prefix > 16 {
        format!("must be between the prefix of the pod network {pods} and 16 bits more, at most 30")
    } else if let Some(nodes) = nodes.filter(|nodes| *nodes < hosts) {
        format!("leaves the pod network {pods} room for {nodes} nodes; there are {hosts}")
    } else {
        return None;
    };
    Some(Refusal::new(Field::NodeMaskSize, mask, reason).with(Remedy::Change(Field::PodCidr)))
}

/// Refuses node ports over a port of the cluster: a Service could take the port of one of its programs.
#[must_use]
pub fn node_ports_refusal(spec: &DesiredCluster) -> Option<Refusal> {
    let range = spec.settings.node_ports;
    let covers = |port: &u16| (range.first()..=range.last()).contains(port);
    let mut ports: Vec<u16> =
        OWN_PORTS.into_iter().chain([spec.settings.api_port]).filter(|port| covers(port)).collect();
    ports.sort_unstable();
    ports.dedup();
    let named: Vec<String> = ports.iter().map(u16::to_string).collect();
    let reason = format!(
        "covers {} {}, on which programs of the cluster listen; use a range such as {}",
        if ports.len() == 1 { "port" } else { "ports" },
        named.join(", "),
        defaults::NODE_PORT_RANGE
    );
    let remedy = Remedy::Change(Field::NodePortRange);
    (!ports.is_empty()).then(|| Refusal::new(Field::NodePortRange, range, reason).with(remedy))
}

fn limits(spec: &DesiredCluster, refusals: &mut Vec<Refusal>) {
    if !(1..=MAX_CA_YEARS).contains(&spec.settings.ca_years) {
        let reason = format!("must lie between 1 and {MAX_CA_YEARS}");
        refusals.push(Refusal::new(Field::CaYears, spec.settings.ca_years, reason));
    }
    if spec.settings.max_pods == 0 {
        refusals.push(Refusal::new(Field::MaxPods, 0, "must be at least 1"));
    }
}

/// Refusals of settings that the planner does not support yet. No plan ignores such a setting.
fn unsupported(spec: &DesiredCluster) -> impl Iterator<Item = Refusal> {
    let refusal =
        |UnsupportedSetting { field, reason }| Refusal::setting(format!("spec.cluster.{field}"), reason);
    spec.settings.unsupported().into_iter().map(refusal)
}

fn warnings(spec: &DesiredCluster) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut warn = |text: String| notes.push(Note { host: None, text });
    if spec.runs_flannel() {
        warn("flannel enforces no NetworkPolicy: every pod reaches every pod".to_owned());
    }
    let masters = spec.masters.len();
    if masters > 0 && masters.is_multiple_of(2) {
        warn(format!("{masters} masters tolerate no more failures than {}; use 1, 3 or 5", masters - 1));
    }
    let members = spec.etcd_hosts.len();
    if members > 0 && members.is_multiple_of(2) {
        warn(format!(
            "{members} members of etcd tolerate no more failures than {}; use 1, 3 or 5",
            members - 1
        ));
    }
    let addresses = (1_u64 << (32 - u32::from(spec.settings.node_mask_size.min(32)))).saturating_sub(3);
    if u64::from(spec.settings.max_pods) > addresses {
        warn(format!(
            "{} pods per node are more than the {addresses} addresses in a node's /{} range",
            spec.settings.max_pods, spec.settings.node_mask_size
        ));
    }
    notes
}

mod extra_arguments;
mod kernel_parameters;
mod static_pods;
mod taints;
#[cfg(test)]
mod tests;
