//! Packets and chains in the words of every firewall.

use std::net::Ipv4Addr;

use kubeon_api::Cidr;
use kubeon_wire::{FirewallFact, FirewallProgram, PacketMatch, Transport};

/// An address or a network.
pub(super) fn network(text: &str) -> Option<Cidr> {
    let text = text.trim();
    if text.contains('/') {
        text.parse().ok()
    } else {
        format!("{}/32", text.parse::<Ipv4Addr>().ok()?).parse().ok()
    }
}

/// A port or a range of ports, with `-` or `:` between the two.
pub(super) fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(['-', ':']).unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

pub(super) fn transport(text: &str) -> Option<Transport> {
    match text {
        "tcp" => Some(Transport::Tcp),
        "udp" => Some(Transport::Udp),
        _ => None,
    }
}

/// The rules of the hooks `input` and `forward`, of a program that restricts packets by the last rule or the policy
/// of a chain.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) restricts: bool,
    pub(super) passes: Vec<PacketMatch>,
    pub(super) unclear: bool,
}

impl Chain {
    /// What passes the chain.
    fn into_matches(self) -> Vec<PacketMatch> {
        if self.restricts { self.passes } else { vec![PacketMatch::default()] }
    }
}

/// The firewall of the two chains; `None` if none of them restricts packets.
pub(super) fn of_chains(program: FirewallProgram, input: Chain, forward: Chain) -> Option<FirewallFact> {
    let understood = !(input.restricts && input.unclear || forward.restricts && forward.unclear);
    (input.restricts || forward.restricts).then(|| FirewallFact {
        program,
        lets_in: input.into_matches(),
        forwards: forward.into_matches(),
        understood,
    })
}
