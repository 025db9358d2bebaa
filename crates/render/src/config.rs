//! Configuration files of the programs on a host. Kubernetes reads JSON as YAML, so a serializer writes these files and no
//! text is pasted together.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use kubeon_wire::MANIFESTS;
use serde_json::{Value, json};

use crate::paths::{self, CONTAINERD_SOCKET, etc, pki};
use crate::tls::{CIPHER_SUITES, MIN_VERSION};

pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// The properties of a host that the configuration of containerd depends on.
#[derive(Debug, Clone, Copy)]
pub struct ContainerdHost<'a> {
    /// The pause image's name.
    pub pause: &'a str,
    /// Whether systemd (cgroup v2) or containerd (cgroup v1) manages the control groups of containers.
    pub systemd_cgroup: bool,
    /// Whether lowering `oom_score_adj` fails on this host.
    pub restrict_oom_score_adj: bool,
    /// Whether it writes the configuration of the network plugins from [`cni_template`].
    pub writes_network: bool,
}

/// `/etc/containerd/config.toml`, configuration version 3 (containerd 2).
#[must_use]
pub fn containerd(host: &ContainerdHost<'_>) -> String {
    let ContainerdHost { pause, systemd_cgroup, restrict_oom_score_adj, writes_network } = host;
    let template = if *writes_network {
        format!("    conf_template = \"{}\"\n", etc("cni.json.template"))
    } else {
        String::new()
    };
    let cni_bin = format!("{}/bin", paths::current("cni-plugins"));
    let runc = paths::program("runc", "runc");
    format!(
        r#"# Written by kubeon. Changes are replaced.
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
# What a Kubernetes node does not use is not started.
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {restrict_oom_score_adj}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        SystemdCgroup = {systemd_cgroup}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni_bin}", "/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
{template}
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "/etc/containerd/certs.d"
"#
    )
}

/// The template from which containerd writes `/etc/cni/net.d` once the node's pod range is known: a bridge with packets of at
/// most `mtu` bytes, addresses from the node's range, and host ports.
#[must_use]
pub fn cni_template(mtu: u32) -> String {
    pretty(&json!({
        "cniVersion": "1.0.0",
        "name": "kubeon",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": true,
                "hairpinMode": true,
                "mtu": mtu,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": "{{.PodCIDR}}" }]],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    }))
}

/// The settings of a kubelet.
#[derive(Debug, Clone, Copy)]
pub struct Kubelet<'a> {
    /// Address of the cluster's DNS service.
    pub dns: Ipv4Addr,
    /// DNS domain of the cluster.
    pub dns_domain: &'a str,
    /// Pods per node.
    pub max_pods: u32,
    /// Whether the host uses cgroup v2.
    pub cgroup_v2: bool,
    /// Whether the kubelet refuses kernel parameters with other values instead of changing them.
    pub protect_kernel_defaults: bool,
    /// Whether the node gets the taint of the control plane, which keeps ordinary pods away.
    pub control_plane_taint: bool,
    /// The file with the name servers of pods that do not use the cluster's DNS; `None` for `/etc/resolv.conf`.
    pub resolv_conf: Option<&'a str>,
    /// Feature gates, `Name=true` pairs joined by commas, or empty.
    pub feature_gates: &'a str,
    /// Whether it runs static pods.
    pub runs_static_pods: bool,
}

/// The most processes of a pod. Without a limit one pod can use up the process numbers of its node.
const POD_PIDS_LIMIT: u32 = 4096;

/// The kernel parameters that a kubelet expects, with their values. With `protectKernelDefaults` it does not start when one
/// of them has another value.
pub const KERNEL_DEFAULTS: &[(&str, &str)] = &[
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
];

/// `/var/lib/kubelet/config.yaml`.
#[must_use]
pub fn kubelet(node: &Kubelet<'_>) -> String {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true, "cacheTTL": "2m0s" },
            "x509": { "clientCAFile": pki("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": if node.cgroup_v2 { "systemd" } else { "cgroupfs" },
        "clusterDNS": [node.dns],
        "clusterDomain": node.dns_domain,
        "containerLogMaxFiles": 5,
        "containerLogMaxSize": "10Mi",
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "evictionHard": { "imagefs.available": "5%", "memory.available": "100Mi", "nodefs.available": "5%", "nodefs.inodesFree": "5%" },
        "maxPods": node.max_pods,
        "podPidsLimit": POD_PIDS_LIMIT,
        "protectKernelDefaults": node.protect_kernel_defaults,
        "readOnlyPort": 0,
        "rotateCertificates": true,
        "seccompDefault": true,
        "shutdownGracePeriod": "0s",
        "tlsCertFile": pki("kubelet-serving.crt"),
        "tlsCipherSuites": CIPHER_SUITES,
        "tlsMinVersion": MIN_VERSION,
        "tlsPrivateKeyFile": pki("kubelet-serving.key"),
    });
    if !node.cgroup_v2 {
        config["failCgroupV1"] = json!(false);
    }
    if node.control_plane_taint {
        config["registerWithTaints"] =
            json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]);
    }
    if node.runs_static_pods {
        config["staticPodPath"] = json!(MANIFESTS);
    }
    if let Some(path) = node.resolv_conf {
        config["resolvConf"] = json!(path);
    }
    if let Some(gates) = gates(node.feature_gates) {
        config["featureGates"] = gates;
    }
    pretty(&config)
}

/// `/etc/kubernetes/resolv.conf`, for hosts whose own file names a server that pods cannot use.
#[must_use]
pub fn resolv_conf(name_servers: &[String]) -> String {
    let lines: String = name_servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    format!("# Written by kubeon. Changes are replaced.\n{lines}")
}

fn gates(text: &str) -> Option<Value> {
    let pairs: serde_json::Map<String, Value> = text
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), json!(value == "true")))
        .collect();
    (!pairs.is_empty()).then_some(Value::Object(pairs))
}

/// `/etc/kubernetes/kube-proxy.yaml`.
#[must_use]
pub fn kube_proxy(node: &str, mode: &str, pod_cidr: &str, set_conntrack: bool) -> String {
    let mut config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clientConnection": { "kubeconfig": etc("kube-proxy.conf") },
        "clusterCIDR": pod_cidr,
        "hostnameOverride": node,
        "healthzBindAddress": "0.0.0.0:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    });
    if !set_conntrack {
        config["conntrack"] = json!({
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s", "udpStreamTimeout": "0s",
        });
    }
    pretty(&config)
}

/// `/etc/kubernetes/flannel.json`.
#[must_use]
pub fn flannel(pod_cidr: &str, nftables: bool) -> String {
    pretty(&json!({ "Network": pod_cidr, "EnableNFTables": nftables, "Backend": { "Type": "vxlan" } }))
}

/// A kubeconfig that contains the paths of certificate and key, so that it contains no secret.
#[must_use]
pub fn kubeconfig(server: &str, user: &str, certificate: &str, key: &str) -> String {
    pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "kubernetes", "cluster": { "server": server, "certificate-authority": pki("ca.crt") } }],
        "users": [{ "name": user, "user": { "client-certificate": certificate, "client-key": key } }],
        "contexts": [{ "name": "default", "context": { "cluster": "kubernetes", "user": user } }],
        "current-context": "default",
    }))
}

/// `/etc/kubernetes/haproxy.cfg` of a worker. The backends are the masters that answer `/readyz`. A master that is down
/// does not accept connections: haproxy notices it within two seconds and closes its sessions, so that clients connect to
/// another master. A master that accepts a connection has ten seconds to answer, because a slow answer is better than a
/// closed session. A single master is not checked: its sessions have nowhere else to go.
#[must_use]
pub fn haproxy(masters: &[(String, Ipv4Addr)]) -> String {
    let mut config = "# Written by kubeon. Changes are replaced.\n\
         global\n  maxconn 8192\n  hard-stop-after 1h\n  ssl-default-server-options ssl-min-ver TLSv1.2\n\n\
         defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1h\n  timeout server 1h\n  timeout check 10s\n\
         \x20 retries 3\n  option redispatch 1\n\n\
         frontend api\n  bind 127.0.0.1:6443\n  default_backend masters\n\n\
         backend masters\n  balance leastconn\n"
        .to_owned();
    if masters.len() > 1 {
        // An API server that shuts down says so for some seconds: it gets no new connection and keeps its open ones. haproxy
        // limits the connection of a check to `inter`, and its answer to `timeout check`.
        let _ = writeln!(
            config,
            "  option httpchk GET /readyz\n  http-check expect ! string \"[-]shutdown failed\" error-status L7OKC\n\
             \x20 http-check expect status 200\n\
             \x20 default-server check check-ssl verify required ca-file {} inter 700ms fastinter 300ms downinter 500ms \
             fall 2 rise 1 on-marked-down shutdown-sessions",
            pki("ca.crt")
        );
    }
    for (name, address) in masters {
        let _ = writeln!(config, "  server {name} {address}:6443");
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_configured_for_its_host() {
        let node = |cgroup_v2| Kubelet {
            dns: Ipv4Addr::new(10, 64, 0, 10),
            dns_domain: "cluster.local",
            max_pods: 110,
            cgroup_v2,
            protect_kernel_defaults: true,
            control_plane_taint: false,
            resolv_conf: (!cgroup_v2).then_some("/run/systemd/resolve/resolv.conf"),
            feature_gates: "A=true,B=false",
            runs_static_pods: cgroup_v2,
        };
        let old: Value = serde_json::from_str(&kubelet(&node(false))).unwrap();
        assert_eq!((&old["cgroupDriver"], &old["failCgroupV1"]), (&json!("cgroupfs"), &json!(false)));
        let new: Value = serde_json::from_str(&kubelet(&node(true))).unwrap();
        assert_eq!((&new["cgroupDriver"], new.get("failCgroupV1")), (&json!("systemd"), None));
        assert_eq!(
            (old.get("staticPodPath"), &new["staticPodPath"]),
            (None, &json!("/etc/kubernetes/manifests"))
        );
        assert_eq!(old["resolvConf"], "/run/systemd/resolve/resolv.conf");
        assert_eq!(new.get("resolvConf"), None, "the kubelet's default is /etc/resolv.conf");
        assert_eq!(new["featureGates"], json!({ "A": true, "B": false }));
    }

    #[test]
    fn lists_every_master_as_a_backend() {
        let config =
            haproxy(&[("h1".into(), Ipv4Addr::new(10, 0, 0, 1)), ("h2".into(), Ipv4Addr::new(10, 0, 0, 2))]);
        assert!(config.contains("  server h1 10.0.0.1:6443\n  server h2 10.0.0.2:6443\n"), "{config}");
        assert!(config.contains("timeout check 10s") && config.contains("check-ssl"), "{config}");
    }

    #[test]
    fn a_slow_answer_does_not_close_the_sessions_of_the_only_master() {
        let config = haproxy(&[("h1".into(), Ipv4Addr::new(10, 0, 0, 1))]);
        assert!(config.ends_with("balance leastconn\n  server h1 10.0.0.1:6443\n"), "{config}");
        assert!(!config.contains("shutdown-sessions"), "{config}");
    }
}
