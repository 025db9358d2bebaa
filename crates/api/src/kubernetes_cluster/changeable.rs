//! Which settings of a cluster that exists can change.

use super::settings::ClusterSettings;

/// Why a field of a cluster that exists cannot change; `None` when it can. The fields are those of [`ClusterSettings::differences`].
#[must_use]
pub fn fixed_because(field: &str) -> Option<&'static str> {
    Some(match field {
        "apiServer.certSANs"
        | "loadBalancer"
        | "network.maxPods"
        | "network.nodePortRange"
        | "network.mtu"
        | "containerRuntime"
        | "extraArgs"
        | "featureGates"
        | "kernelParameters" => {
            return None;
        }
        "podCIDR" => "every pod has an address of it",
        "serviceCIDR" => "every Service has an address of it",
        "network.nodeMaskSize" => "every node has its share of the pod network",
        "network.dnsDomain" => "every pod has it in its configuration",
        "apiServer.domain" | "apiServer.port" => "kubeconfigs name it",
        "certificates.caYears" => "it is read when keys are made",
        _ => "it is chosen when the cluster is created",
    })
}

impl ClusterSettings {
    /// These settings, with those of `requested` that can change.
    #[must_use]
    pub fn with_changes(&self, requested: &Self) -> Self {
        Self {
            cert_sans: requested.cert_sans.clone(),
            load_balancer: requested.load_balancer.clone(),
            max_pods: requested.max_pods,
            node_ports: requested.node_ports,
            mtu: requested.mtu,
            feature_gates: requested.feature_gates.clone(),
            container_runtime: requested.container_runtime.clone(),
            extra_args: requested.extra_args.clone(),
            kernel_parameters: requested.kernel_parameters.clone(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes_cluster::DeclaredCluster;

    /// What differs after the changes were taken over is what the reasons say.
    #[test]
    fn a_change_is_taken_over_or_has_a_reason() {
        let settings = |cluster: serde_json::Value| {
            let cluster: DeclaredCluster = serde_json::from_value(cluster).unwrap();
            cluster.settings().unwrap()
        };
        let before = settings(json!({}));
        let requested = settings(json!({
            "podCIDR": "10.128.0.0/12", "serviceCIDR": "10.200.0.0/16", "imagesRegistry": "r.example.com",
            "apiServer": {"domain": "api.example.com", "port": 8443, "certSANs": ["a.example.com"]},
            "loadBalancer": {"mode": "updater"},
            "network": {"proxyMode": "iptables", "dnsDomain": "a.local", "nodeMaskSize": 25, "maxPods": 60,
                "nodePortRange": "30000-30100", "mtu": 1400, "firewall": "manage", "cni": "none"},
            "certificates": {"caYears": 3}, "extraArgs": {"kubelet": {"v": "4"}},
            "containerRuntime": {"httpProxy": "http://proxy.example.com:3128"},
            "featureGates": "AllAlpha=false", "kernelParameters": {"vm.max_map_count": "262144"},
        }));
        let all = requested.differences(&before);
        let left = requested.differences(&before.with_changes(&requested));
        let fixed: Vec<_> = all.iter().copied().filter(|field| fixed_because(field).is_some()).collect();
        assert_eq!((left, all.len() - fixed.len()), (fixed, 9), "{all:?}");
    }

    #[test]
    fn the_declaration_of_settings_has_these_settings() {
        for cluster in [
            json!({}),
            json!({"loadBalancer": {"mode": "external", "address": "10.0.0.9", "port": 8443},
                "network": {"nodePortRange": "30000-30100", "mtu": 1400}, "extraArgs": {"kubelet": {"v": "4"}},
                "featureGates": "AllAlpha=false", "kernelParameters": {"vm.max_map_count": "262144"}}),
        ] {
            let declared: DeclaredCluster = serde_json::from_value(cluster).unwrap();
            let settings = declared.settings().unwrap();
            assert_eq!(DeclaredCluster::from(&settings).settings().unwrap(), settings);
        }
    }
}
