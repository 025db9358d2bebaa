//! Settings that can be declared and are not supported yet. Every entry point uses this check and refuses them by name, so
//! that no plan silently ignores one.

use super::choices::{ClusterType, Cni, ProxyMode};
use super::defaults::API_PORT;
use super::load_balancer::LoadBalancer;
use super::settings::ClusterSettings;

/// A setting that is not supported yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedSetting {
    /// The field under `spec.cluster`, such as `network.cni`.
    pub field: &'static str,
    /// What is missing, and which value to use instead.
    pub reason: &'static str,
}

impl ClusterType {
    /// Why this type is not supported; `None` when it is.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Kubernetes => None,
            Self::K3s => Some("k3s is not supported yet; use kubernetes"),
            Self::Kubeedge => Some("kubeedge is not supported yet; use kubernetes"),
            Self::Kind => Some("kind is not supported yet; use kubernetes"),
        }
    }
}

impl LoadBalancer {
    /// Why this load balancer is not supported, with its field; `None` when it is.
    #[must_use]
    pub fn unsupported(&self) -> Option<UnsupportedSetting> {
        let (field, reason) = match self {
            Self::Haproxy | Self::Updater => return None,
            Self::External { address, port: _ } if address.ip().is_some() => return None,
            Self::External { .. } => {
                ("loadBalancer.address", "a name is not supported yet; give the load balancer's IPv4 address")
            }
        };
        Some(UnsupportedSetting { field, reason })
    }
}

impl Cni {
    /// Why this plugin is not supported; `None` when it is.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Flannel | Self::None => None,
            Self::Calico => Some("no bundle carries calico; use flannel, or none and apply it yourself"),
            Self::Cilium => Some("no bundle carries cilium; use flannel, or none and apply it yourself"),
        }
    }
}

impl ProxyMode {
    /// Why this mode is not supported; `None` when it is.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Nftables | Self::Iptables | Self::Bpf => None,
            Self::Ipvs => Some("no bundle carries ipvs; use nftables or iptables"),
        }
    }
}

impl ClusterSettings {
    /// Every setting that is not supported yet, or not together with the others.
    #[must_use]
    pub fn unsupported(&self) -> Vec<UnsupportedSetting> {
        let port = (self.api_port != API_PORT).then_some("only port 6443 is supported");
        let own_network = self.cni == Cni::None;
        let bpf = (self.proxy_mode == ProxyMode::Bpf && !own_network).then_some(
            "a cluster without kube-proxy needs a network plugin that replaces it; use bpf with network.cni none",
        );
        let mtu = (self.mtu.is_some() && own_network)
            .then_some("without a network plugin of kubeon it has no effect; leave it out");
        let registry = self
            .images_registry
            .is_some()
            .then_some("every image comes from the bundle, no registry is used; leave it out");
        let fields = [
            ("clusterType", self.cluster_type.unsupported()),
            ("network.cni", self.cni.unsupported()),
            ("network.proxyMode", self.proxy_mode.unsupported().or(bpf)),
            ("network.mtu", mtu),
            ("apiServer.port", port),
            ("imagesRegistry", registry),
        ];
        let found = fields
            .into_iter()
            .filter_map(|(field, reason)| Some(UnsupportedSetting { field, reason: reason? }));
        found.chain(self.load_balancer.unsupported()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::spec::DeclaredCluster;

    #[test]
    fn a_cluster_of_defaults_is_supported() {
        assert_eq!(DeclaredCluster::default().settings().unwrap().unsupported(), []);
    }

    #[test]
    fn all_unsupported_settings_are_reported_at_once() {
        let declared = json!({
            "clusterType": "k3s", "apiServer": {"port": 8443},
            "network": {"cni": "calico", "proxyMode": "ipvs"}, "imagesRegistry": "registry.example.com",
            "loadBalancer": {"mode": "external", "address": "lb.example.com"},
        });
        let declared: DeclaredCluster = serde_json::from_value(declared).unwrap();
        let found = declared.settings().unwrap().unsupported();
        let fields: Vec<_> = found.iter().map(|setting| setting.field).collect();
        assert_eq!(
            fields,
            [
                "clusterType",
                "network.cni",
                "network.proxyMode",
                "apiServer.port",
                "imagesRegistry",
                "loadBalancer.address"
            ]
        );
    }

    #[test]
    fn a_cluster_without_a_network_may_be_one_without_kube_proxy() {
        for (network, fields) in [
            (json!({"cni": "none"}), vec![]),
            (json!({"cni": "none", "proxyMode": "bpf"}), vec![]),
            (json!({"cni": "none", "proxyMode": "iptables"}), vec![]),
            (json!({"proxyMode": "bpf"}), vec!["network.proxyMode"]),
            (json!({"cni": "none", "mtu": 1400}), vec!["network.mtu"]),
        ] {
            let declared: DeclaredCluster = serde_json::from_value(json!({"network": network})).unwrap();
            let found = declared.settings().unwrap().unsupported();
            let found: Vec<_> = found.iter().map(|setting| setting.field).collect();
            assert_eq!(found, fields, "{network}");
        }
    }

    #[test]
    fn a_load_balancer_needs_an_ipv4_address() {
        for (address, field) in [("10.0.0.9", None), ("lb.example.com", Some("loadBalancer.address"))] {
            let declared: DeclaredCluster =
                serde_json::from_value(json!({"externalLoadBalancer": address})).unwrap();
            let found = declared.settings().unwrap().load_balancer.unsupported();
            assert_eq!(found.map(|setting| setting.field), field, "{address}");
        }
    }
}
