//! Taints of nodes: those that others set, and two with one key and effect are refused.

use std::collections::BTreeSet;

use kubeon_api::kubernetes_cluster::NodeTaint;
use kubeon_api::{HostRole, Refusal};

use crate::input::{DesiredCluster, HostSpec};

/// The refusals of taints, each with its host.
pub(super) fn refusals(spec: &DesiredCluster) -> impl Iterator<Item = Refusal> {
    spec.hosts_with_roles().flat_map(|(role, host)| of_host(&role, host))
}

fn of_host(role: &HostRole, host: &HostSpec) -> Vec<Refusal> {
    let mut identities = BTreeSet::new();
    let mut mistake = |taint: &NodeTaint| {
        if !role.runs_node() {
            return Some("has no effect: hosts of etcd run no node");
        }
        let twice = !identities.insert(taint.identity());
        taint.reserved().or_else(|| twice.then_some("is declared twice with different values"))
    };
    let taints = host.taints.iter();
    taints
        .filter_map(|taint| {
            Some(Refusal::setting(format!("taint {taint} of {}", host.address), mistake(taint)?))
        })
        .collect()
}
