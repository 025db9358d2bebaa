//! Settings that can be declared and that no cluster can have yet. Every entry point asks here and refuses them by name:
//! no plan is made that leaves one of them out.

use super::choices::{ClusterType, Cni, DeployMode, ProxyMode};
use super::defaults::API_PORT;
use super::settings::{ClusterSettings, LoadBalancer};

/// A setting that no cluster can have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedSetting {
    /// The field under `spec.cluster`, such as `network.cni`.
    pub field: &'static str,
    /// What is missing, and what to use.
    pub reason: &'static str,
}

impl ClusterType {
    /// Why no cluster can be of this type; `None` where one can.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Kubernetes => None,
            Self::K3s => Some("k3s is not there yet; use kubernetes"),
            Self::Kubeedge => Some("kubeedge is not there yet; use kubernetes"),
            Self::Kind => Some("kind is not there yet; use kubernetes"),
        }
    }
}

impl DeployMode {
    /// Why no control plane can run like this; `None` where one can.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Binary => None,
            Self::Container => Some("container is not there yet; use binary"),
        }
    }
}

impl LoadBalancer {
    /// Why no worker can reach the masters like this, with the field that says so; `None` where one can.
    #[must_use]
    pub fn unsupported(&self) -> Option<UnsupportedSetting> {
        let (field, reason) = match self {
            Self::Haproxy => return None,
            Self::External { address, port: _ } if address.ip().is_some() => return None,
            Self::External { .. } => {
                ("loadBalancer.address", "a name is not there yet; give the load balancer's IPv4 address")
            }
            Self::Updater => ("loadBalancer.mode", "updater is not there yet; use haproxy or external"),
        };
        Some(UnsupportedSetting { field, reason })
    }
}

impl Cni {
    /// Why no cluster can have this plugin; `None` where one can.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Flannel => None,
            Self::Calico => Some("no bundle carries calico; use flannel"),
            Self::Cilium => Some("no bundle carries cilium; use flannel"),
            Self::None => Some("a cluster without a network is not there yet; use flannel"),
        }
    }
}

impl ProxyMode {
    /// Why no cluster can implement Services like this; `None` where one can.
    #[must_use]
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Nftables | Self::Iptables => None,
            Self::Ipvs => Some("no bundle carries ipvs; use nftables or iptables"),
        }
    }
}

impl ClusterSettings {
    /// Every setting that no cluster can have yet.
    #[must_use]
    pub fn unsupported(&self) -> Vec<UnsupportedSetting> {
        let port = (self.api_port != API_PORT).then_some("only 6443 is there yet");
        let registry = self
            .images_registry
            .is_some()
            .then_some("every image comes from the bundle, no registry is asked; leave it out");
        let fields = [
            ("clusterType", self.cluster_type.unsupported()),
            ("deployMode", self.deploy_mode.unsupported()),
            ("network.cni", self.cni.unsupported()),
            ("network.proxyMode", self.proxy_mode.unsupported()),
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
    fn every_setting_that_no_cluster_can_have_is_named_at_once() {
        let declared = json!({
            "clusterType": "k3s", "deployMode": "container", "apiServer": {"port": 8443},
            "network": {"cni": "calico", "proxyMode": "ipvs"}, "imagesRegistry": "registry.example.com",
            "loadBalancer": {"mode": "updater"},
        });
        let declared: DeclaredCluster = serde_json::from_value(declared).unwrap();
        let found = declared.settings().unwrap().unsupported();
        let fields: Vec<_> = found.iter().map(|one| one.field).collect();
        assert_eq!(
            fields,
            [
                "clusterType",
                "deployMode",
                "network.cni",
                "network.proxyMode",
                "apiServer.port",
                "imagesRegistry",
                "loadBalancer.mode"
            ]
        );
    }

    #[test]
    fn a_load_balancer_is_given_by_its_address() {
        for (address, field) in [("10.0.0.9", None), ("lb.example.com", Some("loadBalancer.address"))] {
            let declared: DeclaredCluster =
                serde_json::from_value(json!({"externalLoadBalancer": address})).unwrap();
            let found = declared.settings().unwrap().load_balancer.unsupported();
            assert_eq!(found.map(|one| one.field), field, "{address}");
        }
    }
}
