//! The declaration of a cluster of kubeadm in the terms of kubeon.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubernetes_cluster::{
    ClusterSettings, Cni, DeclaredCluster, DeployMode, ExtraArgs, ProxyMode,
};
use kubeon_api::{Cidr, ClusterName, Endpoint, Version};
use kubeon_plan::{DesiredCluster, HostSpec};
use serde_json::Value;

use super::host::KubeadmHost;
use super::objects::KubeadmObjects;
use super::static_pods::PodArguments;
use crate::adoption::checks::Reason;

/// The most pods of a node whose kubelet has no other number.
const DEFAULT_PODS: u32 = 110;
/// The prefix of a node's share of the pod network without another one.
const DEFAULT_MASK: &str = "24";
/// The node ports of an API server without others.
const DEFAULT_PORTS: &str = "30000-32767";
const DEFAULT_DOMAIN: &str = "cluster.local";

/// The desired cluster that keeps what kubeadm and its owner decided.
///
/// # Errors
/// All reasons why it cannot be kept: the subject and a text each.
pub(super) fn desired(
    name: &ClusterName,
    objects: &KubeadmObjects,
    hosts: &[KubeadmHost],
) -> Result<DesiredCluster, Vec<Reason>> {
    let mut reasons = objects.reasons();
    let settings = settings(objects, hosts, &mut reasons);
    let dns = settings.as_ref().and_then(|settings| settings.service_cidr.nth(10));
    for host in hosts {
        let problems = host.problems(dns, domain(&objects.configuration));
        reasons.extend(problems.into_iter().map(|problem| (host.address.to_string(), problem)));
    }
    let version = &objects.configuration["kubernetesVersion"];
    let version: Result<Version, _> = version.as_str().unwrap_or_default().parse();
    if version.is_err() {
        reasons.push(("version".to_owned(), "the configuration of kubeadm has no valid version".to_owned()));
    }
    let (Some(settings), Ok(version)) = (settings, version) else { return Err(reasons) };
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let of_role = |is_master: bool| -> Vec<HostSpec> {
        let hosts = hosts.iter().filter(|host| host.node.is_master == is_master);
        hosts.map(host_spec).collect()
    };
    Ok(DesiredCluster {
        name: name.clone(),
        version,
        masters: of_role(true),
        workers: of_role(false),
        etcd_hosts: Vec::new(),
        settings,
    })
}

/// A node with the name and the address that it has.
fn host_spec(host: &KubeadmHost) -> HostSpec {
    let spec = HostSpec { name: Some(host.node.name.clone()), ..HostSpec::at(host.address) };
    spec.with_internal_address(Some(host.node.address))
}

fn domain(configuration: &Value) -> &str {
    configuration["networking"]["dnsDomain"].as_str().unwrap_or(DEFAULT_DOMAIN)
}

/// The settings of the cluster; `None` if some are missing, which is in `reasons` then.
fn settings(
    objects: &KubeadmObjects,
    hosts: &[KubeadmHost],
    reasons: &mut Vec<Reason>,
) -> Option<ClusterSettings> {
    let configuration = &objects.configuration;
    let pods = network(configuration, "podSubnet", reasons);
    let services = network(configuration, "serviceSubnet", reasons);
    let proxy = proxy_mode(objects.proxy_mode.as_deref(), reasons);
    let max_pods = max_pods(hosts, reasons);
    let arguments = common_arguments(hosts, reasons);
    let of = |pod: &str, name: &str| {
        arguments.get(pod).and_then(|pod| pod.of_cluster.get(name)).map(String::as_str)
    };
    let domain = domain(configuration);
    let issuer = format!("https://kubernetes.default.svc.{domain}");
    if let Some(other) = of("kube-apiserver", "service-account-issuer").filter(|found| *found != issuer) {
        let text = format!("is {other}; kubeon's API servers issue tokens as {issuer} only");
        reasons.push(("service-account-issuer".to_owned(), text));
    }
    let ports = of("kube-apiserver", "service-node-port-range").unwrap_or(DEFAULT_PORTS).parse();
    let mask = of("kube-controller-manager", "node-cidr-mask-size").unwrap_or(DEFAULT_MASK).parse();
    let (Ok(node_ports), Ok(node_mask_size), Ok(dns_domain)) = (ports, mask, domain.parse()) else {
        let text = "has a range of node ports, a size of the nodes' networks or a DNS domain that kubeon cannot keep";
        reasons.push(("cluster".to_owned(), text.to_owned()));
        return None;
    };
    let defaults = DeclaredCluster::default().settings().ok()?;
    Some(ClusterSettings {
        deploy_mode: DeployMode::Container,
        // Whatever runs the network goes on: kubeon does not touch it.
        cni: Cni::None,
        pod_cidr: pods?,
        service_cidr: services?,
        proxy_mode: proxy?,
        cert_sans: names(configuration),
        max_pods,
        node_ports,
        node_mask_size,
        dns_domain,
        extra_args: extra_arguments(arguments),
        ..defaults
    })
}

fn network(configuration: &Value, field: &str, reasons: &mut Vec<Reason>) -> Option<Cidr> {
    let text = configuration["networking"][field].as_str().unwrap_or_default();
    let network: Option<Cidr> = text.parse().ok();
    if network.is_none() {
        let found = if text.is_empty() { "is not set" } else { text };
        reasons.push((format!("networking.{field}"), format!("{found}; kubeon needs one IPv4 network")));
    }
    network
}

fn proxy_mode(mode: Option<&str>, reasons: &mut Vec<Reason>) -> Option<ProxyMode> {
    let text = match mode {
        Some("" | "iptables") => return Some(ProxyMode::Iptables),
        Some("nftables") => return Some(ProxyMode::Nftables),
        Some(other) => format!("has mode {other}; only iptables and nftables can be kept"),
        None => {
            "does not run: another program implements Services, and kubeon's kube-proxy would work against it"
                .to_owned()
        }
    };
    reasons.push(("kube-proxy".to_owned(), text));
    None
}

/// The most pods of every node.
fn max_pods(hosts: &[KubeadmHost], reasons: &mut Vec<Reason>) -> u32 {
    let numbers: BTreeSet<u32> = hosts.iter().map(|host| host.max_pods().unwrap_or(DEFAULT_PODS)).collect();
    if numbers.len() > 1 {
        let list = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let text = format!("differs between the nodes: {list}; kubeon has one number for all");
        reasons.push(("maxPods".to_owned(), text));
    }
    numbers.last().copied().unwrap_or(DEFAULT_PODS)
}

/// The arguments of the static pods, which every master must have.
fn common_arguments(
    hosts: &[KubeadmHost],
    reasons: &mut Vec<Reason>,
) -> BTreeMap<&'static str, PodArguments> {
    let mut masters = hosts.iter().filter(|host| host.node.is_master);
    let Some(first) = masters.next() else {
        reasons.push(("nodes".to_owned(), "none is a master".to_owned()));
        return BTreeMap::new();
    };
    let arguments = first.static_pods().0;
    for other in masters {
        let pods = other.static_pods().0;
        let differs = arguments
            .iter()
            .filter(|(pod, own)| pods.get(*pod).is_some_and(|other| other.extra != own.extra));
        reasons.extend(differs.map(|(pod, _)| {
            (
                other.address.to_string(),
                format!("static pod {pod} has other arguments than that of {}", first.address),
            )
        }));
    }
    arguments
}

fn extra_arguments(mut pods: BTreeMap<&'static str, PodArguments>) -> ExtraArgs {
    let mut of = |pod: &str| pods.remove(pod).unwrap_or_default().extra;
    ExtraArgs {
        etcd: of("etcd"),
        kube_apiserver: of("kube-apiserver"),
        kube_controller_manager: of("kube-controller-manager"),
        kube_scheduler: of("kube-scheduler"),
        kubelet: BTreeMap::new(),
    }
}

/// Further names and addresses in the certificate of the API servers: those that the owner declared, and the endpoint of the control
/// plane, which kubeconfigs of people have.
fn names(configuration: &Value) -> Vec<Endpoint> {
    let declared =
        configuration["apiServer"]["certSANs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let endpoint = configuration["controlPlaneEndpoint"].as_str();
    let endpoint = endpoint.map(|text| text.rsplit_once(':').map_or(text, |(host, _)| host));
    let mut names: Vec<Endpoint> = declared.chain(endpoint).filter_map(|name| name.parse().ok()).collect();
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.to_string()));
    names
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
