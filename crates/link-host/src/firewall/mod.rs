//! Reads the rules of the active firewall from the output of its own program. The output is not trusted. A rule that
//! is not understood is left out, and the fact says so.

mod firewalld;
mod iptables;
mod nftables;
mod ufw;

use std::net::Ipv4Addr;

use kubeon_api::Cidr;
use kubeon_wire::{FirewallFact, FirewallProgram, LinkFact, PacketMatch, Transport};

/// Maximum number of accepted lines.
const MAX_LINES: usize = 4096;
/// Links of the pod network, which a cluster will add.
const POD_LINKS: [&str; 2] = ["cni0", "flannel.1"];

/// The lines of the probe about the firewall.
#[derive(Debug, Default)]
pub(crate) struct FirewallOutput {
    default_zone: String,
    program: Option<FirewallProgram>,
    lines: Vec<String>,
}

impl FirewallOutput {
    /// Adds a line of the probe.
    pub(crate) fn add(&mut self, key: &str, line: &str) {
        let program = match key {
            "firewalld" => FirewallProgram::Firewalld,
            "ufw" => FirewallProgram::Ufw,
            "nft" => FirewallProgram::Nftables,
            "iptables" => FirewallProgram::Iptables,
            _ => {
                line.trim_start_matches("DefaultZone=").trim().clone_into(&mut self.default_zone);
                return;
            }
        };
        if *self.program.get_or_insert(program) == program && self.lines.len() < MAX_LINES {
            self.lines.push(line.to_owned());
        }
    }

    /// The firewall; `None` if none restricts packets.
    pub(crate) fn read(&self, links: &[LinkFact]) -> Option<FirewallFact> {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        let mut names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        names.extend(POD_LINKS);
        match self.program? {
            FirewallProgram::Firewalld => Some(firewalld::read(&lines, &self.default_zone, &names)),
            FirewallProgram::Ufw => ufw::read(&lines),
            FirewallProgram::Nftables => nftables::read(&lines),
            FirewallProgram::Iptables => iptables::read(&lines),
        }
    }
}

/// An address or a network.
fn network(text: &str) -> Option<Cidr> {
    let text = text.trim();
    if text.contains('/') {
        text.parse().ok()
    } else {
        format!("{}/32", text.parse::<Ipv4Addr>().ok()?).parse().ok()
    }
}

/// A port or a range of ports, with `-` or `:` between the two.
fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(['-', ':']).unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

fn transport(text: &str) -> Option<Transport> {
    match text {
        "tcp" => Some(Transport::Tcp),
        "udp" => Some(Transport::Udp),
        _ => None,
    }
}

/// The rules of the hooks `input` and `forward`, of a program that restricts packets by the last rule or the policy
/// of a chain.
#[derive(Debug, Default)]
struct Chain {
    restricts: bool,
    passes: Vec<PacketMatch>,
    unclear: bool,
}

impl Chain {
    /// What passes the chain.
    fn into_matches(self) -> Vec<PacketMatch> {
        if self.restricts { self.passes } else { vec![PacketMatch::default()] }
    }
}

/// The firewall of the two chains; `None` if none of them restricts packets.
fn of_chains(program: FirewallProgram, input: Chain, forward: Chain) -> Option<FirewallFact> {
    let understood = !(input.restricts && input.unclear || forward.restricts && forward.unclear);
    (input.restricts || forward.restricts).then(|| FirewallFact {
        program,
        lets_in: input.into_matches(),
        forwards: forward.into_matches(),
        understood,
    })
}

#[cfg(test)]
mod tests;
