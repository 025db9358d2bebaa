//! Further arguments of programs, which the declaration of a cluster gives.

use std::collections::BTreeMap;

/// How long an API server serves after it began to stop. Unlike other arguments of its unit, the owner may set it.
pub(crate) const SHUTDOWN_DELAY: &str = "shutdown-delay-duration";

/// A program that takes further arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonProgram {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// The kubelet.
    Kubelet,
}

impl DaemonProgram {
    /// Whether only kubeon sets the argument: its unit has it, it would contradict a configuration file of kubeon, or kubeon asks
    /// the program there.
    #[must_use]
    pub fn owns(self, name: &str) -> bool {
        // An API server with a file of authentication ends at once when it is given any of these too.
        let authenticates = self == Self::ApiServer && name.starts_with("oidc-");
        authenticates || self.owned().binary_search(&name).is_ok()
    }

    /// The names of these arguments, sorted.
    const fn owned(self) -> &'static [&'static str] {
        match self {
            Self::Etcd => ETCD,
            Self::ApiServer => APISERVER,
            Self::ControllerManager => CONTROLLER_MANAGER,
            Self::Scheduler => SCHEDULER,
            Self::Kubelet => KUBELET,
        }
    }
}

const ETCD: &[&str] = &[
    "advertise-client-urls",
    "auto-tls",
    "cert-file",
    "client-cert-auth",
    "config-file",
    "data-dir",
    "discovery",
    "discovery-srv",
    "feature-gates",
    "force-new-cluster",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "key-file",
    "listen-client-urls",
    "listen-metrics-urls",
    "listen-peer-urls",
    "name",
    "peer-auto-tls",
    "peer-cert-file",
    "peer-client-cert-auth",
    "peer-key-file",
    "peer-trusted-ca-file",
    "tls-min-version",
    "trusted-ca-file",
    "wal-dir",
    "watch-progress-notify-interval",
];

const APISERVER: &[&str] = &[
    "admission-control-config-file",
    "advertise-address",
    "allow-privileged",
    "anonymous-auth",
    "audit-log-compress",
    "audit-log-maxage",
    "audit-log-maxbackup",
    "audit-log-maxsize",
    "audit-log-path",
    "audit-policy-file",
    "authentication-config",
    "authorization-config",
    "authorization-mode",
    "bind-address",
    "client-ca-file",
    "enable-admission-plugins",
    "encryption-provider-config",
    "encryption-provider-config-automatic-reload",
    "endpoint-reconciler-type",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "etcd-prefix",
    "etcd-servers",
    "feature-gates",
    "kubelet-certificate-authority",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "kubelet-preferred-address-types",
    "profiling",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-username-headers",
    "secure-port",
    "service-account-issuer",
    "service-account-key-file",
    "service-account-signing-key-file",
    "service-cluster-ip-range",
    "service-node-port-range",
    "shutdown-watch-termination-grace-period",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-private-key-file",
];

const CONTROLLER_MANAGER: &[&str] = &[
    "allocate-node-cidrs",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "bind-address",
    "client-ca-file",
    "cluster-cidr",
    "cluster-name",
    "cluster-signing-cert-file",
    "cluster-signing-duration",
    "cluster-signing-key-file",
    "config",
    "feature-gates",
    "kube-api-burst",
    "kube-api-qps",
    "kubeconfig",
    "leader-elect",
    "node-cidr-mask-size",
    "profiling",
    "requestheader-client-ca-file",
    "root-ca-file",
    "secure-port",
    "service-account-private-key-file",
    "service-cluster-ip-range",
    "tls-cert-file",
    "tls-min-version",
    "tls-private-key-file",
    "use-service-account-credentials",
];

const SCHEDULER: &[&str] = &[
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "bind-address",
    "client-ca-file",
    "config",
    "feature-gates",
    "kubeconfig",
    "leader-elect",
    "profiling",
    "requestheader-client-ca-file",
    "secure-port",
    "tls-cert-file",
    "tls-min-version",
    "tls-private-key-file",
];

const KUBELET: &[&str] = &[
    "address",
    "anonymous-auth",
    "authentication-token-webhook",
    "authentication-token-webhook-cache-ttl",
    "authorization-mode",
    "bootstrap-kubeconfig",
    "cert-dir",
    "cgroup-driver",
    "client-ca-file",
    "cluster-dns",
    "cluster-domain",
    "config",
    "config-dir",
    "container-log-max-files",
    "container-log-max-size",
    "container-runtime-endpoint",
    "enable-server",
    "eviction-hard",
    "fail-cgroupv1",
    "feature-gates",
    "healthz-bind-address",
    "healthz-port",
    "hostname-override",
    "kubeconfig",
    "max-pods",
    "node-ip",
    "pod-manifest-path",
    "pod-max-pids",
    "port",
    "protect-kernel-defaults",
    "read-only-port",
    "register-node",
    "register-with-taints",
    "resolv-conf",
    "root-dir",
    "rotate-certificates",
    "seccomp-default",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-private-key-file",
];

/// The arguments with the further ones after them.
pub(crate) fn with_extra(mut arguments: Vec<String>, extra: &BTreeMap<String, String>) -> Vec<String> {
    arguments.extend(extra.iter().map(|(name, value)| quoted(&format!("--{name}={value}"))));
    arguments
}

/// The word as systemd reads it in a command line, without variables and specifiers.
fn quoted(word: &str) -> String {
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '$' | '%' => text.extend([c, c]),
            _ => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::{self, Kubelet};
    use crate::systemd;

    /// The names of the arguments in a unit.
    fn arguments(unit: &str) -> Vec<&str> {
        let lines = unit.lines().filter_map(|line| line.trim().strip_prefix("--"));
        lines.map(|line| line.split(['=', ' ']).next().unwrap()).collect()
    }

    #[test]
    fn every_argument_of_a_unit_belongs_to_kubeon() {
        let (none, address) = (BTreeMap::new(), Ipv4Addr::new(10, 0, 0, 1));
        let member = systemd::EtcdMember { name: "h1", address };
        let api = systemd::ApiServerUnit {
            etcd: &[Ipv4Addr::LOCALHOST],
            address,
            service_cidr: "10.64.0.0/12",
            node_ports: (1, 2),
            dns_domain: "cluster.local",
            feature_gates: "A=true",
        };
        let manager = systemd::ControllerManager {
            cluster: "demo",
            pod_cidr: "10.96.0.0/12",
            service_cidr: "10.64.0.0/12",
            node_mask_size: 24,
            feature_gates: "A=true",
        };
        for (program, unit) in [
            (DaemonProgram::Etcd, systemd::etcd(&member, &none)),
            (DaemonProgram::ApiServer, systemd::apiserver(&api, &none)),
            (DaemonProgram::ControllerManager, systemd::controller_manager(&manager, &none)),
            (DaemonProgram::Scheduler, systemd::scheduler("A=true", &none)),
            (DaemonProgram::Kubelet, systemd::kubelet("h1", address, "https://127.0.0.1:6443", &none)),
        ] {
            assert!(program.owned().is_sorted(), "{program:?}");
            assert!(arguments(&unit).len() > 3, "{unit}");
            for name in arguments(&unit) {
                assert!(program.owns(name) || name == SHUTDOWN_DELAY, "{program:?} {name}");
            }
            assert!(!program.owns("v"), "{program:?}");
        }
        assert!(DaemonProgram::ApiServer.owns("oidc-issuer-url"), "its file of authentication excludes it");
    }

    #[test]
    fn every_field_of_the_kubelets_file_belongs_to_kubeon() {
        let node = Kubelet {
            cgroup_v2: false,
            dns: Ipv4Addr::new(10, 64, 0, 10),
            dns_domain: "cluster.local",
            max_pods: 110,
            protect_kernel_defaults: true,
            control_plane_taint: true,
            resolv_conf: Some("/run/resolv.conf"),
            runs_static_pods: true,
            feature_gates: "A=true",
        };
        let file: serde_json::Value = serde_json::from_str(&config::kubelet(&node)).unwrap();
        let flag = |field: &str| match field {
            "authentication" => "anonymous-auth".to_owned(),
            "authorization" => "authorization-mode".to_owned(),
            "clusterDNS" => "cluster-dns".to_owned(),
            "containerRuntimeEndpoint" => "container-runtime-endpoint".to_owned(),
            "failCgroupV1" => "fail-cgroupv1".to_owned(),
            "podPidsLimit" => "pod-max-pids".to_owned(),
            "staticPodPath" => "pod-manifest-path".to_owned(),
            "tlsCertFile" => "tls-cert-file".to_owned(),
            "tlsPrivateKeyFile" => "tls-private-key-file".to_owned(),
            // Each capital letter begins a word.
            field => field.chars().fold(String::new(), |mut name, c| {
                if c.is_ascii_uppercase() {
                    name.push('-');
                }
                name.push(c.to_ascii_lowercase());
                name
            }),
        };
        // These have no argument of the command line.
        let without = ["apiVersion", "kind", "shutdownGracePeriod"];
        for field in file.as_object().unwrap().keys().filter(|field| !without.contains(&field.as_str())) {
            assert!(DaemonProgram::Kubelet.owns(&flag(field)), "{field}");
        }
    }

    #[test]
    fn a_value_is_one_word_for_systemd() {
        let extra = BTreeMap::from([("v".to_owned(), "a b\" $HOME %n \\".to_owned())]);
        let unit = systemd::scheduler("", &extra);
        assert!(unit.contains(r#"  "--v=a b\" $$HOME %%n \\""#), "{unit}");
    }
}
