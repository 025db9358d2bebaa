//! The rules of the active firewall of a host.

use std::fmt;
use std::net::Ipv4Addr;

use kubeon_api::Cidr;
use serde::{Deserialize, Serialize};

/// The rules of the active firewall of a host, as far as the probe understands them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirewallFact {
    /// The program that owns the rules.
    pub program: FirewallProgram,
    /// The packets to the host that it lets in and refuses. The first rule that matches a packet decides; a packet that none
    /// matches is refused.
    pub lets_in: Vec<PacketMatch>,
    /// The packets that it forwards and refuses to forward, in the same form.
    pub forwards: Vec<PacketMatch>,
    /// Whether every rule was understood. Otherwise it may let more packets pass.
    pub understood: bool,
}

/// The program that owns the rules of a firewall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FirewallProgram {
    /// firewalld.
    Firewalld,
    /// ufw.
    Ufw,
    /// Rules that the owner loads with nft.
    Nftables,
    /// Rules that the owner loads with iptables.
    Iptables,
}

impl fmt::Display for FirewallProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Firewalld => "firewalld",
            Self::Ufw => "ufw",
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        })
    }
}

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// The packets that a rule lets pass or refuses. A condition that is `None` matches every packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PacketMatch {
    /// The addresses that send them.
    pub source: Option<Cidr>,
    /// The link on which they arrive.
    pub link: Option<String>,
    /// Their protocol.
    pub transport: Option<Transport>,
    /// The first and the last port to which they are sent.
    pub ports: Option<(u16, u16)>,
    /// Whether the rule refuses them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
}

impl PacketMatch {
    /// Whether it matches every packet with this source that arrives on one of the links. No links match every link.
    #[must_use]
    pub fn covers(&self, source: Cidr, links: &[&str]) -> bool {
        let link = |link: &String| links.is_empty() || links.contains(&link.as_str());
        self.source.is_none_or(|own| own.net().contains(&source.net())) && self.link.as_ref().is_none_or(link)
    }

    /// Whether it decides about packets with this source that arrive on one of the links: a rule that lets packets pass must
    /// cover all of them, and one that refuses packets some of them. Without links, rules about a link refuse nothing.
    fn decides(&self, source: Cidr, links: &[&str]) -> bool {
        if !self.denied {
            return self.covers(source, links);
        }
        let overlaps = |own: Cidr| own.net().contains(&source.net()) || source.net().contains(&own.net());
        let link = |link: &String| links.contains(&link.as_str());
        self.source.is_none_or(overlaps) && self.link.as_ref().is_none_or(link)
    }

    /// Whether it matches packets to the port, whatever their source and link.
    #[must_use]
    pub fn opens(&self, transport: Transport, port: u16) -> bool {
        self.transport.is_none_or(|own| own == transport)
            && self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }

    /// Whether it matches packets of every protocol to every port.
    #[must_use]
    pub fn opens_all(&self) -> bool {
        self.transport.is_none() && self.ports.is_none()
    }
}

/// Whether the rules let packets to the port pass.
#[must_use]
pub fn lets_pass(
    rules: &[PacketMatch],
    source: Cidr,
    links: &[&str],
    transport: Transport,
    port: u16,
) -> bool {
    let decides = |rule: &&PacketMatch| rule.opens(transport, port) && rule.decides(source, links);
    rules.iter().find(decides).is_some_and(|rule| !rule.denied)
}

/// Whether the rules let packets of every protocol to every port pass. Refused ports do not count: a host may refuse to send
/// mail for others.
#[must_use]
pub fn lets_all_pass(rules: &[PacketMatch], source: Cidr, links: &[&str]) -> bool {
    let about_all = |rule: &PacketMatch| if rule.denied { rule.ports.is_none() } else { rule.opens_all() };
    let decides = |rule: &&PacketMatch| about_all(rule) && rule.decides(source, links);
    rules.iter().find(decides).is_some_and(|rule| !rule.denied)
}

/// The network that contains only the address.
#[must_use]
pub fn single(address: Ipv4Addr) -> Option<Cidr> {
    format!("{address}/32").parse().ok()
}
