//! The zones of firewalld, as `firewall-cmd --list-all-zones` prints them.

use kubeon_wire::{FirewallFact, FirewallProgram, PacketMatch, Transport};

use super::matches::{network, ports, transport};

/// Services of firewalld with ports that a cluster uses: `NAME`, protocol, first port, last port.
const SERVICES: [(&str, Transport, u16, u16); 14] = [
    ("etcd-client", Transport::Tcp, 2379, 2379),
    ("etcd-server", Transport::Tcp, 2380, 2380),
    ("kube-api", Transport::Tcp, 10250, 10250),
    ("kube-apiserver", Transport::Tcp, 6443, 6443),
    ("kube-control-plane", Transport::Tcp, 2379, 2380),
    ("kube-control-plane", Transport::Tcp, 6443, 6443),
    ("kube-control-plane-secure", Transport::Tcp, 2379, 2380),
    ("kube-control-plane-secure", Transport::Tcp, 6443, 6443),
    ("kube-nodeport-services", Transport::Tcp, 30000, 32767),
    ("kube-worker", Transport::Tcp, 10250, 10250),
    ("kube-worker", Transport::Tcp, 30000, 32767),
    ("kubelet", Transport::Tcp, 10250, 10250),
    ("kubelet-worker", Transport::Tcp, 10250, 10250),
    ("kubelet-worker", Transport::Tcp, 30000, 32767),
];

#[derive(Debug, Default)]
struct Zone {
    name: String,
    is_default: bool,
    accepts: bool,
    forwards: bool,
    interfaces: Vec<String>,
    sources: Vec<String>,
    /// The rules with their priorities.
    rules: Vec<(i32, PacketMatch)>,
    unclear: bool,
}

/// The rules of all zones. `links` are the links of the host: those in no zone belong to the default zone.
pub(super) fn read(lines: &[&str], default_zone: &str, links: &[&str]) -> FirewallFact {
    let zones = zones(lines, default_zone);
    let in_zones: Vec<&String> = zones.iter().flat_map(|zone| &zone.interfaces).collect();
    let others: Vec<&str> =
        links.iter().copied().filter(|link| !in_zones.iter().any(|name| name == link)).collect();
    let (mut lets_in, mut forwards) = (Vec::new(), Vec::new());
    let mut scopes: Vec<(PacketMatch, &Zone)> = zones
        .iter()
        .flat_map(|zone| scopes(zone, &others).into_iter().map(move |scope| (scope, zone)))
        .collect();
    // The zone of the source comes before the zone of the link.
    scopes.sort_by_key(|(scope, _)| scope.source.is_none());
    for (scope, zone) in scopes {
        lets_in.extend(zone.rules.iter().filter_map(|(_, rule)| both(&scope, rule)));
        if zone.accepts {
            lets_in.push(scope.clone());
        }
        if zone.accepts || zone.forwards {
            forwards.push(scope);
        }
    }
    let understood = !zones.iter().any(|zone| zone.unclear);
    FirewallFact { program: FirewallProgram::Firewalld, lets_in, forwards, understood }
}

/// The packets that belong to the zone.
fn scopes(zone: &Zone, unassigned: &[&str]) -> Vec<PacketMatch> {
    let on = |link: &str| PacketMatch { link: Some(link.to_owned()), ..PacketMatch::default() };
    let sources = zone.sources.iter().filter_map(|source| network(source));
    let from = sources.map(|source| PacketMatch { source: Some(source), ..PacketMatch::default() });
    let interfaces = zone.interfaces.iter().map(|link| on(link));
    let rest = unassigned.iter().filter(|_| zone.is_default).map(|link| on(link));
    from.chain(interfaces).chain(rest).collect()
}

/// The packets that match both; `None` if their sources differ.
fn both(scope: &PacketMatch, opened: &PacketMatch) -> Option<PacketMatch> {
    let source = match (scope.source, opened.source) {
        (Some(one), Some(other)) if one.net().contains(&other.net()) => Some(other),
        (Some(one), Some(other)) if other.net().contains(&one.net()) => Some(one),
        (Some(_), Some(_)) => return None,
        (one, other) => one.or(other),
    };
    Some(PacketMatch { source, link: scope.link.clone(), ..opened.clone() })
}

fn zones(lines: &[&str], default_zone: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in lines {
        if line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            let (name, flags) = line.split_once(' ').unwrap_or((line, ""));
            let is_default = name == default_zone || flags.contains("default");
            zones.push(Zone { name: name.to_owned(), is_default, ..Zone::default() });
        } else if let Some(zone) = zones.last_mut() {
            add(zone, line.trim());
        }
    }
    // Without a default zone in the output, the name decides.
    zones.iter_mut().filter(|zone| zone.name == default_zone).for_each(|zone| zone.is_default = true);
    // Of the same priority, rules that refuse packets come first.
    zones.iter_mut().for_each(|zone| zone.rules.sort_by_key(|(priority, rule)| (*priority, !rule.denied)));
    zones
}

fn add(zone: &mut Zone, line: &str) {
    if line.starts_with("rule ") {
        return add_rich_rule(zone, line);
    }
    let Some((key, value)) = line.split_once(':') else { return };
    let words = || value.split_whitespace();
    match key {
        "target" => zone.accepts = value.trim() == "ACCEPT",
        "forward" => zone.forwards = value.trim() == "yes",
        "interfaces" => zone.interfaces = words().map(str::to_owned).collect(),
        "sources" => {
            zone.unclear |= words().any(|source| source.starts_with("ipset:"));
            zone.sources = words().map(str::to_owned).collect();
        }
        "services" => zone.rules.extend(words().flat_map(service).map(|opened| (0, opened))),
        "ports" => zone.rules.extend(words().filter_map(port).map(|opened| (0, opened))),
        _ => {}
    }
}

fn service(name: &str) -> impl Iterator<Item = PacketMatch> {
    SERVICES.iter().filter(move |(known, ..)| *known == name).map(|(_, transport, first, last)| PacketMatch {
        transport: Some(*transport),
        ports: Some((*first, *last)),
        ..PacketMatch::default()
    })
}

/// `2379-2380/tcp`.
fn port(word: &str) -> Option<PacketMatch> {
    let (range, protocol) = word.split_once('/')?;
    let (range, transport) = (ports(range)?, transport(protocol)?);
    Some(PacketMatch { transport: Some(transport), ports: Some(range), ..PacketMatch::default() })
}

/// `rule family="ipv4" source address="10.0.0.0/24" port port="6443" protocol="tcp" accept`.
fn add_rich_rule(zone: &mut Zone, rule: &str) {
    let says = |verdict: &str| rule.split_whitespace().any(|word| word == verdict);
    let denied = says("drop") || says("reject");
    if !(denied || says("accept")) || rule.contains("family=\"ipv6\"") {
        return;
    }
    let value = |key: &str| {
        let word = rule.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix("=\""));
        word.map(|word| word.trim_end_matches('"'))
    };
    let unclear =
        ["NOT", "ipset=", "mac=", "destination", "source-port"].iter().any(|word| rule.contains(word));
    if unclear {
        // Only a rule that lets packets in may let in more than is known.
        zone.unclear |= !denied;
        return;
    }
    let source = value("address").map(network);
    if source == Some(None) {
        return;
    }
    let source = source.flatten();
    let of_protocol = rule.contains("protocol value=").then(|| value("value")).flatten();
    let packets: Vec<PacketMatch> = match (value("port"), value("protocol"), value("name"), of_protocol) {
        (Some(range), Some(protocol), ..) => port(&format!("{range}/{protocol}")).into_iter().collect(),
        (None, None, Some(name), _) => service(name).collect(),
        (None, None, None, Some(protocol)) => {
            let all_ports = |transport| PacketMatch { transport: Some(transport), ..PacketMatch::default() };
            transport(protocol).map(all_ports).into_iter().collect()
        }
        (None, None, None, None) if source.is_some() => vec![PacketMatch::default()],
        _ => Vec::new(),
    };
    let priority = value("priority").and_then(|text| text.parse().ok()).unwrap_or(0);
    zone.rules
        .extend(packets.into_iter().map(|packets| (priority, PacketMatch { source, denied, ..packets })));
}
