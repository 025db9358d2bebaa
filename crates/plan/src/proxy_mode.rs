//! How a host can implement Services, and which program it lacks for it.

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_wire::Facts;

/// The program that the host needs for packet rules and is known not to have.
pub(crate) fn missing_tool(facts: &Facts, wanted: ProxyMode) -> Option<&'static str> {
    let tool = match usable(facts, wanted) {
        ProxyMode::Nftables => "nft",
        // kube-proxy writes some rules with it in this mode too.
        ProxyMode::Iptables | ProxyMode::Ipvs => "iptables",
    };
    (facts.programs.get(tool) == Some(&false)).then_some(tool)
}

/// How Services are implemented on a host: as requested, but with iptables where its kernel has no nftables.
pub(crate) fn usable(facts: &Facts, wanted: ProxyMode) -> ProxyMode {
    match wanted {
        ProxyMode::Nftables if !facts.has_nftables => ProxyMode::Iptables,
        ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Ipvs => wanted,
    }
}
