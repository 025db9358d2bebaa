//! Check of the kernel's modules.

use kubeon_api::Remedy;
use kubeon_api::kubernetes_cluster::ProxyMode;

use super::rule::{Subject, Verdict};
use crate::desired::prepare::OVERLAY_NETWORK;
use crate::proxy_mode::supported;

/// A module and the option of the kernel that provides it.
struct Module {
    name: &'static str,
    option: &'static str,
}

const fn module(name: &'static str, option: &'static str) -> Module {
    Module { name, option }
}

/// Modules that every node requires: images, the pod network and its connections.
const NEEDED: [Module; 5] = [
    module("overlay", "CONFIG_OVERLAY_FS"),
    module(OVERLAY_NETWORK, "CONFIG_VXLAN"),
    module("bridge", "CONFIG_BRIDGE"),
    module("veth", "CONFIG_VETH"),
    module("nf_conntrack", "CONFIG_NF_CONNTRACK"),
];
/// Without it, a pod does not reach a Service whose only pod is on the same host.
const USEFUL: Module = module("br_netfilter", "CONFIG_BRIDGE_NETFILTER");
const NF_TABLES: Module = module("nf_tables", "CONFIG_NF_TABLES");
const IP_TABLES: Module = module("ip_tables", "CONFIG_IP_NF_IPTABLES");

/// The kernel has the needed modules or can load them. A module that was not observed is not missing. On a
/// host of the cluster nothing is an error, so that the cluster can still be changed.
pub(super) fn modules(subject: &Subject<'_>) -> Verdict {
    let known = &subject.facts.modules;
    let lacks = |module: &&Module| known.get(module.name) == Some(&false);
    let spec = &subject.intent.spec;
    let flannel = spec.runs_flannel();
    let needed = || NEEDED.iter().filter(move |module| flannel || module.name != OVERLAY_NETWORK);
    let mut missing: Vec<&Module> = needed().filter(lacks).collect();
    let mode = supported(subject.facts, spec.settings.proxy_mode);
    // iptables writes its rules into either of them.
    if mode == ProxyMode::Iptables && [&NF_TABLES, &IP_TABLES].iter().all(lacks) {
        missing.push(&IP_TABLES);
    }
    let found = known.iter().filter(|(_, available)| **available).map(|(name, _)| name.as_str());
    let found = found.collect::<Vec<_>>().join(", ");
    let wanted = needed().chain([&USEFUL]).map(|module| module.name).collect::<Vec<_>>().join(", ");
    let verdict = Verdict::good(found, wanted);
    let useful = [&USEFUL].into_iter().filter(lacks).collect::<Vec<_>>();
    let verdict = match (lack(subject, &missing), subject.facts.claim.is_none()) {
        (message @ Some(_), true) => verdict.error(message).remedy(Remedy::Ignore("modules".to_owned())),
        (message, _) => verdict.warning(message),
    };
    verdict.warning(lack(subject, &useful))
}

/// The message about missing modules, with what provides them.
fn lack(subject: &Subject<'_>, missing: &[&Module]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let list = |text: fn(&Module) -> &'static str| {
        missing.iter().map(|module| text(module)).collect::<Vec<_>>().join(", ")
    };
    let (names, options) = (list(|module| module.name), list(|module| module.option));
    let package = package(subject).map(|package| format!("install {package}, or ")).unwrap_or_default();
    Some(format!("its kernel lacks {names}; {package}use a kernel with {options}"))
}

/// The package of the distribution with the modules that its smallest kernel package lacks.
fn package(subject: &Subject<'_>) -> Option<String> {
    let facts = subject.facts;
    match facts.package_manager.as_deref()? {
        "apt" if facts.os.contains("Ubuntu") => Some(format!("linux-modules-extra-{}", facts.kernel)),
        "apt" if facts.kernel.contains("-cloud-") => Some("linux-image-amd64 (or -arm64)".to_owned()),
        "dnf" | "yum" => Some("kernel-modules-extra".to_owned()),
        "zypper" => Some("kernel-default".to_owned()),
        _ => None,
    }
}
