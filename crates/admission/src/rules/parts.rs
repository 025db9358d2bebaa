//! Unsupported parts of a cluster are denied by name. Unsupported parts of an existing object stay.

use kubeon_api::kubernetes_cluster::DeclaredCluster;

use super::desired::{Desired, Existing};
use super::fixed::ips;
use crate::verdict::AdmissionVerdict;

/// Fields with an address or port. In a built cluster, the rule for fixed fields denies every change of them.
const FIXED_FIELDS: [&str; 4] =
    ["apiServer.port", "externalLoadBalancer", "imagesRegistry", "loadBalancer.address"];

pub(super) fn judge(desired: &Desired<'_>, existing: Option<&Existing>, verdict: &mut AdmissionVerdict) {
    let before = existing.map(|existing| unsupported(&existing.declared)).unwrap_or_default();
    let is_built = existing.is_some_and(|existing| existing.built.is_some());
    for (field, reason) in unsupported(desired.cluster) {
        let is_fixed = is_built && FIXED_FIELDS.contains(&field);
        if !is_fixed && !before.contains(&(field, reason)) {
            verdict.deny(desired.field(field), reason);
        }
    }
}

fn unsupported(cluster: &DeclaredCluster) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    // The rule for hosts denies a contradictory load balancer.
    let settings = cluster.settings().or_else(|_| cluster.settings_without_load_balancer());
    for setting in settings.iter().flat_map(|settings| settings.unsupported()) {
        let field = match setting.field {
            "loadBalancer.address" if cluster.load_balancer.is_none() => "externalLoadBalancer",
            field => field,
        };
        found.push((field, setting.reason));
    }
    let nodes = || cluster.master_list.iter().chain(cluster.node_list.iter()).map(|node| node.ip);
    let etcd = ips(cluster.etcd());
    if !cluster.etcd_is_on_masters() && nodes().any(|node| etcd.contains(&node)) {
        found
            .push(("etcdList", "etcd runs on all masters (leave it out), or on hosts that run nothing else"));
    }
    found
}
