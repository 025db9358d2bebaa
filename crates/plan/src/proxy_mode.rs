//! How a host can implement Services, and which program it lacks for it.

use kubeon_wire::Facts;

use crate::input::ProxyMode;

/// The program that the host needs for packet rules and is known not to have.
pub(crate) fn missing_tool(facts: &Facts, wanted: ProxyMode) -> Option<&'static str> {
    let tool = match usable(facts, wanted) {
        ProxyMode::Nftables => "nft",
        ProxyMode::Iptables => "iptables",
    };
    (facts.programs.get(tool) == Some(&false)).then_some(tool)
}

/// How Services are implemented on a host: what was asked for, as far as the kernel has it.
pub(crate) fn usable(facts: &Facts, wanted: ProxyMode) -> ProxyMode {
    if facts.has_nftables { wanted } else { ProxyMode::Iptables }
}
