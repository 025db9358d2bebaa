//! Parts that no bundle carries yet: refused by name, never ignored. What an object has already stays.

use kubeon_api::kubernetes_cluster::{
    ClusterType, Cni, DeclaredCluster, DeployMode, LoadBalancerMode, ProxyMode,
};

use super::{Stood, Wanted};
use crate::verdict::Verdict;

pub(super) fn judge(wanted: &Wanted<'_>, stood: Option<&Stood>, verdict: &mut Verdict) {
    let before: Vec<_> = stood.map(|stood| missing(&stood.declared)).unwrap_or_default();
    for (field, reason) in missing(wanted.cluster) {
        if !before.contains(&(field, reason)) {
            verdict.deny(wanted.field(field), reason);
        }
    }
}

fn missing(cluster: &DeclaredCluster) -> Vec<(&'static str, &'static str)> {
    let mut missing = Vec::new();
    match cluster.cluster_type {
        None | Some(ClusterType::Kubernetes) => {}
        Some(ClusterType::K3s) => missing.push(("clusterType", "k3s is not there yet; use kubernetes")),
        Some(ClusterType::Kubeedge) => {
            missing.push(("clusterType", "kubeedge is not there yet; use kubernetes"))
        }
        Some(ClusterType::Kind) => missing.push(("clusterType", "kind is not there yet; use kubernetes")),
    }
    if cluster.deploy_mode == Some(DeployMode::Container) {
        missing.push(("deployMode", "container is not there yet; use binary"));
    }
    if cluster.load_balancer.as_ref().and_then(|lb| lb.mode) == Some(LoadBalancerMode::Updater) {
        missing.push(("loadBalancer.mode", "updater is not there yet; use haproxy or external"));
    }
    let network = cluster.network.as_ref();
    match network.and_then(|network| network.cni) {
        None | Some(Cni::Flannel | Cni::None) => {}
        Some(Cni::Calico) => missing.push(("network.cni", "no bundle carries calico; use flannel or none")),
        Some(Cni::Cilium) => missing.push(("network.cni", "no bundle carries cilium; use flannel or none")),
    }
    if network.and_then(|network| network.proxy_mode) == Some(ProxyMode::Ipvs) {
        missing.push(("network.proxyMode", "no bundle carries ipvs; use nftables or iptables"));
    }
    missing
}
