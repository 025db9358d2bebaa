//! systemd units. Programs that can report readiness use `Type=notify`, so that `systemctl start` returns when the program is
//! ready.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::arguments;
pub use crate::arguments::{ApiServerUnit, ControllerManager, EtcdMember};
use crate::extra_arguments::with_extra;
use crate::paths::{self, ETCD_MEMBERSHIP, HAPROXY_COMMAND, etc, program};
use crate::sandbox::{AGENT, CONFINED};

/// A service unit.
pub(crate) struct ServiceUnit<'a> {
    pub(crate) description: &'a str,
    pub(crate) notify: bool,
    pub(crate) after: &'a str,
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// Lines of the section `[Service]`.
    pub(crate) service: &'a [&'a str],
    /// What systemd denies to the program: further lines of that section.
    pub(crate) sandbox: &'a [&'a str],
    pub(crate) command: String,
    pub(crate) arguments: Vec<String>,
}

impl ServiceUnit<'_> {
    pub(crate) fn text(&self) -> String {
        let mut unit = format!(
            "# Written by kubeon. Changes are replaced.\n[Unit]\nDescription={}\nAfter={}\nWants=network-online.target\n\
             StartLimitIntervalSec=0\n\n[Service]\nType={}\n",
            self.description,
            self.after,
            if self.notify { "notify" } else { "exec" },
        );
        for (name, value) in self.environment {
            let _ = writeln!(unit, "Environment=\"{name}={value}\"");
        }
        let _ = write!(unit, "ExecStart={}", self.command);
        for argument in &self.arguments {
            let _ = write!(unit, " \\\n  {argument}");
        }
        // The start of an API server takes minutes on a slow host: a shorter limit would start it again and again.
        let start_limit = if self.notify { 1800 } else { 180 };
        let _ = write!(unit, "\nRestart=always\nRestartSec=1\nTimeoutStartSec={start_limit}\n");
        for line in self.service.iter().chain(self.sandbox) {
            let _ = writeln!(unit, "{line}");
        }
        unit.push_str("\n[Install]\nWantedBy=multi-user.target\n");
        unit
    }
}

/// The members with which a new etcd cluster starts, as environment variables of etcd. A member reads them at its
/// first start only, so they are no part of its unit: a change of the members restarts no member.
///
/// `initial` holds name and address of every initial member, in order. `token` differs between clusters that were
/// started on the same addresses.
#[must_use]
pub fn etcd_membership(initial: &[(String, Ipv4Addr)], token: &str) -> String {
    let initial: Vec<String> =
        initial.iter().map(|(name, address)| format!("{name}=https://{address}:2380")).collect();
    format!(
        "# Written by kubeon. Read at the first start of the member only.\n\
         ETCD_INITIAL_CLUSTER={}\nETCD_INITIAL_CLUSTER_TOKEN={token}\nETCD_INITIAL_CLUSTER_STATE=new\n",
        initial.join(",")
    )
}

/// `etcd.service`: a member that uses TLS for clients and peers.
#[must_use]
pub fn etcd(member: &EtcdMember<'_>, extra: &BTreeMap<String, String>) -> String {
    let membership = format!("EnvironmentFile={ETCD_MEMBERSHIP}");
    ServiceUnit {
        description: "etcd, the store of the Kubernetes control plane",
        notify: true,
        after: "network-online.target",
        environment: &[],
        service: &[
            &membership,
            "LimitNOFILE=65536",
            "Nice=-5",
            "StateDirectory=etcd",
            "StateDirectoryMode=0700",
        ],
        sandbox: CONFINED,
        command: program("etcd", "etcd"),
        arguments: with_extra(arguments::etcd(member), extra),
    }
    .text()
}

/// `kube-apiserver.service`.
#[must_use]
pub fn apiserver(api: &ApiServerUnit<'_>, extra: &BTreeMap<String, String>) -> String {
    ServiceUnit {
        description: "Kubernetes API server",
        notify: true,
        after: "network-online.target etcd.service",
        environment: &[],
        service: &["LimitNOFILE=1048576", "LogsDirectory=kubernetes", "LogsDirectoryMode=0700"],
        sandbox: CONFINED,
        command: program("kube-apiserver", "kube-apiserver"),
        arguments: with_extra(arguments::api_server(api, extra), extra),
    }
    .text()
}

/// `kube-controller-manager.service`.
#[must_use]
pub fn controller_manager(manager: &ControllerManager<'_>, extra: &BTreeMap<String, String>) -> String {
    ServiceUnit {
        description: "Kubernetes controller manager",
        notify: false,
        after: "network-online.target kube-apiserver.service",
        environment: &[],
        service: &[],
        sandbox: CONFINED,
        command: program("kube-controller-manager", "kube-controller-manager"),
        arguments: with_extra(arguments::controller_manager(manager), extra),
    }
    .text()
}

/// `kube-scheduler.service`.
#[must_use]
pub fn scheduler(feature_gates: &str, extra: &BTreeMap<String, String>) -> String {
    ServiceUnit {
        description: "Kubernetes scheduler",
        notify: false,
        after: "network-online.target kube-apiserver.service",
        environment: &[],
        service: &[],
        sandbox: CONFINED,
        command: program("kube-scheduler", "kube-scheduler"),
        arguments: with_extra(arguments::scheduler(feature_gates), extra),
    }
    .text()
}

/// `containerd.service`. Containers keep running while it restarts. `registry` is the part of its environment that concerns
/// registries, `pod_mtu` the size of the packets of new pods, in bytes; `None` where the owner runs the network.
///
/// containerd writes its configuration of the network once, from the template. Lines before the start keep the size in that file
/// up to date, and that of a larger bridge: it drops what is too large for a pod. On the first start neither exists.
#[must_use]
pub fn containerd(registry: &[(&str, String)], pod_mtu: Option<u32>) -> String {
    let keep_size = pod_mtu.map(|mtu| {
        format!("ExecStartPre=-/bin/sed -i 's|\"mtu\": *[0-9]*|\"mtu\": {mtu}|' /etc/cni/net.d/10-containerd-net.conflist")
    });
    let lower_bridge = pod_mtu.map(|mtu| {
        format!(
            "ExecStartPre=-/bin/sh -c 'm=$$(cat /sys/class/net/cni0/mtu 2>/dev/null) && test $$m -gt {mtu} && \
             echo {mtu} >/sys/class/net/cni0/mtu; exit 0'"
        )
    });
    let mut service = vec!["Delegate=yes", "KillMode=process", "LimitNOFILE=1048576", "TasksMax=infinity"];
    service.extend(keep_size.as_deref().into_iter().chain(lower_bridge.as_deref()));
    let path = format!("{0}/containerd/bin:{0}/runc/bin:{1}", paths::CURRENT, paths::PATH);
    let mut environment = vec![("PATH", path.as_str())];
    environment.extend(registry.iter().map(|(name, value)| (*name, value.as_str())));
    ServiceUnit {
        description: "containerd, the container runtime",
        notify: true,
        after: "network-online.target local-fs.target",
        environment: &environment,
        service: &service,
        // A container inherits what is denied here, so nothing is.
        sandbox: &[],
        command: program("containerd", "containerd"),
        arguments: vec!["--config=/etc/containerd/config.toml".into()],
    }
    .text()
}

/// `kubelet.service`. `server` is the URL of the API.
///
/// The kubelet writes `kubelet.conf` once, from its bootstrap kubeconfig. A line before the start keeps the
/// server in that file up to date. On the first start the file does not exist, which is not an error.
#[must_use]
pub fn kubelet(node: &str, address: Ipv4Addr, server: &str, extra: &BTreeMap<String, String>) -> String {
    let kubeconfig = etc("kubelet.conf");
    let set_server = format!("ExecStartPre=-/bin/sed -i \"s|server: .*|server: {server}|\" {kubeconfig}");
    ServiceUnit {
        description: "kubelet, the Kubernetes node agent",
        notify: false,
        after: "network-online.target containerd.service",
        environment: &[("PATH", paths::PATH)],
        service: &["Delegate=yes", "KillMode=process", "LimitNOFILE=1048576", &set_server],
        // It mounts volumes and changes kernel parameters and control groups.
        sandbox: &[],
        command: program("kubelet", "kubelet"),
        arguments: with_extra(
            vec![
                "--config=/var/lib/kubelet/config.yaml".into(),
                format!("--kubeconfig={kubeconfig}"),
                format!("--bootstrap-kubeconfig={}", etc("bootstrap-kubelet.conf")),
                "--cert-dir=/var/lib/kubelet/pki".into(),
                format!("--hostname-override={node}"),
                format!("--node-ip={address}"),
            ],
            extra,
        ),
    }
    .text()
}

/// `PATH` of the services that write packet filter rules. `prefer_tools` puts the programs of the bundle first.
fn packet_filter_path(prefer_tools: bool) -> String {
    if prefer_tools { format!("{}:{}", paths::TOOLS, paths::PATH) } else { paths::PATH.to_owned() }
}

/// `kube-proxy.service`. With `prefer_tools` it uses the nft of the bundle, even if the host has one.
#[must_use]
pub fn kube_proxy(prefer_tools: bool) -> String {
    ServiceUnit {
        description: "kube-proxy, the Kubernetes service proxy",
        notify: false,
        after: "network-online.target",
        environment: &[("PATH", &packet_filter_path(prefer_tools))],
        service: &["LimitNOFILE=1048576"],
        sandbox: AGENT,
        command: program("kube-proxy", "kube-proxy"),
        arguments: vec![format!("--config={}", etc("kube-proxy.yaml"))],
    }
    .text()
}

/// The settings of flannel on a host.
#[derive(Debug, Clone, Copy)]
pub struct FlannelUnit<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The address at which other hosts reach it.
    pub address: Ipv4Addr,
    /// Whether it uses the nft of the bundle, even if the host has one.
    pub prefer_tools: bool,
    /// Whether its rules are those of iptables.
    pub uses_iptables: bool,
}

/// Seconds between two checks of rules of iptables. Each check runs some twenty programs, which on a slow host takes longer than
/// flannel's own five seconds.
const RESYNC_SECONDS: u32 = 60;

/// `flanneld.service`: the overlay of the pod network. Its subnets are the pod ranges of the nodes.
#[must_use]
pub fn flannel(flannel: &FlannelUnit<'_>) -> String {
    let FlannelUnit { node, address, prefer_tools, uses_iptables } = *flannel;
    let resync = uses_iptables.then(|| format!("--iptables-resync={RESYNC_SECONDS}"));
    ServiceUnit {
        description: "flannel, the pod network",
        notify: true,
        after: "network-online.target",
        environment: &[("NODE_NAME", node), ("PATH", &packet_filter_path(prefer_tools))],
        service: &[],
        sandbox: AGENT,
        command: program("flannel", "flanneld"),
        arguments: [
            "--kube-subnet-mgr".into(),
            format!("--kubeconfig-file={}", etc("flannel.conf")),
            format!("--net-config-path={}", etc("flannel.json")),
            format!("--iface={address}"),
            "--ip-masq".into(),
        ]
        .into_iter()
        .chain(resync)
        .collect(),
    }
    .text()
}

/// `haproxy.service`: it runs the haproxy of the bundle, even if the host has one. systemd gives it a user of its own without
/// any privilege. A reload cuts no connection, and does nothing if the configuration has an error.
#[must_use]
pub fn haproxy() -> String {
    let file = etc("haproxy.cfg");
    let check = format!("ExecReload={HAPROXY_COMMAND} -c -q -f {file}");
    ServiceUnit {
        description: "haproxy, this worker's way to the API servers",
        notify: true,
        after: "network-online.target",
        environment: &[],
        service: &[
            "LimitNOFILE=65536",
            "DynamicUser=yes",
            "KillMode=mixed",
            &check,
            "ExecReload=/bin/sh -c 'kill -USR2 $MAINPID'",
        ],
        sandbox: CONFINED,
        command: HAPROXY_COMMAND.to_owned(),
        arguments: vec!["-Ws".into(), format!("-f {file}")],
    }
    .text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_member_names_no_other_member() {
        let member = EtcdMember { name: "h1", address: Ipv4Addr::new(10, 0, 0, 1) };
        let unit = etcd(&member, &BTreeMap::new());
        assert!(!unit.contains("initial-cluster"), "{unit}");
        assert!(unit.contains("EnvironmentFile=/etc/kubernetes/etcd-membership.env\n"), "{unit}");
        let initial =
            [("h1", 1), ("h2", 2)].map(|(name, last)| (name.to_owned(), Ipv4Addr::new(10, 0, 0, last)));
        let membership = etcd_membership(&initial, "t");
        let members = "ETCD_INITIAL_CLUSTER=h1=https://10.0.0.1:2380,h2=https://10.0.0.2:2380\n";
        assert!(membership.contains(members), "{membership}");
        assert!(unit.contains("Type=notify") && unit.contains("TimeoutStartSec=1800"), "{unit}");
    }

    #[test]
    fn the_programs_of_the_bundle_come_first_only_on_request() {
        let first = "PATH=/var/lib/kubeon/tools:/usr/local/sbin:";
        let unit = |prefer_tools, uses_iptables| {
            let address = Ipv4Addr::new(10, 0, 0, 1);
            flannel(&FlannelUnit { node: "h1", address, prefer_tools, uses_iptables })
        };
        assert!(kube_proxy(true).contains(first) && unit(true, false).contains(first));
        assert!(!kube_proxy(false).contains(first) && !unit(false, false).contains(first));
        assert!(unit(false, true).contains("--iptables-resync=60") && !unit(false, false).contains("resync"));
    }

    /// The file is as the kubelet of an older cluster wrote it.
    #[test]
    fn the_start_of_the_kubelet_updates_the_server_in_its_kubeconfig() {
        let unit = kubelet("h1", Ipv4Addr::new(10, 0, 0, 1), "https://127.0.0.1:6443", &BTreeMap::new());
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=-")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubelet.conf");
        let old = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority: /etc/kubernetes/pki/ca.crt\n    \
                   server: https://apiserver.cluster.local:6443\n  name: default-cluster\n";
        std::fs::write(&file, old).unwrap();
        let command = line.replace("/etc/kubernetes/kubelet.conf", &file.to_string_lossy());
        let status = std::process::Command::new("sh").arg("-c").arg(command).status().unwrap();
        assert!(status.success());
        let new = std::fs::read_to_string(&file).unwrap();
        assert_eq!(new, old.replace("https://apiserver.cluster.local:6443", "https://127.0.0.1:6443"));
    }

    /// The file is as containerd wrote it from the template.
    #[test]
    fn the_start_of_containerd_updates_the_size_of_packets() {
        let unit = containerd(&[], Some(1400));
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=-")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("10-containerd-net.conflist");
        let old = crate::config::cni_template(1450).replace("{{.PodCIDR}}", "10.96.1.0/24");
        std::fs::write(&file, &old).unwrap();
        let command = line.replace("/etc/cni/net.d/10-containerd-net.conflist", &file.to_string_lossy());
        let status = std::process::Command::new("sh").arg("-c").arg(command).status().unwrap();
        assert!(status.success());
        let new = std::fs::read_to_string(&file).unwrap();
        assert_eq!(new, crate::config::cni_template(1400).replace("{{.PodCIDR}}", "10.96.1.0/24"));
    }

    #[test]
    fn programs_of_the_control_plane_cannot_gain_privileges() {
        let units = [scheduler("", &BTreeMap::new()), haproxy(), kube_proxy(false)];
        for unit in units {
            assert!(unit.contains("\nNoNewPrivileges=yes\n"), "{unit}");
        }
        assert!(haproxy().contains("\nDynamicUser=yes\n"));
        assert!(!containerd(&[], Some(1450)).contains("NoNewPrivileges"), "containers would inherit it");
    }

    #[test]
    fn leaves_feature_gates_out_when_there_are_none() {
        assert!(!scheduler("", &BTreeMap::new()).contains("feature-gates"));
        assert!(scheduler("A=true", &BTreeMap::new()).contains("--feature-gates=A=true"));
    }
}
