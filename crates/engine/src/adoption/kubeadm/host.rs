//! One host of a cluster of kubeadm: its files, and why kubeon cannot take it over.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_wire::{Cgroup, Facts};
use serde_json::Value;

use super::objects::{KubeadmNode, yaml};
use super::static_pods::{self, PODS, PodArguments};
use crate::adoption::printed_files;
use crate::cluster_nodes::command_output;
use crate::contact::Contact;

/// Time limit for reading the files of a host.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The folder of the manifests.
const MANIFESTS: &str = "/etc/kubernetes/manifests";
const KUBELET_CONFIG: &str = "/var/lib/kubelet/config.yaml";
/// Files with arguments of the kubelet, which the unit of kubeadm reads.
const KUBELET_ARGUMENTS: [&str; 3] =
    ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"];
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// What the command prints besides files.
const STATIC_PODS: &str = "@static-pods";
const DROP_INS: &str = "@drop-ins";
const NETWORKS: &str = "@networks";
/// The addition to the unit of the kubelet that the packages of kubeadm install.
const OWN_DROP_IN: &str = "10-kubeadm.conf";
/// Arguments of the kubelet that kubeon sets itself, or that count only when a node is made.
const KUBELET_FLAGS: [&str; 8] = [
    "cgroup-driver",
    "container-runtime",
    "container-runtime-endpoint",
    "hostname-override",
    "node-ip",
    "node-labels",
    "pod-infra-container-image",
    "register-with-taints",
];
/// Fields of the kubelet's configuration that kubeadm writes, or that kubeon decides by itself.
const KUBELET_FIELDS: [&str; 18] = [
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupDriver",
    "clusterDNS",
    "clusterDomain",
    "containerRuntimeEndpoint",
    "failCgroupV1",
    "healthzBindAddress",
    "healthzPort",
    "kind",
    "logging",
    "maxPods",
    "memorySwap",
    "resolvConf",
    "rotateCertificates",
    "serverTLSBootstrap",
    "staticPodPath",
];
/// Services of the host that become those of kubeon. What runs in their containers goes on.
const TAKEN_SERVICES: [&str; 2] = ["containerd", "kubelet"];

/// A host that kubeadm made a node.
pub(super) struct KubeadmHost {
    /// The address to log in at.
    pub(super) address: HostAddress,
    pub(super) node: KubeadmNode,
    pub(super) facts: Facts,
    files: BTreeMap<String, String>,
}

impl KubeadmHost {
    /// Reads the files of a host.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(super) async fn read(
        contact: &Contact,
        address: HostAddress,
        node: KubeadmNode,
        facts: Facts,
    ) -> Result<Self, String> {
        let output = command_output(&contact.hosts, address, &command(), TIMEOUT).await?;
        let files = printed_files::split(&output).ok_or("the output of its files is incomplete")?;
        Ok(Self { address, node, facts, files })
    }

    #[cfg(test)]
    pub(super) fn of(
        address: HostAddress,
        node: KubeadmNode,
        facts: Facts,
        files: BTreeMap<String, String>,
    ) -> Self {
        Self { address, node, facts, files }
    }

    fn text(&self, name: &str) -> &str {
        self.files.get(name).map_or("", String::as_str)
    }

    /// The configuration of its kubelet.
    fn kubelet(&self) -> Value {
        yaml(self.text(KUBELET_CONFIG)).unwrap_or_default()
    }

    /// The most pods that its kubelet runs; `None` for the default.
    pub(super) fn max_pods(&self) -> Option<u32> {
        self.kubelet()["maxPods"].as_u64().filter(|count| *count > 0)?.try_into().ok()
    }

    /// The arguments of its static pods by name, and why they cannot be taken over.
    pub(super) fn static_pods(&self) -> (BTreeMap<&'static str, PodArguments>, Vec<String>) {
        let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
        for (pod, known) in PODS.into_iter().filter(|_| self.node.is_master) {
            let manifest = self.text(&format!("{MANIFESTS}/{pod}.yaml"));
            if manifest.is_empty() {
                problems.push(format!("has no static pod {pod}"));
                continue;
            }
            let mut own = Vec::new();
            found.insert(pod, static_pods::read(known, manifest, &mut own));
            problems.extend(own.into_iter().map(|problem| format!("static pod {pod} {problem}")));
        }
        (found, problems)
    }

    /// Why the host cannot be taken over. `dns` and `domain` are those of the cluster.
    pub(super) fn problems(&self, dns: Option<Ipv4Addr>, domain: &str) -> Vec<String> {
        let mut problems: Vec<String> = self.owner_problems();
        problems.extend(self.foreign_pods().map(|name| {
            format!("has the static pod {name}, which kubeadm did not write and kubeon would not keep: remove it first")
        }));
        problems.extend(self.static_pods().1);
        problems.extend(self.kubelet_problems(dns, domain));
        problems.extend(self.argument_problems());
        problems.extend(self.runtime_problems());
        problems
    }

    fn owner_problems(&self) -> Vec<String> {
        let Facts { claim, addresses, own_services, .. } = &self.facts;
        let mut problems = Vec::new();
        if let Some(claim) = claim {
            problems.push(format!(
                "belongs to cluster {} with identity {} already: another control machine changes it",
                claim.cluster, claim.uid
            ));
        }
        if !addresses.is_empty() && !addresses.contains(&self.node.address.ip()) {
            problems.push(format!(
                "is not node {}: it does not have the address {}",
                self.node.name, self.node.address
            ));
        }
        let others: Vec<&str> =
            own_services.iter().map(String::as_str).filter(|name| !TAKEN_SERVICES.contains(name)).collect();
        if !others.is_empty() {
            problems
                .push(format!("has services of its own that kubeon would replace: {}", others.join(", ")));
        }
        problems
    }

    /// The files in the folder of the manifests that kubeadm did not write.
    fn foreign_pods(&self) -> impl Iterator<Item = &str> {
        let own = move |name: &&str| {
            let of_kubeadm = PODS.iter().any(|(pod, _)| name.strip_suffix(".yaml") == Some(*pod));
            !(self.node.is_master && of_kubeadm)
        };
        self.text(STATIC_PODS).split_whitespace().filter(own)
    }

    fn kubelet_problems(&self, dns: Option<Ipv4Addr>, domain: &str) -> Vec<String> {
        let config = self.kubelet();
        let Some(fields) = config.as_object() else {
            return vec![format!("{KUBELET_CONFIG} cannot be read")];
        };
        let driver = if self.facts.cgroup == Cgroup::V2 { "systemd" } else { "cgroupfs" };
        let wanted = [
            ("cgroupDriver", config["cgroupDriver"].as_str(), Some(driver.to_owned())),
            ("staticPodPath", config["staticPodPath"].as_str(), Some(MANIFESTS.to_owned())),
            ("clusterDomain", config["clusterDomain"].as_str(), Some(domain.to_owned())),
            ("clusterDNS", config["clusterDNS"][0].as_str(), dns.map(|dns| dns.to_string())),
        ];
        let differs = wanted.into_iter().filter_map(|(field, found, wanted)| {
            let found = found.unwrap_or_default();
            let wanted = wanted.filter(|wanted| wanted != found)?;
            Some(format!("its kubelet has {field} {found:?}; kubeon needs {wanted:?}"))
        });
        let more = fields
            .iter()
            .filter(|(name, value)| !KUBELET_FIELDS.contains(&name.as_str()) && !is_unset(value));
        let more = more.map(|(name, _)| format!("its kubelet has {name}, which kubeon cannot keep"));
        differs.chain(more).collect()
    }

    /// Arguments and additions of the kubelet that kubeon cannot keep.
    fn argument_problems(&self) -> Vec<String> {
        let words = KUBELET_ARGUMENTS.into_iter().flat_map(|file| arguments(self.text(file)));
        let mut problems: Vec<String> = words
            .filter_map(|(name, value)| {
                let other_address = name == "node-ip" && value != self.node.address.to_string();
                let kept = KUBELET_FLAGS.contains(&name.as_str()) && !other_address;
                (!kept).then(|| format!("its kubelet has --{name}={value}, which kubeon cannot keep"))
            })
            .collect();
        let additions = self.text(DROP_INS).split_whitespace();
        let foreign = additions.filter(|path| path.rsplit('/').next() != Some(OWN_DROP_IN));
        problems.extend(
            foreign.map(|path| format!("{path} adds to the unit of the kubelet, which kubeon cannot keep")),
        );
        problems
    }

    /// What containerd does for the pods that run, and kubeon's containerd would not.
    fn runtime_problems(&self) -> Vec<String> {
        const KEPT: [(&str, &str); 3] =
            [("root", "/var/lib/containerd"), ("state", "/run/containerd"), ("snapshotter", "overlayfs")];
        let mut problems = Vec::new();
        for line in self.text(CONTAINERD_CONFIG).lines().map(str::trim).filter(|line| !line.starts_with('#'))
        {
            if let Some(name) = runtime_of(line).filter(|name| *name != "runc") {
                problems.push(format!("containerd has the runtime {name}, which kubeon cannot keep"));
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            let value = value.trim().trim_matches(['"', '\'']);
            let other = KEPT
                .iter()
                .find(|(kept, wanted)| *kept == name.trim() && *wanted != value && !value.is_empty());
            if let Some((name, wanted)) = other {
                problems.push(format!("containerd has {name} {value}; only {wanted} can be kept"));
            }
        }
        let mut networks = self.text(NETWORKS).split_whitespace();
        if !networks.any(|name| name.ends_with(".conf") || name.ends_with(".conflist")) {
            problems.push("has no configuration of a network plugin in /etc/cni/net.d".to_owned());
        }
        problems.sort_unstable();
        problems.dedup();
        problems
    }
}

/// The name of a runtime in the head of a table, such as `[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]`.
fn runtime_of(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix('[')?.split_once("containerd.runtimes.")?;
    rest.trim_end_matches(']').split('.').next().map(|name| name.trim_matches('"'))
}

/// The arguments in a file of variables: those of every value.
fn arguments(text: &str) -> Vec<(String, String)> {
    let values = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let values = values
        .filter_map(|line| line.split_once('='))
        .map(|(_, value)| value.trim().trim_matches(['"', '\'']));
    let words = values.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix("--"));
    words
        .map(|word| word.split_once('=').unwrap_or((word, "true")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Whether a field has the value of a kubelet that nobody configured.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(items) => items.iter().all(is_unset),
        Value::Object(fields) => fields.values().all(is_unset),
    }
}

/// Prints the files of a host that tell what kubeadm and the owner decided.
fn command() -> String {
    let manifests = PODS.map(|(pod, _)| format!("{MANIFESTS}/{pod}.yaml"));
    let others = [KUBELET_CONFIG, CONTAINERD_CONFIG].into_iter().chain(KUBELET_ARGUMENTS);
    let files: Vec<String> = others.map(str::to_owned).chain(manifests).collect();
    let files = files.join(" ");
    format!(
        "shown() {{ printf '%s %s\\n%s' \"$(printf %s \"$2\" | wc -c)\" \"$1\" \"$2\"; }}; \
         for file in {files}; do [ -f \"$file\" ] || continue; \
         size=$(wc -c <\"$file\"); echo \"$size $file\"; cat \"$file\"; done; \
         shown {STATIC_PODS} \"$(ls {MANIFESTS} 2>/dev/null)\"; \
         shown {DROP_INS} \"$(systemctl show --property=DropInPaths --value kubelet.service 2>/dev/null)\"; \
         shown {NETWORKS} \"$(ls /etc/cni/net.d 2>/dev/null)\""
    )
}

#[cfg(test)]
#[path = "host_tests.rs"]
pub(super) mod tests;
