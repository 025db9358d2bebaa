//! What can be told from the wish alone, before any host is asked. All reasons are told at once.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::Version;
use kubeon_api::kubernetes_cluster::defaults::MAX_CA_YEARS;

use crate::input::{ClusterSpec, HostSpec, Valid};
use crate::output::{Note, PlanError, Refusal};

/// Checks a wish by itself: roles, addresses, names, networks, version.
///
/// # Errors
/// Every reason why the wish cannot be planned.
pub fn validate(
    spec: ClusterSpec,
    supported: &[Version],
) -> Result<(Valid<ClusterSpec>, Vec<Note>), PlanError> {
    let mut refusals = Vec::new();
    version(&spec, supported, &mut refusals);
    roles(&spec, &mut refusals);
    names(&spec, &mut refusals);
    networks(&spec, &mut refusals);
    limits(&spec, &mut refusals);
    let notes = warnings(&spec);
    if refusals.is_empty() {
        return Ok((Valid(spec), notes));
    }
    Err(PlanError { cluster: spec.name.to_string(), refusals, notes })
}

fn refuse(refusals: &mut Vec<Refusal>, subject: impl Into<String>, reason: impl Into<String>) {
    refusals.push(Refusal { subject: subject.into(), reason: reason.into() });
}

fn version(spec: &ClusterSpec, supported: &[Version], refusals: &mut Vec<Refusal>) {
    if supported.contains(&spec.version) {
        return;
    }
    let known: Vec<String> = supported.iter().map(ToString::to_string).collect();
    let reason = format!(
        "is not in the catalogue; use one of {} ([check] Input version[{}] not support)",
        known.join(", "),
        spec.version
    );
    refuse(refusals, format!("version {}", spec.version), reason);
}

fn roles(spec: &ClusterSpec, refusals: &mut Vec<Refusal>) {
    if spec.masters.is_empty() {
        refuse(refusals, "-m", "is missing: a cluster needs at least one master (Cluster must has one node)");
    }
    let mut masters = BTreeSet::new();
    for host in &spec.masters {
        if !masters.insert(host.address) {
            refuse(refusals, format!("-m {}", host.address), "is named twice (Cluster master is duplicate)");
        }
    }
    let mut workers = BTreeSet::new();
    for host in &spec.workers {
        let subject = format!("-w {}", host.address);
        if masters.contains(&host.address) {
            refuse(refusals, subject, "is a master already: a host has one role (Cluster ip is duplicate)");
        } else if !workers.insert(host.address) {
            refuse(refusals, subject, "is named twice (Cluster worker is duplicate)");
        }
    }
}

fn names(spec: &ClusterSpec, refusals: &mut Vec<Refusal>) {
    let mut first: BTreeMap<&str, &HostSpec> = BTreeMap::new();
    let masters = spec.masters.len();
    for (index, host) in spec.hosts().enumerate() {
        let Some(name) = &host.name else { continue };
        let (flag, role) = if index < masters { ("-M", "master") } else { ("-W", "worker") };
        if let Some(other) = first.insert(name.as_str(), host) {
            let reason =
                format!("is the name of {} already ([{role}] hostnames is duplicate)", other.address);
            refuse(refusals, format!("{flag} {name}"), reason);
        }
    }
}

fn networks(spec: &ClusterSpec, refusals: &mut Vec<Refusal>) {
    let (pods, services) = (spec.pod_cidr, spec.service_cidr);
    if pods.overlaps(services) {
        refuse(
            refusals,
            format!("--pod-cidr {pods}"),
            format!("overlaps the service range {services} (--svc-cidr)"),
        );
    }
    for (flag, net) in [("--pod-cidr", pods), ("--svc-cidr", services)] {
        for host in spec.hosts().filter(|host| net.net().contains(&host.address.ip())) {
            refuse(refusals, format!("{flag} {net}"), format!("contains the host {}", host.address));
        }
    }
    if services.net().prefix_len() > 28 || services.net().prefix_len() < 12 {
        let reason = "must have a prefix between /12 and /28: it holds every Service's address, and Kubernetes takes no larger one";
        refuse(refusals, format!("--svc-cidr {services}"), reason);
    }
    pod_network(spec, refusals);
}

fn pod_network(spec: &ClusterSpec, refusals: &mut Vec<Refusal>) {
    let (prefix, mask) = (spec.pod_cidr.net().prefix_len(), spec.node_mask_size);
    let subject = format!("--node-mask-size {mask}");
    if mask < prefix || mask > 30 || mask - prefix > 16 {
        let reason = format!(
            "must lie between the prefix of --pod-cidr {} and 16 bits more, at most 30",
            spec.pod_cidr
        );
        return refuse(refusals, subject, reason);
    }
    let (nodes, hosts) = (1_usize << (mask - prefix), spec.hosts().count());
    if nodes < hosts {
        refuse(
            refusals,
            subject,
            format!("leaves --pod-cidr {} room for {nodes} nodes; there are {hosts}", spec.pod_cidr),
        );
    }
}

fn limits(spec: &ClusterSpec, refusals: &mut Vec<Refusal>) {
    let (low, high) = spec.node_ports;
    if low == 0 || low > high {
        refuse(
            refusals,
            format!("--port-range {low}-{high}"),
            "must be two ports between 1 and 65535, the lower first",
        );
    }
    if !(1..=MAX_CA_YEARS).contains(&spec.ca_years) {
        let reason = format!("must lie between 1 and {MAX_CA_YEARS}");
        refuse(refusals, format!("--cert-years {}", spec.ca_years), reason);
    }
    if spec.max_pods == 0 {
        refuse(refusals, "--max-pods 0", "must be at least 1");
    }
}

fn warnings(spec: &ClusterSpec) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut warn = |text: String| notes.push(Note { host: None, text });
    let masters = spec.masters.len();
    if masters > 0 && masters.is_multiple_of(2) {
        warn(format!("{masters} masters survive no failure that {} does not; use 1, 3 or 5", masters - 1));
    }
    let addresses = (1_u64 << (32 - u32::from(spec.node_mask_size.min(32)))).saturating_sub(3);
    if u64::from(spec.max_pods) > addresses {
        warn(format!(
            "--max-pods {} is more than the {addresses} addresses that a node's /{} range has",
            spec.max_pods, spec.node_mask_size
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
