//! The declaration of complete settings: every field is written out.

use super::choices::LoadBalancerMode;
use super::settings::{ClusterSettings, LoadBalancer};
use super::spec::{ApiServer, Certificates, DeclaredCluster, DeclaredLoadBalancer, Network};

impl From<&ClusterSettings> for DeclaredCluster {
    /// A declaration with these settings, without version and hosts. It has no field for feature gates.
    fn from(settings: &ClusterSettings) -> Self {
        let ClusterSettings {
            api_domain,
            cert_sans,
            load_balancer,
            pod_cidr,
            service_cidr,
            node_mask_size,
            max_pods,
            node_ports,
            dns_domain,
            proxy_mode,
            feature_gates: _,
            ca_years,
            cluster_type,
            deploy_mode,
            api_port,
            cni,
            firewall,
            images_registry,
            container_runtime,
            extra_args,
        } = settings.clone();
        let network = Network {
            cni: Some(cni),
            proxy_mode: Some(proxy_mode),
            dns_domain: Some(dns_domain),
            node_mask_size: Some(node_mask_size),
            max_pods: Some(max_pods),
            node_port_range: Some(node_ports),
            firewall: Some(firewall),
        };
        Self {
            cluster_type: Some(cluster_type),
            deploy_mode: Some(deploy_mode),
            pod_cidr: Some(pod_cidr),
            service_cidr: Some(service_cidr),
            images_registry,
            api_server: Some(ApiServer { domain: Some(api_domain), port: Some(api_port), cert_sans }),
            load_balancer: Some(balancer(load_balancer)),
            network: Some(network),
            certificates: Some(Certificates { ca_years: Some(ca_years) }),
            container_runtime: Some(container_runtime).filter(|runtime| !runtime.is_empty()),
            extra_args: Some(extra_args).filter(|arguments| !arguments.is_empty()),
            ..Self::default()
        }
    }
}

fn balancer(load_balancer: LoadBalancer) -> DeclaredLoadBalancer {
    let of = |mode| DeclaredLoadBalancer { mode: Some(mode), ..DeclaredLoadBalancer::default() };
    match load_balancer {
        LoadBalancer::Haproxy => of(LoadBalancerMode::Haproxy),
        LoadBalancer::Updater => of(LoadBalancerMode::Updater),
        LoadBalancer::External { address, port } => DeclaredLoadBalancer {
            address: Some(address),
            port: Some(port),
            ..of(LoadBalancerMode::External)
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_declaration_of_settings_has_these_settings() {
        for cluster in [
            json!({}),
            json!({"loadBalancer": {"mode": "external", "address": "10.0.0.9", "port": 8443},
                "network": {"nodePortRange": "30000-30100"}, "extraArgs": {"kubelet": {"v": "4"}}}),
        ] {
            let declared: DeclaredCluster = serde_json::from_value(cluster).unwrap();
            let settings = declared.settings().unwrap();
            assert_eq!(DeclaredCluster::from(&settings).settings().unwrap(), settings);
        }
    }
}
