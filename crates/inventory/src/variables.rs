//! Variables: those that kubeon reads, those that it refuses, and the meaning of the rest.

use std::collections::BTreeMap;

use kubeon_api::suggestion;
use kubeon_api::yaml::YamlNode;

use crate::mistake::{InventoryFile, InventoryMistake};
use crate::tree;

/// A variable's value and its place.
#[derive(Clone)]
pub(crate) struct Assignment {
    pub(crate) file: InventoryFile,
    pub(crate) line: u64,
    pub(crate) tree: YamlNode,
}

/// Variables by name.
pub(crate) type Variables = BTreeMap<String, Assignment>;

/// A remark for the user about variables, hosts or groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The variables, hosts or groups, in order; never empty.
    pub subjects: Vec<String>,
    /// The meaning: the end of a sentence that starts with the subjects.
    pub meaning: String,
}

/// Remarks; those with the same meaning are merged.
#[derive(Default)]
pub(crate) struct Remarks(Vec<Remark>);

impl Remarks {
    pub(crate) fn note(&mut self, subject: String, meaning: &str) {
        match self.0.iter_mut().find(|remark| remark.meaning == meaning) {
            Some(remark) if remark.subjects.contains(&subject) => {}
            Some(remark) => remark.subjects.push(subject),
            None => self.0.push(Remark { subjects: vec![subject], meaning: meaning.to_owned() }),
        }
    }

    pub(crate) fn into_list(self) -> Vec<Remark> {
        self.0
    }
}

/// Reads `group_vars.yml`.
pub(crate) fn read(text: &str, found: &mut Vec<InventoryMistake>) -> Variables {
    let file = InventoryFile::Variables;
    let Some(tree) = tree::read(text, file, found) else { return Variables::new() };
    match tree.fields() {
        Ok(fields) => fields
            .iter()
            .map(|field| {
                (field.name.clone(), Assignment { file, line: field.place.line, tree: field.node.clone() })
            })
            .collect(),
        Err(kind) => {
            let reason = format!("holds {kind}; it should hold variables, NAME: VALUE");
            found.push(InventoryMistake { file, line: tree.place.line, subject: String::new(), reason });
            Variables::new()
        }
    }
}

/// How a variable is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableKind {
    /// It is read, or it does not concern the cluster.
    Served,
    /// It requests a component that no bundle has; refused when it is true.
    Part(&'static str),
    /// It has no effect; the text describes what kubeon does instead.
    Idle(&'static str),
    /// It is unknown.
    Unknown,
}

/// Variables that settings and hosts are read from.
const SERVED: &[&str] = &[
    "access_ip",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_host",
    "ansible_password",
    "ansible_port",
    "ansible_ssh_host",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_ssh_port",
    "ansible_ssh_private_key_file",
    "ansible_ssh_user",
    "ansible_user",
    "apiserver_loadbalancer_domain_name",
    "cluster_name",
    "container_manager",
    "dns_domain",
    "dns_mode",
    "etcd_deployment_type",
    "ip",
    "kube_apiserver_node_port_range",
    "kube_apiserver_port",
    "kube_network_node_prefix",
    "kube_network_plugin",
    "kube_pods_subnet",
    "kube_proxy_mode",
    "kube_service_addresses",
    "kube_version",
    "kubelet_max_pods",
    "loadbalancer_apiserver",
    "loadbalancer_apiserver_localhost",
    "loadbalancer_apiserver_type",
    "node_labels",
    "supplementary_addresses_in_ssl_keys",
];

/// Variables of playbooks, of Ansible and of the inventory itself, which do not concern the cluster.
const SILENT: &[&str] = &[
    "allow_ungraceful_removal",
    "ansible_*",
    "etcd_member_name",
    "ignore_assert_errors",
    "kubeon_*",
    "node",
    "reset_confirmation",
    "reset_nodes",
    "skip_confirmation",
];

/// Variables that switch on a part, with the name of the part.
const PARTS: &[(&str, &str)] = &[
    ("argocd_enabled", "Argo CD"),
    ("cephfs_provisioner_enabled", "the cephfs provisioner"),
    ("cert_manager_enabled", "cert-manager"),
    ("crun_enabled", "crun"),
    ("csi_snapshot_controller_enabled", "the CSI snapshot controller"),
    ("dashboard_enabled", "the dashboard"),
    ("enable_dual_stack_networks", "IPv6"),
    ("gateway_api_enabled", "the gateway API"),
    ("gvisor_enabled", "gVisor"),
    ("helm_enabled", "helm"),
    ("ingress_alb_enabled", "an ingress controller"),
    ("ingress_nginx_enabled", "an ingress controller"),
    ("ipv6_stack", "IPv6"),
    ("kata_containers_enabled", "kata"),
    ("krew_enabled", "krew"),
    ("kube_network_plugin_multus", "multus"),
    ("kube_vip_enabled", "kube-vip"),
    ("local_path_provisioner_enabled", "the local path provisioner"),
    ("local_volume_provisioner_enabled", "the local volume provisioner"),
    ("metallb_enabled", "MetalLB"),
    ("metrics_server_enabled", "metrics-server"),
    ("node_feature_discovery_enabled", "node feature discovery"),
    ("nvidia_accelerator_enabled", "the nvidia device plugin"),
    ("persistent_volumes_enabled", "a storage class"),
    ("rbd_provisioner_enabled", "the rbd provisioner"),
    ("registry_enabled", "a registry"),
    ("scheduler_plugins_enabled", "scheduler plugins"),
    ("youki_enabled", "youki"),
];

const FROM_BUNDLE: &str =
    "has no effect: every program and image comes from the bundle of kube_version, nothing is downloaded";
const NO_CLOCK: &str = "has no effect: kubeon sets no clocks; the hosts need a time service";
const HOST_DNS: &str = "has no effect: pods resolve other names as their host does (/etc/resolv.conf)";
const OWN_ARGUMENTS: &str = "has no effect: kubeon chooses the arguments of what it installs";
const OWN_PLACES: &str = "has no effect: files lie where kubeadm puts them, programs under /var/lib/kubeon";
const NO_CALICO: &str = "has no effect: no bundle carries that network plugin, the pod network is flannel";
const RENEWAL: &str =
    "has no effect: certificates are valid for a year, and runs renew them past two thirds of it";
const NO_TAINTS: &str = "has no effect: kubeon taints masters where there are workers; other taints are declared in a file (kubeon create -f)";
const NO_MIRROR: &str = "has no effect: kubeon configures no registry and no proxy on hosts";

/// Variables without effect and the remark for each. The first matching pattern is used.
const IDLE: &[(&str, &str)] = &[
    ("auto_renew_certificates*", RENEWAL),
    ("force_certificate_regeneration", RENEWAL),
    ("download_*", FROM_BUNDLE),
    ("*_download_url", FROM_BUNDLE),
    ("*_checksum", FROM_BUNDLE),
    ("*_checksums", FROM_BUNDLE),
    ("*_image_repo", FROM_BUNDLE),
    ("*_image_tag", FROM_BUNDLE),
    ("*_repo_key_url", FROM_BUNDLE),
    ("k8s_image_pull_policy", FROM_BUNDLE),
    ("files_repo", FROM_BUNDLE),
    ("registry_host", FROM_BUNDLE),
    ("yum_repo", FROM_BUNDLE),
    ("debian_repo", FROM_BUNDLE),
    ("ubuntu_repo", FROM_BUNDLE),
    ("local_release_dir", FROM_BUNDLE),
    ("unsafe_show_logs", FROM_BUNDLE),
    ("*_version", "has no effect: the bundle of kube_version decides the versions of its parts"),
    ("ntp_*", NO_CLOCK),
    ("upstream_dns_servers", HOST_DNS),
    ("nameservers", HOST_DNS),
    ("searchdomains", HOST_DNS),
    ("resolvconf_mode", HOST_DNS),
    ("manual_dns_server", HOST_DNS),
    ("enable_nodelocaldns*", "has no effect: pods ask CoreDNS itself"),
    ("nodelocaldns_*", "has no effect: pods ask CoreDNS itself"),
    ("node_taints", NO_TAINTS),
    ("calico_*", NO_CALICO),
    ("cilium_*", NO_CALICO),
    ("kube_ovn_*", NO_CALICO),
    ("kube_router_*", NO_CALICO),
    ("weave_*", NO_CALICO),
    ("http_proxy", NO_MIRROR),
    ("https_proxy", NO_MIRROR),
    ("no_proxy", NO_MIRROR),
    ("containerd_registries*", NO_MIRROR),
    ("containerd_insecure_registries", NO_MIRROR),
    ("bin_dir", OWN_PLACES),
    ("*_dir", OWN_PLACES),
    ("kube_owner", OWN_PLACES),
    (
        "kubeconfig_localhost",
        "has no effect: the admin's kubeconfig is always written to $KUBEON_HOME/conf/cluster",
    ),
    ("kubectl_localhost", "has no effect: kubeon use puts kubectl at hand"),
    ("override_system_hostname", "has no effect: a host keeps its own name, the node gets the inventory's"),
    ("kube_*", OWN_ARGUMENTS),
    ("kubelet_*", OWN_ARGUMENTS),
    ("kubeadm_*", OWN_ARGUMENTS),
    ("kubernetes_*", OWN_ARGUMENTS),
    ("etcd_*", OWN_ARGUMENTS),
    ("containerd_*", OWN_ARGUMENTS),
    ("flannel_*", OWN_ARGUMENTS),
    ("coredns_*", OWN_ARGUMENTS),
    ("dns_*", OWN_ARGUMENTS),
    ("deploy_*", OWN_ARGUMENTS),
];

/// How a variable of this name is treated.
pub(crate) fn kind(name: &str) -> VariableKind {
    if SERVED.contains(&name) || SILENT.iter().any(|pattern| matches_pattern(pattern, name)) {
        return VariableKind::Served;
    }
    if let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == name) {
        return VariableKind::Part(part);
    }
    let idle = IDLE.iter().find(|(pattern, _)| matches_pattern(pattern, name));
    idle.map_or(VariableKind::Unknown, |(_, meaning)| VariableKind::Idle(meaning))
}

/// Whether a name matches a pattern, which may have a `*` at one end.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(begin)) => name.starts_with(begin),
        _ => pattern == name,
    }
}

/// The known variable with the most similar name.
pub(crate) fn suggestion(name: &str) -> Option<&'static str> {
    let parts = PARTS.iter().map(|(known, _)| *known);
    closest(name, SERVED.iter().copied().filter(|known| known.len() > 3).chain(parts))
}

/// The known word that a user may have meant: at most a quarter of its characters (1 or 2) differ.
pub(crate) fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    suggestion::closest(word, (word.chars().count() / 4).clamp(1, 2), known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_variables() {
        assert_eq!(kind("kube_version"), VariableKind::Served);
        assert_eq!(kind("ansible_python_interpreter"), VariableKind::Served);
        assert_eq!(kind("metrics_server_enabled"), VariableKind::Part("metrics-server"));
        assert_eq!(kind("download_run_once"), VariableKind::Idle(FROM_BUNDLE));
        assert_eq!(kind("kubelet_download_url"), VariableKind::Idle(FROM_BUNDLE));
        assert_eq!(kind("etcd_data_dir"), VariableKind::Idle(OWN_PLACES));
        assert_eq!(kind("kube_log_level"), VariableKind::Idle(OWN_ARGUMENTS));
        assert_eq!(kind("favourite_colour"), VariableKind::Unknown);
    }

    #[test]
    fn suggests_the_most_similar_variable() {
        assert_eq!(suggestion("kube_verison"), Some("kube_version"));
        assert_eq!(suggestion("kube_pod_subnet"), Some("kube_pods_subnet"));
        assert_eq!(suggestion("favourite_colour"), None);
    }
}
