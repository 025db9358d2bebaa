//! Parts that no bundle carries yet: refused by name, never ignored. What an object has already stays.

use std::collections::BTreeSet;

use kubeon_api::kubernetes_cluster::{
    ClusterType, Cni, DeclaredCluster, DeployMode, LoadBalancerMode, NodeList, ProxyMode, Reach,
};

use super::{Stood, Wanted};
use crate::verdict::Verdict;

pub(super) fn judge(wanted: &Wanted<'_>, stood: Option<&Stood>, verdict: &mut Verdict) {
    // In a cluster that is built, what would be elsewhere is fixed whatever it becomes.
    let is_built = stood.is_some_and(|stood| stood.built.is_some());
    let all = |cluster: &DeclaredCluster| {
        let others = if is_built { Vec::new() } else { elsewhere(cluster) };
        [missing(cluster), others].concat()
    };
    let before: Vec<_> = stood.map(|stood| all(&stood.declared)).unwrap_or_default();
    for (field, reason) in all(wanted.cluster) {
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
        None | Some(Cni::Flannel) => {}
        Some(Cni::None) => {
            missing.push(("network.cni", "a cluster without a network is not there yet; use flannel"))
        }
        Some(Cni::Calico) => missing.push(("network.cni", "no bundle carries calico; use flannel")),
        Some(Cni::Cilium) => missing.push(("network.cni", "no bundle carries cilium; use flannel")),
    }
    if network.and_then(|network| network.proxy_mode) == Some(ProxyMode::Ipvs) {
        missing.push(("network.proxyMode", "no bundle carries ipvs; use nftables or iptables"));
    }
    missing
}

/// What would be somewhere else than this version puts it.
fn elsewhere(cluster: &DeclaredCluster) -> Vec<(&'static str, &'static str)> {
    let mut missing = Vec::new();
    let addresses = |list: &NodeList| list.iter().map(|node| node.ip).collect::<BTreeSet<_>>();
    if addresses(cluster.etcd()) != addresses(&cluster.master_list) {
        missing.push(("etcdList", "etcd runs on the masters and nowhere else yet; leave it out"));
    }
    // What cannot be read is refused by the schema or by what reads it.
    let Ok(settings) = cluster.settings() else { return missing };
    if settings.api_port != 6443 {
        missing.push(("apiServer.port", "only 6443 is there yet"));
    }
    if settings.images_registry.is_some() {
        missing.push((
            "imagesRegistry",
            "every image comes from the bundle, no registry is asked; leave it out",
        ));
    }
    if matches!(&settings.reach, Reach::External { address, .. } if address.ip().is_none()) {
        let field =
            if cluster.load_balancer.is_some() { "loadBalancer.address" } else { "externalLoadBalancer" };
        missing.push((field, "a name is not there yet; give the load balancer's IPv4 address"));
    }
    missing
}
