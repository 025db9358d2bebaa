//! The proxy mode that a host supports, and the program that it lacks for this mode.

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_wire::Facts;

/// The program that the host needs for packet filter rules but does not have, as far as it was observed.
pub(crate) fn missing_tool(facts: &Facts, wanted: ProxyMode) -> Option<&'static str> {
    let tool = match supported(facts, wanted) {
        ProxyMode::Nftables => "nft",
        // kube-proxy writes some rules with it in this mode too.
        ProxyMode::Iptables | ProxyMode::Ipvs => "iptables",
    };
    (facts.programs.get(tool) == Some(&false)).then_some(tool)
}

/// The proxy mode of a host: the requested mode, but iptables if the kernel has no nftables.
pub(crate) fn supported(facts: &Facts, wanted: ProxyMode) -> ProxyMode {
    match wanted {
        ProxyMode::Nftables if !facts.has_nftables => ProxyMode::Iptables,
        ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Ipvs => wanted,
    }
}
