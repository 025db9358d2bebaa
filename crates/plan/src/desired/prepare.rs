//! Stages `prepare` and `artifacts`: the host's kernel, its hosts file, and the parts that it needs.

use std::net::Ipv4Addr;

use kubeon_api::HostRole;
use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_render::config::KERNEL_DEFAULTS;
use kubeon_wire::{HostsEntry, Op};

use super::firewall;
use super::step::{DesiredStep, image_part_id, part_id};
use crate::context::{ObservedHost, PlanContext};
use crate::input::PartInfo;
use crate::stage_name::StageName;
use crate::step_id::StepId;

const MODULES: &[&str] = &["overlay", "br_netfilter", "vxlan", "nf_conntrack"];

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

/// The parts that every host needs, in the order in which they are copied.
const NODE_PARTS: &[&str] = &["containerd", "runc", "kubelet", "cni-plugins", "kube-proxy", "flannel"];
const MASTER_PARTS: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const WORKER_PARTS: &[&str] = &["haproxy"];
const MASTER_TOOLS: &[&str] = &["kubectl"];

/// The part for hosts that lack the programs that kube-proxy, flannel and the network plugins call.
pub(crate) const NET_TOOLS: &str = "net-tools";

/// The images that every host must have before its first pod starts.
pub(crate) const NODE_IMAGES: &[&str] = &["pause", "coredns"];

/// The parts that a host of the role needs, without images.
pub(crate) fn parts(role: &HostRole) -> impl Iterator<Item = &'static str> + use<> {
    let (first, last) = if role.is_master() { (MASTER_PARTS, MASTER_TOOLS) } else { (WORKER_PARTS, &[][..]) };
    first.iter().chain(NODE_PARTS).chain(last).copied()
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
    let (etcd, master) = if role.is_master() { (ETCD_COMMANDS, MASTER_COMMANDS) } else { (&[][..], &[][..]) };
    etcd.iter().chain(RUNTIME_COMMANDS).chain(master).copied()
}

/// The stage that prepares the host.
pub(crate) const STAGE: StageName = StageName::new("prepare");

/// The step that prepares a host's kernel.
pub(crate) fn kernel_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kernel")
}

/// The step that writes a host's hosts file.
pub(crate) fn hosts_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "hosts")
}

/// Kernel, hosts file and firewall.
pub(crate) fn host(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let masters: Vec<HostsEntry> =
        context.master_addresses().iter().map(|(name, address)| entry(*address, name)).collect();
    for host in &context.hosts {
        let parameters = || PARAMETERS.iter().chain(KERNEL_DEFAULTS);
        let kernel = Op::Kernel {
            modules: MODULES.iter().map(|&m| m.to_owned()).collect(),
            parameters: parameters().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            optional: parameters().skip(1).map(|&(k, _)| k.to_owned()).collect(),
        };
        steps.push(
            DesiredStep::new(host, kernel_id(host), kernel)
                .title(format!(
                    "load {} kernel modules, set {} parameters, swap off",
                    MODULES.len(),
                    parameters().count()
                ))
                .because("the host is not prepared"),
        );
        steps.push(
            DesiredStep::new(
                host,
                hosts_id(host),
                Op::Hosts { entries: hosts_file(context, host, &masters) },
            )
            .title("write hosts entries")
            .because("the host does not know the names"),
        );
    }
    firewall::open(context, STAGE, steps);
}

fn entry(address: Ipv4Addr, name: &str) -> HostsEntry {
    HostsEntry { address, names: vec![name.to_owned()] }
}

/// The API's name, the masters and the host itself. The entries of other workers are left out, so that a new
/// worker changes no other host.
fn hosts_file(context: &PlanContext<'_>, host: &ObservedHost<'_>, masters: &[HostsEntry]) -> Vec<HostsEntry> {
    let balancer = &context.spec().settings.load_balancer;
    let api = match balancer {
        _ if host.is_master() => Some(host.ip()),
        LoadBalancer::Haproxy => Some(Ipv4Addr::LOCALHOST),
        LoadBalancer::External { .. } | LoadBalancer::Updater => {
            balancer.external().map(|(address, _)| address)
        }
    };
    let mut entries: Vec<_> =
        api.into_iter().map(|api| entry(api, context.spec().settings.api_domain.as_str())).collect();
    entries.extend_from_slice(masters);
    if !host.is_master() {
        entries.push(entry(host.ip(), host.name.as_str()));
    }
    entries
}

/// The parts of the bundle.
pub(crate) fn artifacts(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    for host in &context.hosts {
        for name in parts(&host.role) {
            steps.push(part(host, part_id(name, host), name, context.part(host, name)));
        }
        if host.lacks_tools(context.spec().settings.proxy_mode) {
            steps.push(part(host, part_id(NET_TOOLS, host), NET_TOOLS, context.part(host, NET_TOOLS)));
        }
        for role in NODE_IMAGES {
            let image = &context.artifacts(host).images[*role];
            steps.push(part(host, image_part_id(role, host), &image.name, &image.part));
        }
    }
}

/// The step that unpacks a part on a host.
pub(crate) fn part(host: &ObservedHost<'_>, id: StepId, name: &str, info: &PartInfo) -> DesiredStep {
    let op = Op::Part {
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
