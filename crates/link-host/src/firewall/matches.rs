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

/// The rules of a chain of the hook `input` or `forward`.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Whether its last rule or its policy refuses packets that no rule matches.
    pub(super) restricts: bool,
    pub(super) rules: Vec<PacketMatch>,
    pub(super) unclear: bool,
    pub(super) is_of_iptables: bool,
}

impl Chain {
    /// The chain through which packets pass that pass each of these chains. Two that restrict are not understood.
    pub(super) fn of_all(chains: impl Iterator<Item = Self>) -> Self {
        let (mut restricting, mut others): (Vec<Self>, Vec<Self>) =
            chains.filter(Self::refuses).partition(|chain| chain.restricts);
        restricting.append(&mut others);
        let mut chains = restricting.into_iter();
        let mut all = chains.next().unwrap_or_default();
        for chain in chains {
            // What another chain refuses at once is refused. Behind rules that let packets pass, it depends on both.
            let count = chain.rules.iter().take_while(|rule| rule.denied).count();
            let refuses_later = chain.restricts || chain.rules.iter().skip(count).any(|rule| rule.denied);
            all.unclear |= chain.unclear || refuses_later;
            all.is_of_iptables |= chain.is_of_iptables;
            let behind = std::mem::take(&mut all.rules);
            all.rules = chain.rules.into_iter().take(count).chain(behind).collect();
        }
        all
    }

    /// Adds a rule that refuses packets, if its conditions are understood.
    pub(super) fn deny(&mut self, packets: Option<Vec<PacketMatch>>) {
        let denied = |packets: PacketMatch| PacketMatch { denied: true, ..packets };
        self.rules.extend(packets.into_iter().flatten().map(denied));
    }

    /// Whether it refuses some packets.
    fn refuses(&self) -> bool {
        self.restricts || self.rules.iter().any(|rule| rule.denied)
    }

    fn into_matches(self) -> Vec<PacketMatch> {
        let rest = (!self.restricts).then(PacketMatch::default);
        if self.refuses() { self.rules.into_iter().chain(rest).collect() } else { rest.into_iter().collect() }
    }
}

/// The firewall of the two chains; `None` if none of them refuses packets.
pub(super) fn of_chains(input: Chain, forward: Chain) -> Option<FirewallFact> {
    let active: Vec<&Chain> = [&input, &forward].into_iter().filter(|chain| chain.refuses()).collect();
    let is_active = !active.is_empty();
    let understood = !active.iter().any(|chain| chain.unclear);
    let program = if active.iter().any(|chain| chain.is_of_iptables) {
        FirewallProgram::Iptables
    } else {
        FirewallProgram::Nftables
    };
    is_active.then(|| FirewallFact {
        program,
        lets_in: input.into_matches(),
        forwards: forward.into_matches(),
        understood,
    })
}
