//! Why a request is refused, as data. Each entry point renders it in its own terms: the CLI names flags, the operator names
//! annotations and field paths.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels;
use crate::names::{HostAddress, Version};
use crate::words::words;

/// First line of a text about failed checks.
pub const FAILED_WITH: &str = "[precheck] failed with:";

/// The text about failed checks: [`FAILED_WITH`], then each line of `lines`, such as `ADDRESS : what is wrong`.
#[must_use]
pub fn failed_with<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) -> String {
    lines.into_iter().fold(FAILED_WITH.to_owned(), |text, line| text + "\n " + line.as_ref())
}

/// One reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The declared field that is wrong.
    pub field: RefusedField,
    /// The value of the field; empty when the field is missing or the refusal is not about its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub value: String,
    /// What is wrong with it, without flags or annotations.
    #[schemars(length(max = 4096))]
    pub reason: String,
    /// What a user can do about it, if there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
}

impl Refusal {
    /// Refuses the value of a field.
    pub fn new(field: RefusedField, value: impl ToString, reason: impl Into<String>) -> Self {
        Self { field, value: value.to_string(), reason: reason.into(), remedy: None }
    }

    /// Refuses a host.
    pub fn host(host: HostAddress, reason: impl Into<String>) -> Self {
        Self::new(RefusedField::Host, host, reason)
    }

    /// Refuses an argument that only one entry point has, as the user wrote it: `--cni calico`.
    pub fn argument(argument: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(RefusedField::Argument, argument.into(), reason)
    }

    /// Refuses a setting that has no word of its own in [`RefusedField`], by its path: `spec.cluster.network.type`.
    pub fn setting(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(RefusedField::Setting, path.into(), reason)
    }

    /// The same refusal with a remedy.
    #[must_use]
    pub fn with(self, remedy: impl Into<Option<Remedy>>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}

words! {
    /// The subject of a refusal.
    RefusedField {
        /// The cluster's name.
        Name = "name",
        /// The Kubernetes version.
        Version = "version",
        /// A host of the control plane.
        Master = "master",
        /// A host for workloads.
        Worker = "worker",
        /// A host of etcd alone.
        EtcdHost = "etcdHost",
        /// The node name of a master.
        MasterName = "masterName",
        /// The node name of a worker.
        WorkerName = "workerName",
        /// The network of the pods.
        PodCidr = "podCIDR",
        /// The network of the services.
        ServiceCidr = "serviceCIDR",
        /// The prefix length of a node's share of the pod network.
        NodeMaskSize = "nodeMaskSize",
        /// Pods per node.
        MaxPods = "maxPods",
        /// Ports for Services of type `NodePort`.
        NodePortRange = "nodePortRange",
        /// Life of the certificate authorities.
        CaYears = "caYears",
        /// The size of the packets of pods.
        Mtu = "mtu",
        /// The load balancer.
        LoadBalancer = "loadBalancer",
        /// A host of any role.
        Host = "host",
        /// The bundle of a version.
        Bundle = "bundle",
        /// Any other setting; the value is the path of its field.
        Setting = "setting",
        /// An argument that only one entry point has; the value is the whole argument.
        Argument = "argument",
    }
}

impl RefusedField {
    /// The path of the field in a `KubernetesCluster`; `None` when the subject is not a field of it.
    #[must_use]
    pub fn path(self) -> Option<&'static str> {
        Some(match self {
            Self::Name => "metadata.name",
            Self::Version => "spec.cluster.kubeVersion",
            Self::Master => "spec.cluster.masterList",
            Self::Worker => "spec.cluster.nodeList",
            Self::EtcdHost => "spec.cluster.etcdList",
            Self::MasterName => "spec.cluster.masterList[].name",
            Self::WorkerName => "spec.cluster.nodeList[].name",
            Self::PodCidr => "spec.cluster.podCIDR",
            Self::ServiceCidr => "spec.cluster.serviceCIDR",
            Self::NodeMaskSize => "spec.cluster.network.nodeMaskSize",
            Self::MaxPods => "spec.cluster.network.maxPods",
            Self::NodePortRange => "spec.cluster.network.nodePortRange",
            Self::CaYears => "spec.cluster.certificates.caYears",
            Self::Mtu => "spec.cluster.network.mtu",
            Self::LoadBalancer => "spec.cluster.loadBalancer",
            Self::Host | Self::Bundle | Self::Setting | Self::Argument => return None,
        })
    }
}

/// What a user can do about a refusal. Each entry point describes how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Remedy {
    /// Leave this host out of the operation.
    SkipHost(HostAddress),
    /// Ignore the check of this name.
    Ignore(#[schemars(length(max = 63))] String),
    /// Change this field, which the refused field contradicts.
    Change(RefusedField),
    /// Give this host a name in the cluster's declaration.
    NameHost(HostAddress),
    /// Remove the other cluster from this host, or use another host.
    FreeHost(HostAddress),
    /// Adopt the cluster of this name if its control machine was lost, remove it where it was created, or use another host.
    AdoptCluster(#[schemars(length(max = 63))] String),
    /// Build the bundle of this version again.
    BuildBundle(Version),
    /// Compare the SSH key that this host shows with the key on the host, and trust it.
    TrustHostKey(HostAddress),
    /// Let kubeon open the firewall of this host.
    ManageFirewall(HostAddress),
    /// Give this host its own address in the cluster's network.
    SetInternalAddress(HostAddress),
}

/// The remedy of [`Remedy::FreeHost`] for every entry point. It is appended to the reason.
pub const FREE_HOST: &str = "; remove that cluster first, or name another host";

impl Remedy {
    /// The remedy in terms of the fields and annotations of a `KubernetesCluster`. It is appended to the reason. It is empty
    /// when the operator adds a command itself.
    #[must_use]
    pub fn for_objects(&self) -> String {
        match self {
            // The operator names all such hosts in one command.
            Self::SkipHost(_) => String::new(),
            Self::TrustHostKey(_) => "; trust this key if it is the key of the host".to_owned(),
            Self::Ignore(check) => format!(": annotate the object with {}={check}", labels::IGNORE_CHECKS),
            Self::ManageFirewall(_) => {
                "; open it, or set spec.cluster.network.firewall to manage in a new cluster".to_owned()
            }
            Self::SetInternalAddress(_) => "; set its internalAddress in masterList or nodeList".to_owned(),
            Self::Change(field) => field.path().map(|path| format!(" ({path})")).unwrap_or_default(),
            Self::NameHost(_) => "; set its name in masterList or nodeList".to_owned(),
            Self::FreeHost(_) => FREE_HOST.to_owned(),
            Self::AdoptCluster(_) => {
                "; remove that cluster where it was created, or name another host".to_owned()
            }
            Self::BuildBundle(version) => format!("; build the bundle of {version} again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_written_as_flat_json_and_read_again() {
        let refusal = Refusal::host("10.0.0.4".parse().unwrap(), "no route to host")
            .with(Remedy::SkipHost("10.0.0.4".parse().unwrap()));
        let text = serde_json::to_string(&refusal).unwrap();
        assert_eq!(
            text,
            r#"{"field":"host","value":"10.0.0.4","reason":"no route to host","remedy":{"skipHost":"10.0.0.4"}}"#
        );
        assert_eq!(serde_json::from_str::<Refusal>(&text).unwrap(), refusal);
    }

    #[test]
    fn a_field_of_the_declaration_has_a_path() {
        let paths = RefusedField::ALL.iter().filter_map(|field| field.path());
        assert!(paths.clone().all(|path| path.starts_with("spec.cluster.") || path == "metadata.name"));
        assert_eq!(paths.count(), RefusedField::ALL.len() - 4);
    }
}
