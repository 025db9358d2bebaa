//! Whether hosts can talk to each other, and nobody is in the way.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{HostAddress, RefusedField, Remedy};
use kubeon_wire::Reach;

use super::host_conflicts;
use super::rule::{CheckRule, Subject, Verdict, rule};
use crate::input::{HostSpec, Intent};

/// Ports that the cluster's programs take.
pub(super) const PORTS: &[CheckRule] = &[rule("ports", ports), rule("node-ports", node_ports)];

/// Ways to other places.
pub(super) const CONNECTIONS: &[CheckRule] = &[
    rule("dns", dns),
    rule("mtu", mtu),
    rule("peers", peers),
    rule("registry", registry),
    rule("networks", networks),
];

/// Kubelets that a master asks for; more would not fit into a look, and tell little more.
const MOST_PEERS: usize = 250;
/// Below this the pod network has no room for its own headers.
const LOW_MTU: u32 = 1400;
const TELLING: usize = 5;

/// A place to connect to: an address, or a name that the host is to resolve, and a port.
pub type ConnectionTarget = (String, u16);

/// What each host is to be asked about the others, and about `further` places such as a registry. Nobody is asked about
/// hosts that are left out: they are known not to answer.
#[must_use]
pub fn questions(
    intent: &Intent,
    further: &[ConnectionTarget],
) -> BTreeMap<HostAddress, Vec<ConnectionTarget>> {
    let to = |host: HostAddress, port: u16| (host.to_string(), port);
    let here = |host: &HostAddress| !intent.skip_hosts.contains(host);
    let of = |hosts: &[HostSpec]| -> Vec<HostAddress> {
        hosts.iter().map(|host| host.address).filter(here).collect()
    };
    let (masters, workers) = (of(&intent.spec.masters), of(&intent.spec.workers));
    let mut all = BTreeMap::new();
    for host in masters.iter().chain(&workers).copied() {
        let others = masters.iter().copied().filter(|master| *master != host);
        let mut asked: Vec<ConnectionTarget> = further.to_vec();
        if masters.contains(&host) {
            asked.extend(others.flat_map(|other| [6443, 2379, 2380, 10250].map(|port| to(other, port))));
            asked.extend(workers.iter().take(MOST_PEERS).map(|worker| to(*worker, 10250)));
        } else {
            asked.extend(others.map(|other| to(other, 6443)));
        }
        all.insert(host, asked);
    }
    all
}

/// The other hosts answer: a refused connection is an answer.
fn peers(it: &Subject<'_>) -> Verdict {
    answers(it, true)
}

/// Other places that were asked for answer, such as a registry.
fn registry(it: &Subject<'_>) -> Verdict {
    answers(it, false)
}

fn answers(it: &Subject<'_>, hosts: bool) -> Verdict {
    let asked = it.facts.reached.iter().filter(|one| it.host_conflicts.has(&one.target) == hosts);
    let (mut all, mut bad) = (0, Vec::new());
    for one in asked {
        all += 1;
        let why = match one.outcome {
            Reach::Open => continue,
            // A host whose program listens later is reachable; a registry must answer now.
            Reach::Refused if hosts => continue,
            Reach::Refused => "refuses",
            Reach::Silent => "no answer",
            Reach::Failed => "no way there",
        };
        bad.push(format!("{}:{} ({why})", one.target, one.port));
    }
    let more = bad.len().saturating_sub(TELLING);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    let message = (!bad.is_empty()).then(|| {
        let named = bad.iter().take(TELLING).cloned().collect::<Vec<_>>().join(", ");
        format!("cannot reach {named}{rest}; look at routes and firewalls")
    });
    let found =
        if all == 0 { "not asked".to_owned() } else { format!("{} of {all} answer", all - bad.len()) };
    Verdict::good(found, "all answer").error(message)
}

fn wanted_ports(it: &Subject<'_>) -> Vec<u16> {
    let mut ports = vec![10250, 10256];
    if it.master {
        ports.extend([6443, 2379, 2380, 10257, 10259]);
    } else if it.intent.spec.settings.load_balancer == LoadBalancer::Haproxy {
        ports.push(6443);
    }
    ports.sort_unstable();
    ports
}

fn list(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// On a host that is free, nobody listens where the cluster's programs will.
fn ports(it: &Subject<'_>) -> Verdict {
    let wanted = wanted_ports(it);
    let free = it.facts.claim.is_none();
    let busy: Vec<u16> =
        it.facts.busy_ports.iter().copied().filter(|port| free && wanted.contains(port)).collect();
    let message =
        (!busy.is_empty()).then(|| format!("somebody listens on port {}; free it (ss -ltnp)", list(&busy)));
    let found = if busy.is_empty() { "free".to_owned() } else { format!("{} busy", list(&busy)) };
    Verdict::good(found, format!("{} free", list(&wanted))).error(message)
}

/// A Service may get such a port and then hides the program that listens there.
fn node_ports(it: &Subject<'_>) -> Verdict {
    let range = it.intent.spec.settings.node_ports;
    let ours = wanted_ports(it);
    let free = it.facts.claim.is_none();
    let inside = |port: &u16| free && (range.first()..=range.last()).contains(port) && !ours.contains(port);
    let busy: Vec<u16> = it.facts.listening.iter().copied().filter(inside).take(TELLING).collect();
    let message = (!busy.is_empty())
        .then(|| format!("somebody listens on port {}, within the node ports {range}", list(&busy)));
    let found = if busy.is_empty() { "free".to_owned() } else { format!("{} busy", list(&busy)) };
    Verdict::good(found, format!("{range} free")).warning(message)
}

/// Pods ask the host's name servers for names outside of the cluster.
fn dns(it: &Subject<'_>) -> Verdict {
    let facts = it.facts;
    let servers = facts.nameservers.as_ref();
    let none = servers.is_some_and(Vec::is_empty).then(|| {
        "names no name server in /etc/resolv.conf: pods will resolve no name outside of the cluster"
            .to_owned()
    });
    let itself = (facts.resolves_itself == Some(false))
        .then(|| format!("does not resolve its own name {}", facts.hostname));
    let found = servers.map(|servers| servers.join(", ")).unwrap_or_default();
    Verdict::good(found, "a name server, and its own name resolved").warning(none).warning(itself)
}

/// All links are alike, and wide enough for a packet within a packet.
fn mtu(it: &Subject<'_>) -> Verdict {
    let Some(mtu) = host_conflicts::mtu(it.spec, it.facts) else { return Verdict::good("", "as the others") };
    let usual = it.host_conflicts.usual_mtu().unwrap_or(mtu);
    let low = (mtu < LOW_MTU).then(|| format!("has an MTU of {mtu}: packets of pods will be small"));
    let other =
        (mtu != usual).then(|| format!("has an MTU of {mtu}, most others {usual}: packets may be lost"));
    Verdict::good(mtu.to_string(), usual.to_string()).warning(other).warning(low)
}

/// Networks of pods and Services are nobody else's. On a host of the cluster they are its own.
fn networks(it: &Subject<'_>) -> Verdict {
    let Intent { spec, .. } = it.intent;
    let (mut taken, mut wider) = (Vec::new(), Vec::new());
    let free = it.facts.claim.is_none();
    let networks = [
        (RefusedField::PodCidr, spec.settings.pod_cidr),
        (RefusedField::ServiceCidr, spec.settings.service_cidr),
    ];
    let mut field = None;
    for (own, net) in networks {
        let name = if own == RefusedField::PodCidr { "pod network" } else { "service network" };
        for address in it.facts.addresses.iter().filter(|address| free && net.net().contains(*address)) {
            field.get_or_insert(own);
            taken.push(format!("has the address {address}, which lies in the {name} {net}"));
        }
        for route in it.facts.routes.iter().filter(|route| free && route.overlaps(net)) {
            field.get_or_insert(own);
            if net.net().contains(&route.net()) {
                taken.push(format!("has a route to {route}, which lies in the {name} {net}"));
            } else {
                wider
                    .push(format!("has a route to {route}, which holds the {name} {net}: it will be hidden"));
            }
        }
    }
    let says = |all: Vec<String>| (!all.is_empty()).then(|| all.join("; "));
    let found = format!("{} routes", it.facts.routes.len());
    let wanted = format!("none into {} and {}", spec.settings.pod_cidr, spec.settings.service_cidr);
    let verdict = Verdict::good(found, wanted).error(says(taken)).warning(says(wider));
    match field {
        Some(field) => verdict.remedy(Remedy::Change(field)),
        None => verdict,
    }
}
