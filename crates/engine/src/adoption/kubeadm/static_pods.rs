//! The static pods of a master of kubeadm: what kubeadm itself writes, what the owner added, and which of it kubeon can keep.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::yaml;

/// An argument of kubeadm: its name, and its value if kubeon sets the same or replaces it; `ANY` if it depends on the cluster.
type Known = (&'static str, &'static str);

/// A value that depends on the host or on a setting of the cluster.
const ANY: &str = "";

/// The static pods of a master, with the arguments that kubeadm writes.
pub(super) const PODS: [(&str, &[Known]); 4] = [
    ("etcd", ETCD),
    ("kube-apiserver", API_SERVER),
    ("kube-controller-manager", CONTROLLER_MANAGER),
    ("kube-scheduler", SCHEDULER),
];

const ETCD: &[Known] = &[
    ("advertise-client-urls", ANY),
    ("cert-file", "/etc/kubernetes/pki/etcd/server.crt"),
    ("client-cert-auth", "true"),
    ("data-dir", "/var/lib/etcd"),
    ("experimental-initial-corrupt-check", "true"),
    ("experimental-watch-progress-notify-interval", "5s"),
    ("feature-gates", "InitialCorruptCheck=true"),
    ("initial-advertise-peer-urls", ANY),
    ("initial-cluster", ANY),
    ("initial-cluster-state", ANY),
    ("key-file", "/etc/kubernetes/pki/etcd/server.key"),
    ("listen-client-urls", ANY),
    ("listen-metrics-urls", "http://127.0.0.1:2381"),
    ("listen-peer-urls", ANY),
    ("name", ANY),
    ("peer-cert-file", "/etc/kubernetes/pki/etcd/peer.crt"),
    ("peer-client-cert-auth", "true"),
    ("peer-key-file", "/etc/kubernetes/pki/etcd/peer.key"),
    ("peer-trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt"),
    ("snapshot-count", "10000"),
    ("trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt"),
    ("watch-progress-notify-interval", "5s"),
];

const API_SERVER: &[Known] = &[
    ("advertise-address", ANY),
    ("allow-privileged", "true"),
    ("authorization-mode", "Node,RBAC"),
    ("client-ca-file", "/etc/kubernetes/pki/ca.crt"),
    ("enable-admission-plugins", "NodeRestriction"),
    ("enable-bootstrap-token-auth", "true"),
    ("etcd-cafile", "/etc/kubernetes/pki/etcd/ca.crt"),
    ("etcd-certfile", "/etc/kubernetes/pki/apiserver-etcd-client.crt"),
    ("etcd-keyfile", "/etc/kubernetes/pki/apiserver-etcd-client.key"),
    ("etcd-servers", "https://127.0.0.1:2379"),
    ("kubelet-client-certificate", "/etc/kubernetes/pki/apiserver-kubelet-client.crt"),
    ("kubelet-client-key", "/etc/kubernetes/pki/apiserver-kubelet-client.key"),
    ("kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname"),
    ("proxy-client-cert-file", "/etc/kubernetes/pki/front-proxy-client.crt"),
    ("proxy-client-key-file", "/etc/kubernetes/pki/front-proxy-client.key"),
    ("requestheader-allowed-names", "front-proxy-client"),
    ("requestheader-client-ca-file", "/etc/kubernetes/pki/front-proxy-ca.crt"),
    ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
    ("requestheader-group-headers", "X-Remote-Group"),
    ("requestheader-username-headers", "X-Remote-User"),
    ("secure-port", "6443"),
    ("service-account-issuer", ANY),
    ("service-account-key-file", "/etc/kubernetes/pki/sa.pub"),
    ("service-account-signing-key-file", "/etc/kubernetes/pki/sa.key"),
    ("service-cluster-ip-range", ANY),
    ("service-node-port-range", ANY),
    ("tls-cert-file", "/etc/kubernetes/pki/apiserver.crt"),
    ("tls-private-key-file", "/etc/kubernetes/pki/apiserver.key"),
];

const CONTROLLER_MANAGER: &[Known] = &[
    ("allocate-node-cidrs", "true"),
    ("authentication-kubeconfig", "/etc/kubernetes/controller-manager.conf"),
    ("authorization-kubeconfig", "/etc/kubernetes/controller-manager.conf"),
    ("bind-address", "127.0.0.1"),
    ("client-ca-file", "/etc/kubernetes/pki/ca.crt"),
    ("cluster-cidr", ANY),
    ("cluster-name", ANY),
    ("cluster-signing-cert-file", "/etc/kubernetes/pki/ca.crt"),
    ("cluster-signing-key-file", "/etc/kubernetes/pki/ca.key"),
    ("controllers", "*,bootstrapsigner,tokencleaner"),
    ("kubeconfig", "/etc/kubernetes/controller-manager.conf"),
    ("leader-elect", "true"),
    ("node-cidr-mask-size", ANY),
    ("requestheader-client-ca-file", "/etc/kubernetes/pki/front-proxy-ca.crt"),
    ("root-ca-file", "/etc/kubernetes/pki/ca.crt"),
    ("service-account-private-key-file", "/etc/kubernetes/pki/sa.key"),
    ("service-cluster-ip-range", ANY),
    ("use-service-account-credentials", "true"),
];

const SCHEDULER: &[Known] = &[
    ("authentication-kubeconfig", "/etc/kubernetes/scheduler.conf"),
    ("authorization-kubeconfig", "/etc/kubernetes/scheduler.conf"),
    ("bind-address", "127.0.0.1"),
    ("kubeconfig", "/etc/kubernetes/scheduler.conf"),
    ("leader-elect", "true"),
];

/// Folders and files of the host that the pods of kubeadm see, and those of kubeon too.
const VOLUMES: [&str; 12] = [
    "/etc/ca-certificates",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/pki",
    "/etc/kubernetes/pki/etcd",
    "/etc/kubernetes/scheduler.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
    "/var/lib/etcd",
];
/// Folders with files of the owner that the pods of kubeon see.
const VISIBLE: [&str; 2] = ["/etc/kubernetes/", "/etc/ssl/certs/"];

/// The arguments of a static pod of kubeadm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodArguments {
    /// Those of kubeadm whose value depends on the cluster.
    pub(super) of_cluster: BTreeMap<String, String>,
    /// Those that the owner added.
    pub(super) extra: BTreeMap<String, String>,
}

/// Reads the manifest of a static pod, and adds why it cannot be taken over to `problems`.
pub(super) fn read(known: &[Known], manifest: &str, problems: &mut Vec<String>) -> PodArguments {
    let spec = match yaml(manifest) {
        Ok(pod) => pod["spec"].clone(),
        Err(error) => {
            problems.push(error);
            return PodArguments::default();
        }
    };
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [container] = containers else {
        problems.push(format!("has {} containers; kubeon runs one", containers.len()));
        return PodArguments::default();
    };
    if !spec["initContainers"].is_null() {
        problems.push("has containers of its own that run first".to_owned());
    }
    problems.extend(
        foreign_volumes(&spec).map(|volume| format!("sees {volume} of the host, which kubeon cannot keep")),
    );
    let variables = container["env"].as_array().into_iter().flatten();
    problems.extend(
        variables
            .filter_map(|variable| variable["name"].as_str())
            .map(|name| format!("has the environment variable {name}, which kubeon cannot keep")),
    );
    arguments(known, container, problems)
}

/// The volumes that neither kubeadm nor kubeon gives the pod.
fn foreign_volumes(spec: &Value) -> impl Iterator<Item = String> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| match volume["hostPath"]["path"].as_str() {
        Some(path) if VOLUMES.contains(&path) => None,
        Some(path) if VISIBLE.iter().any(|folder| path.starts_with(folder)) => None,
        Some(path) => Some(path.to_owned()),
        None => Some(format!("volume {}", volume["name"].as_str().unwrap_or_default())),
    })
}

fn arguments(known: &[Known], container: &Value, problems: &mut Vec<String>) -> PodArguments {
    let mut found = PodArguments::default();
    let words =
        ["command", "args"].into_iter().flat_map(|field| container[field].as_array().into_iter().flatten());
    for word in words.filter_map(Value::as_str).filter_map(|word| word.strip_prefix("--")) {
        let (name, value) = word.split_once('=').unwrap_or((word, "true"));
        match known.iter().find(|(known, _)| *known == name) {
            Some((_, wanted)) if *wanted == ANY => {
                found.of_cluster.insert(name.to_owned(), value.to_owned());
            }
            Some((_, wanted)) if *wanted == value => {}
            Some((_, wanted)) => {
                problems.push(format!(
                    "has --{name}={value}; kubeadm sets {wanted}, and kubeon cannot keep another value"
                ));
            }
            None => {
                found.extra.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
#[path = "static_pods_tests.rs"]
pub(super) mod tests;
