//! Clusters of any size, over bare hosts.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "what fails here fails the test")]

use std::collections::BTreeMap;

use kubeon_api::HostAddress;
use kubeon_plan::sim::bare;
use kubeon_plan::{
    Artifacts, ClusterSpec, HostSpec, ImageInfo, Intent, LoadBalancer, PartInfo, ProxyMode, Seen, Snapshot,
    validate,
};

pub const NOW: i64 = 1_800_000_000;

pub fn address(index: usize) -> HostAddress {
    format!("172.30.{}.{}", index / 200, 11 + index % 200).parse().unwrap()
}

fn part(name: &str) -> PartInfo {
    let digest = format!("{:0<64}", hex_of(name)).parse().unwrap();
    PartInfo { digest, size: 10 << 20, unpacked_size: 40 << 20, version: "v1".into() }
}

fn hex_of(text: &str) -> String {
    text.bytes().take(32).map(|byte| format!("{byte:02x}")).collect()
}

pub fn artifacts() -> Artifacts {
    let names = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kubelet",
        "kube-proxy",
        "containerd",
        "runc",
        "cni-plugins",
        "flannel",
        "haproxy",
    ];
    let image = |name: &str| ImageInfo { name: format!("registry.k8s.io/{name}:1"), part: part(name) };
    Artifacts {
        parts: names.into_iter().map(|name| (name.to_owned(), part(name))).collect(),
        images: ["pause", "coredns"].into_iter().map(|name| (name.to_owned(), image(name))).collect(),
    }
}

pub fn intent(masters: usize, workers: usize) -> Intent {
    let hosts = |range: std::ops::Range<usize>| {
        range.map(|index| HostSpec { address: address(index), name: None, labels: BTreeMap::new() }).collect()
    };
    let spec = ClusterSpec {
        name: "demo".parse().unwrap(),
        version: "v1.36.3".parse().unwrap(),
        masters: hosts(0..masters),
        workers: hosts(masters..masters + workers),
        api_domain: "apiserver.cluster.local".into(),
        cert_sans: vec![],
        load_balancer: LoadBalancer::Haproxy,
        pod_cidr: "10.96.0.0/12".parse().unwrap(),
        service_cidr: "10.64.0.0/12".parse().unwrap(),
        node_mask_size: 24,
        max_pods: 110,
        node_ports: (30000, 32767),
        dns_domain: "cluster.local".into(),
        proxy_mode: ProxyMode::Nftables,
        feature_gates: String::new(),
        ca_years: 100,
    };
    let (spec, _) = validate(spec, &["v1.36.3".parse().unwrap()]).unwrap();
    Intent { spec, uid: "uid-1".into(), generation: 0, artifacts: artifacts(), without: vec![] }
}

pub fn bare_hosts(count: usize) -> Snapshot {
    let hosts =
        (0..count).map(|index| (address(index), Seen::Fresh(bare(&format!("h{}", index + 1))))).collect();
    Snapshot { taken_at: NOW, hosts }
}
