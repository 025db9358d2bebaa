//! What no cluster can have yet: refused by name, never ignored. What an object has already stays.

use kubeon_api::kubernetes_cluster::DeclaredCluster;

use super::fixed::ips;
use super::wanted::{Stood, Wanted};
use crate::verdict::AdmissionVerdict;

/// Where something is. In a cluster that is built, the rule for fixed fields refuses a change of these, whatever the new
/// value is.
const PLACES: [&str; 5] =
    ["apiServer.port", "etcdList", "externalLoadBalancer", "imagesRegistry", "loadBalancer.address"];

pub(super) fn judge(wanted: &Wanted<'_>, stood: Option<&Stood>, verdict: &mut AdmissionVerdict) {
    let before = stood.map(|stood| unsupported(&stood.declared)).unwrap_or_default();
    let is_built = stood.is_some_and(|stood| stood.built.is_some());
    for (field, reason) in unsupported(wanted.cluster) {
        let is_fixed = is_built && PLACES.contains(&field);
        if !is_fixed && !before.contains(&(field, reason)) {
            verdict.deny(wanted.field(field), reason);
        }
    }
}

fn unsupported(cluster: &DeclaredCluster) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    // A load balancer that contradicts itself is refused by the rule for hosts; a default that is malformed, by none.
    let settings = cluster.settings().or_else(|_| cluster.settings_without_load_balancer());
    for setting in settings.iter().flat_map(|settings| settings.unsupported()) {
        let field = match setting.field {
            "loadBalancer.address" if cluster.load_balancer.is_none() => "externalLoadBalancer",
            field => field,
        };
        found.push((field, setting.reason));
    }
    if ips(cluster.etcd()) != ips(&cluster.master_list) {
        found.push(("etcdList", "etcd runs on the masters and nowhere else yet; leave it out"));
    }
    found
}
