//! What the firewall of a host does not let in, in words.

use std::collections::BTreeMap;

use kubeon_api::{Cidr, HostAddress, HostRole};
use kubeon_wire::firewall::{lets_all_pass, lets_pass, single};
use kubeon_wire::{Facts, FirewallFact, FirewallProgram, PacketMatch, Transport};

use super::opening::{PortOpening, openings, pod_links, ports_for_pods};
use crate::input::{DesiredCluster, HostSpec};

/// The maximum number of hosts in one message.
const MAX_LISTED: usize = 5;

/// What a firewall does not let in.
pub(crate) struct Closed {
    program: FirewallProgram,
    openings: Vec<PortOpening>,
    /// The pod network, if its packets do not pass.
    pods: Option<Cidr>,
    /// The ports of the host that pods use.
    pod_ports: &'static [u16],
}

impl Closed {
    /// What stays closed when rules behind those of the host let everything pass. nft inserts rules before all others.
    pub(crate) fn despite_opening(
        spec: &DesiredCluster,
        host: &HostSpec,
        role: &HostRole,
        facts: &Facts,
        firewall: &FirewallFact,
    ) -> Option<Self> {
        if firewall.program == FirewallProgram::Nftables {
            return None;
        }
        let mut opened = firewall.clone();
        opened.lets_in.push(PacketMatch::default());
        opened.forwards.push(PacketMatch::default());
        Some(Self::of(spec, host, role, facts, &opened)).filter(|closed| !closed.is_empty())
    }

    /// Compares the rules of a host with what it needs.
    pub(crate) fn of(
        spec: &DesiredCluster,
        host: &HostSpec,
        role: &HostRole,
        facts: &Facts,
        firewall: &FirewallFact,
    ) -> Self {
        let link = facts.links.iter().find(|link| link.address == host.cluster_address().ip());
        let links: Vec<&str> = link.iter().map(|link| link.name.as_str()).collect();
        let mut all = openings(spec, host, role);
        for opening in &mut all {
            close(opening, &firewall.lets_in, &links);
        }
        all.retain(|opening| !opening.sources.is_empty());
        let (pods, pod_ports) = (spec.settings.pod_cidr, ports_for_pods(spec, role));
        let pass = passes_pods(firewall, pods, pod_ports, pod_links(spec, role));
        Self { program: firewall.program, openings: all, pods: (!pass).then_some(pods), pod_ports }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.openings.is_empty() && self.pods.is_none()
    }
}

/// Leaves only the sources that are not let in.
fn close(opening: &mut PortOpening, lets_in: &[PacketMatch], links: &[&str]) {
    let PortOpening { transport, first, last, .. } = *opening;
    let passes = |host: &HostAddress| {
        single(host.ip()).is_some_and(|source| {
            (first..=last).all(|port| lets_pass(lets_in, source, links, transport, port))
        })
    };
    opening.sources.retain(|host| !passes(host));
}

/// Whether pods reach the host's own ports, and their packets are forwarded.
fn passes_pods(firewall: &FirewallFact, pods: Cidr, ports: &[u16], links: &[&str]) -> bool {
    let lets_in = |port: &u16| lets_pass(&firewall.lets_in, pods, &["cni0"], Transport::Tcp, *port);
    let forwards = |link: &&str| lets_all_pass(&firewall.forwards, pods, &[*link]);
    ports.iter().all(lets_in) && links.iter().all(forwards)
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        for (sources, openings) in by_sources(&self.openings) {
            parts.push(format!("{} from {}", ports(&openings), listed(sources)));
        }
        parts.extend(self.pods.map(|pods| format!("packets of the pod network {pods}")));
        f.write_str(&parts.join(", and "))?;
        match self.program {
            FirewallProgram::Nftables => {
                write!(f, "; add before the rule that refuses them: {}", self.nft_rules())
            }
            FirewallProgram::Iptables => write!(f, "; add: {}", self.iptables_rules()),
            FirewallProgram::Firewalld | FirewallProgram::Ufw => Ok(()),
        }
    }
}

/// A port or a range of ports.
fn range(opening: &PortOpening, between: char) -> String {
    let PortOpening { first, last, .. } = opening;
    if first == last { first.to_string() } else { format!("{first}{between}{last}") }
}

/// The openings that the same hosts need.
fn by_sources(openings: &[PortOpening]) -> BTreeMap<&[HostAddress], Vec<&PortOpening>> {
    let mut groups: BTreeMap<&[HostAddress], Vec<&PortOpening>> = BTreeMap::new();
    for opening in openings {
        groups.entry(&opening.sources).or_default().push(opening);
    }
    groups
}

/// `TCP 2379-2380, 6443 and UDP 8472`.
fn ports(openings: &[&PortOpening]) -> String {
    let of = |transport| {
        let openings = openings.iter().filter(move |opening| opening.transport == transport);
        let ranges: Vec<String> = openings.map(|opening| range(opening, '-')).collect();
        (!ranges.is_empty()).then(|| format!("{transport} {}", ranges.join(", ")))
    };
    [of(Transport::Tcp), of(Transport::Udp)].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

fn listed(sources: &[HostAddress]) -> String {
    let more = sources.len().saturating_sub(MAX_LISTED);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    let listed = sources.iter().take(MAX_LISTED).map(ToString::to_string).collect::<Vec<_>>();
    format!("{}{rest}", listed.join(", "))
}

impl Closed {
    /// The rules that the owner must add, because a table of its own cannot overrule a chain that drops a packet.
    fn nft_rules(&self) -> String {
        let rule = |opening: &PortOpening| {
            let protocol = opening.transport.to_string().to_lowercase();
            let ports = range(opening, '-');
            format!("`ip saddr {{ {} }} {protocol} dport {ports} accept`", list(opening, ", "))
        };
        let mut rules: Vec<String> = self.openings.iter().map(rule).collect();
        if let Some(pods) = self.pods {
            let ports = self.pod_ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
            rules.push(format!("`ip saddr {pods} tcp dport {{ {ports} }} accept`"));
            rules.push(format!("in the hook forward `ip saddr {pods} accept` and `ip daddr {pods} accept`"));
        }
        rules.join(", ")
    }

    fn iptables_rules(&self) -> String {
        let rule = |opening: &PortOpening| {
            let protocol = opening.transport.to_string().to_lowercase();
            let ports = range(opening, ':');
            format!("`iptables -I INPUT -s {} -p {protocol} --dport {ports} -j ACCEPT`", list(opening, ","))
        };
        let mut rules: Vec<String> = self.openings.iter().map(rule).collect();
        if let Some(pods) = self.pods {
            let ports = self.pod_ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            rules.push(format!(
                "`iptables -I INPUT -s {pods} -p tcp -m multiport --dports {ports} -j ACCEPT`"
            ));
            rules.push(format!("`iptables -I FORWARD -s {pods} -j ACCEPT`"));
            rules.push(format!("`iptables -I FORWARD -d {pods} -j ACCEPT`"));
        }
        rules.join(", ")
    }
}

fn list(opening: &PortOpening, between: &str) -> String {
    opening.sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}
