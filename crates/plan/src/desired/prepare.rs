//! Stages `prepare` and `artifacts`: the host's kernel, its hosts file, and the parts that it needs.

use std::collections::BTreeMap;

use kubeon_api::HostRole;
use kubeon_api::kubernetes_cluster::DeployMode;
use kubeon_render::config::KERNEL_DEFAULTS;
use kubeon_render::static_pods::KUBEADM;
use kubeon_wire::Op;

pub(crate) use super::step::PREPARE as STAGE;
use super::step::{DesiredStep, image_part_id, part_id};
use super::{arguments, firewall, hosts_file, pods};
use crate::context::{ObservedHost, PlanContext};
use crate::input::PartInfo;
use crate::step_id::StepId;

const MODULES: &[&str] = &["overlay", "br_netfilter", OVERLAY_NETWORK, "nf_conntrack"];
/// The module of the overlay network of flannel.
pub(crate) const OVERLAY_NETWORK: &str = "vxlan";

/// Kernel parameters of a node, in addition to those of the kubelet. The first one is required: without
/// forwarding there is no pod network. The others are optional.
const PARAMETERS: &[(&str, &str)] = &[
    ("net.ipv4.ip_forward", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.core.somaxconn", "32768"),
    ("fs.inotify.max_user_instances", "8192"),
    ("fs.inotify.max_user_watches", "1048576"),
];

/// The parts that every host needs, in the order in which they are copied: containerd starts while the kubelet is copied, and the
/// kubelet while the agents are, which wait for its node.
const RUNTIME_PARTS: &[&str] = &["containerd", "runc", "cni-plugins"];
const AGENT_PARTS: &[&str] = &[KUBELET, "kube-proxy", "flannel"];
const KUBELET: &str = "kubelet";
const MASTER_PARTS: &[&str] = &[ETCD, "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const WORKER_PARTS: &[&str] = &["haproxy"];
/// The programs of etcd that people use, and what makes the static pods.
const MASTER_PARTS_OF_PODS: &[&str] = &[ETCD, KUBEADM];
const ETCD_PARTS: &[&str] = &[ETCD];
/// The part with the programs of etcd.
const ETCD: &str = "etcd";
const MASTER_TOOLS: &[&str] = &["kubectl"];

/// The part for hosts that lack the programs that kube-proxy, flannel and the network plugins call.
pub(crate) const NET_TOOLS: &str = "net-tools";

/// The images that every node must have before its first pod starts.
pub(crate) const NODE_IMAGES: &[&str] = &[PAUSE, COREDNS];
/// The image that holds the namespaces of a pod.
const PAUSE: &str = "pause";
pub(super) const COREDNS: &str = "coredns";

/// The images of the static pods of a master, and of a worker.
const MASTER_PODS: &[&str] = &["kube-apiserver", "kube-controller-manager", "kube-scheduler", pods::ETCD];
const WORKER_PODS: &[&str] = &[pods::HAPROXY];

/// Whether the part of a bundle belongs to nodes, and neither to etcd nor to the control plane.
pub(crate) fn is_node_part(name: &str) -> bool {
    let lists = [RUNTIME_PARTS, AGENT_PARTS, WORKER_PARTS];
    name == NET_TOOLS || lists.iter().any(|parts| parts.contains(&name))
}

/// Whether the image of a bundle belongs to nodes. CoreDNS serves the whole cluster.
pub(crate) fn is_node_image(name: &str) -> bool {
    name == PAUSE || WORKER_PODS.contains(&name)
}

/// The parts that a host of the role needs, without images, in the order in which they are copied.
pub(crate) fn parts(role: &HostRole, mode: DeployMode) -> impl Iterator<Item = &'static str> + use<> {
    const NONE: &[&str] = &[];
    let (masters, workers) = match mode {
        DeployMode::Binary => (MASTER_PARTS, WORKER_PARTS),
        DeployMode::Container => (MASTER_PARTS_OF_PODS, NONE),
    };
    let lists = match role {
        HostRole::Master => [masters, RUNTIME_PARTS, AGENT_PARTS, MASTER_TOOLS],
        HostRole::Etcd => [ETCD_PARTS, NONE, NONE, NONE],
        _ => [RUNTIME_PARTS, workers, AGENT_PARTS, NONE],
    };
    lists.into_iter().flatten().copied()
}

/// The images that a host of the role needs before its first pod starts, in the order in which they are copied.
pub(crate) fn images(role: &HostRole, mode: DeployMode) -> impl Iterator<Item = &'static str> + use<> {
    const NONE: &[&str] = &[];
    const FIRST: &[&str] = &[PAUSE];
    const LAST: &[&str] = &[COREDNS];
    let pods = match (mode, role) {
        (DeployMode::Binary, _) | (_, HostRole::Etcd) => NONE,
        (DeployMode::Container, HostRole::Master) => MASTER_PODS,
        (DeployMode::Container, _) => WORKER_PODS,
    };
    let (first, last) = if role.runs_node() { (FIRST, LAST) } else { (NONE, NONE) };
    first.iter().chain(pods).chain(last).copied()
}

/// The parts that a host of the plan needs: etcd only if it runs a member.
pub(crate) fn parts_of(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
) -> impl Iterator<Item = &'static str> + use<> {
    let absent = [
        (host.role != context.spec().member_role()).then_some(ETCD),
        (!context.runs_flannel()).then_some("flannel"),
        (!context.runs_kube_proxy()).then_some("kube-proxy"),
    ];
    parts(&host.role, context.spec().settings.deploy_mode).filter(move |name| !absent.contains(&Some(*name)))
}

/// A program of a part: the name of the part, then the name of the program.
pub(crate) type PartProgram = (&'static str, &'static str);

/// The programs of etcd that people use on a master.
pub(crate) const ETCD_COMMANDS: &[PartProgram] = &[("etcd", "etcdctl"), ("etcd", "etcdutl")];
/// The program of containerd that people use on a host.
pub(crate) const RUNTIME_COMMANDS: &[PartProgram] = &[("containerd", "ctr")];
/// The programs of Kubernetes that people use on a master.
pub(crate) const MASTER_COMMANDS: &[PartProgram] = &[("kubectl", "kubectl")];

/// The programs to which links in `/usr/local/bin` point on a host of the role.
pub(crate) fn commands(role: &HostRole) -> impl Iterator<Item = PartProgram> + use<> {
    const NONE: &[PartProgram] = &[];
    let (etcd, node, master) = match role {
        HostRole::Master => (ETCD_COMMANDS, RUNTIME_COMMANDS, MASTER_COMMANDS),
        HostRole::Etcd => (ETCD_COMMANDS, NONE, NONE),
        _ => (NONE, RUNTIME_COMMANDS, NONE),
    };
    etcd.iter().chain(node).chain(master).copied()
}

/// The step that prepares a host's kernel.
pub(crate) fn kernel_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kernel")
}

/// The step after which services of a host may start. A host of etcd alone needs none.
pub(crate) fn prepared(host: &ObservedHost<'_>) -> Option<StepId> {
    host.role.runs_node().then(|| kernel_id(host))
}

/// Kernel, hosts file and firewall.
pub(crate) fn host(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let declared = &context.spec().settings.kernel_parameters;
    let needed = MODULES.iter().filter(|name| context.runs_flannel() || **name != OVERLAY_NETWORK);
    let modules: Vec<String> = needed.map(|&name| name.to_owned()).collect();
    for host in &context.hosts {
        let own = own_parameters().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let kernel = Op::Kernel {
            modules: modules.clone(),
            // None of the declared ones is kubeon's own.
            parameters: own.chain(declared.clone()).collect(),
            optional: own_parameters().skip(1).map(|(name, _)| name.to_owned()).collect(),
        };
        steps.push(
            DesiredStep::new(host, kernel_id(host), kernel)
                .title(format!(
                    "load {} kernel modules, set {} parameters{}, swap off",
                    modules.len(),
                    own_parameters().count(),
                    and_declared(declared)
                ))
                .because("the host is not prepared"),
        );
        if !hosts_file::is_in_use(host) {
            steps.push(hosts_file::step(context, host));
        }
    }
    firewall::open(context, steps);
}

/// The kernel parameters that kubeon sets on the host of a node, with their values. The first one is required.
pub(crate) fn own_parameters() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARAMETERS.iter().chain(KERNEL_DEFAULTS).copied()
}

/// The declared kernel parameters as the end of a text: all of them if they are few.
fn and_declared(declared: &BTreeMap<String, String>) -> String {
    const FEW: usize = 3;
    if declared.is_empty() {
        return String::new();
    }
    if declared.len() > FEW {
        return format!(" and {} declared ones", declared.len());
    }
    let named: Vec<String> = declared.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(" and {}", named.join(", "))
}

/// The parts of the bundle. A host that has one forwards it to others, so its firewall is open before.
pub(crate) fn artifacts(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    for host in context.all_hosts() {
        let opened = firewall::opened(context, host);
        let mut put = |id, name: &str, info| steps.push(part(host, id, name, info).needs(opened.clone()));
        let mode = context.spec().settings.deploy_mode;
        let stored = &context.artifacts(host).images;
        for name in parts_of(context, host) {
            if name == KUBELET {
                // The kubelet starts when it has this image.
                put(image_part_id(PAUSE, host), &stored[PAUSE].name, &stored[PAUSE].part);
            }
            put(part_id(name, host), name, context.part(host, name));
        }
        if !host.role.runs_node() {
            steps.extend(arguments::check(context, host));
            continue;
        }
        if host.lacks_tools(context.spec().settings.proxy_mode) {
            put(part_id(NET_TOOLS, host), NET_TOOLS, context.part(host, NET_TOOLS));
        }
        for role in images(&host.role, mode).filter(|role| *role != PAUSE) {
            put(image_part_id(role, host), &stored[role].name, &stored[role].part);
        }
        steps.extend(arguments::check(context, host));
    }
}

/// The step that unpacks a part on a host.
pub(crate) fn part(host: &ObservedHost<'_>, id: StepId, name: &str, info: &PartInfo) -> DesiredStep {
    let op = Op::Part {
        source: None,
        name: name.to_owned(),
        digest: info.digest.clone(),
        size: info.size,
        unpacked_size: info.unpacked_size,
    };
    DesiredStep::new(host, id, op)
        .title(format!("put {name} {} ({} MiB)", info.version, info.unpacked_size.div_ceil(1 << 20)))
        .because("its digest is not on the host")
        .within(600)
}
