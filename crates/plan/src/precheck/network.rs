//! Checks of the network: free ports, connections between hosts, name servers, MTU and address ranges.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{HostAddress, HostRole, RefusedField, Remedy};
use kubeon_wire::Reach;

use super::rule::{CheckRule, Subject, Verdict, rule};
use super::{address, dns, firewall, host_conflicts};
use crate::context::OVERLAY_HEADER_BYTES;
use crate::input::{HostSpec, Intent};

/// Checks of the ports that the programs of the cluster use.
pub(super) const PORTS: &[CheckRule] = &[rule("ports", ports), rule("node-ports", node_ports)];

/// Connections to other hosts and to the registry, and the settings that they depend on.
pub(super) const CONNECTIONS: &[CheckRule] = &[
    rule("address", address::address),
    rule("dns", dns::dns),
    rule("mtu", mtu),
    rule("firewall", firewall::firewall),
    rule("peers", peers),
    rule("registry", registry),
    rule("networks", networks),
];

/// The maximum number of kubelets that a master connects to: the probe has a time limit, and more connections
/// add little information.
const MAX_KUBELETS: usize = 250;
/// Below this MTU, packets of pods are small because of the headers of the overlay network.
const LOW_MTU: u32 = 1400;
/// The maximum number of targets or ports in one message.
const MAX_LISTED: usize = 5;

/// A connection target: an address, or a name that the host must resolve, and a port.
pub type ConnectionTarget = (String, u16);

/// The connections that each host must try: to other hosts of the cluster, and to `further` targets such as a
/// registry. Hosts that are skipped or not observed are not targets.
#[must_use]
pub fn connection_targets(
    intent: &Intent,
    further: &[ConnectionTarget],
) -> BTreeMap<HostAddress, Vec<ConnectionTarget>> {
    let to = |host: HostAddress, port: u16| (host.to_string(), port);
    let takes_part = |host: &&HostSpec| {
        !intent.skip_hosts.contains(&host.address) && !intent.unconcerned.contains(&host.address)
    };
    let masters = || intent.spec.masters.iter().filter(takes_part);
    let workers = || intent.spec.workers.iter().filter(takes_part);
    let etcd_hosts = || intent.spec.etcd_hosts.iter().filter(takes_part);
    let external = intent.spec.has_external_etcd();
    let mut all = BTreeMap::new();
    for (role, host) in intent.spec.hosts_with_roles().filter(|(_, host)| takes_part(host)) {
        let others = masters().filter(|master| master.address != host.address).map(HostSpec::cluster_address);
        let members =
            etcd_hosts().filter(|member| member.address != host.address).map(HostSpec::cluster_address);
        let mut targets: Vec<ConnectionTarget> = further.to_vec();
        match role {
            HostRole::Master => {
                let kubelets = workers().take(MAX_KUBELETS).map(|worker| to(worker.cluster_address(), 10250));
                let own: &[u16] = if external { &[6443, 10250] } else { &[6443, 2379, 2380, 10250] };
                targets.extend(others.flat_map(|other| own.iter().map(move |port| to(other, *port))));
                targets.extend(kubelets);
                targets.extend(members.map(|member| to(member, 2379)));
            }
            HostRole::Etcd => {
                targets.extend(members.flat_map(|member| [2379, 2380].map(|port| to(member, port))));
            }
            _ => targets.extend(others.map(|other| to(other, 6443))),
        }
        all.insert(host.address, targets);
    }
    all
}

/// The other hosts answer. A refused connection counts as an answer.
fn peers(subject: &Subject<'_>) -> Verdict {
    connections(subject, true)
}

/// The further targets, such as a registry, accept connections.
fn registry(subject: &Subject<'_>) -> Verdict {
    connections(subject, false)
}

/// The result of the connections to hosts of the cluster, or to the further targets.
fn connections(subject: &Subject<'_>, hosts: bool) -> Verdict {
    let conflicts = subject.host_conflicts;
    // A host that does not answer is reported by itself, not by every other host.
    let answers = subject.facts.reached.iter().filter(|fact| !conflicts.is_unobserved(&fact.target));
    // A firewall that kubeon opens may refuse until then.
    let answers = answers.filter(|fact| !conflicts.is_opened(&fact.target));
    let tried = answers.filter(|fact| conflicts.is_host(&fact.target) == hosts);
    let (mut all, mut failed) = (0, Vec::new());
    for fact in tried {
        all += 1;
        let why = match fact.outcome {
            Reach::Open => continue,
            // The program of another host may start later. A registry must accept connections now.
            Reach::Refused if hosts => continue,
            Reach::Refused => "connection refused",
            Reach::Silent => "no answer",
            Reach::Failed => "no route or unknown name",
        };
        failed.push(format!("{}:{} ({why})", fact.target, fact.port));
    }
    let more = failed.len().saturating_sub(MAX_LISTED);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    let message = (!failed.is_empty()).then(|| {
        let named = failed.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ");
        format!("cannot reach {named}{rest}; check routes and firewalls")
    });
    let found =
        if all == 0 { "not tried".to_owned() } else { format!("{} of {all} answer", all - failed.len()) };
    Verdict::good(found, "all answer").error(message)
}

/// The ports that the programs of the cluster will use on the host.
fn cluster_ports(subject: &Subject<'_>) -> Vec<u16> {
    let spec = &subject.intent.spec;
    let mut ports = Vec::new();
    if subject.role.runs_node() {
        ports.extend([10250, 10256]);
    }
    if subject.role == spec.member_role() {
        ports.extend([2379, 2380]);
    }
    if subject.role.is_master() {
        ports.extend([6443, 10257, 10259]);
    } else if subject.role.runs_node() && spec.settings.load_balancer == LoadBalancer::Haproxy {
        ports.push(6443);
    }
    ports.sort_unstable();
    ports
}

fn list(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// On a free host, no program listens on the ports of the cluster.
fn ports(subject: &Subject<'_>) -> Verdict {
    let wanted = cluster_ports(subject);
    let free = subject.facts.claim.is_none();
    let busy: Vec<u16> =
        subject.facts.busy_ports.iter().copied().filter(|port| free && wanted.contains(port)).collect();
    let message = (!busy.is_empty())
        .then(|| format!("another program listens on port {}; free it (ss -ltnp)", list(&busy)));
    let found = if busy.is_empty() { "free".to_owned() } else { format!("{} busy", list(&busy)) };
    Verdict::good(found, format!("{} free", list(&wanted))).error(message)
}

/// On a free host, no program listens on a node port. A Service with this node port would hide the program.
fn node_ports(subject: &Subject<'_>) -> Verdict {
    let range = subject.intent.spec.settings.node_ports;
    let used = cluster_ports(subject);
    let free = subject.facts.claim.is_none();
    let inside = |port: &u16| free && (range.first()..=range.last()).contains(port) && !used.contains(port);
    let busy: Vec<u16> = subject.facts.listening.iter().copied().filter(inside).take(MAX_LISTED).collect();
    let message = (!busy.is_empty()).then(|| {
        format!("another program listens on port {}, which is in the node port range {range}", list(&busy))
    });
    let found = if busy.is_empty() { "free".to_owned() } else { format!("{} busy", list(&busy)) };
    Verdict::good(found, format!("{range} free")).warning(message)
}

/// All hosts have the same MTU, and it is large enough for the overlay network and for the packets of pods. A host of the
/// cluster lost its larger MTU later: that must not prevent other changes.
fn mtu(subject: &Subject<'_>) -> Verdict {
    let Some(mtu) = host_conflicts::mtu(subject.spec, subject.facts) else {
        return Verdict::good("", "same as other hosts");
    };
    let usual = subject.host_conflicts.most_common_mtu().unwrap_or(mtu);
    let low = (mtu < LOW_MTU).then(|| format!("has an MTU of {mtu}: packets of pods will be small"));
    let other = (mtu != usual)
        .then(|| format!("has an MTU of {mtu}, most other hosts have {usual}: packets may be lost"));
    let pods =
        subject.intent.spec.settings.mtu.filter(|pods| pods.saturating_add(OVERLAY_HEADER_BYTES) > mtu);
    let lost = pods.map(|pods| {
        let most = mtu.saturating_sub(OVERLAY_HEADER_BYTES);
        format!("has an MTU of {mtu}: packets of pods may have {most} bytes, but network.mtu is {pods}")
    });
    let joins = subject.facts.claim.is_none();
    let verdict = Verdict::good(mtu.to_string(), usual.to_string());
    let verdict = if joins {
        verdict.error(lost).remedy(Remedy::Change(RefusedField::Mtu))
    } else {
        verdict.warning(lost)
    };
    verdict.warning(other).warning(low)
}

/// On a free host, no address and no route is in the networks of pods and Services. On a host of the cluster,
/// the cluster uses them itself.
fn networks(subject: &Subject<'_>) -> Verdict {
    let Intent { spec, .. } = subject.intent;
    let (mut taken, mut wider) = (Vec::new(), Vec::new());
    let free = subject.facts.claim.is_none();
    let networks = [
        (RefusedField::PodCidr, spec.settings.pod_cidr),
        (RefusedField::ServiceCidr, spec.settings.service_cidr),
    ];
    let mut field = None;
    for (own, net) in networks {
        let name = if own == RefusedField::PodCidr { "pod network" } else { "service network" };
        for address in subject.facts.addresses.iter().filter(|address| free && net.net().contains(*address)) {
            field.get_or_insert(own);
            taken.push(format!("has the address {address}, which is in the {name} {net}"));
        }
        for route in subject.facts.routes.iter().filter(|route| free && route.overlaps(net)) {
            field.get_or_insert(own);
            if net.net().contains(&route.net()) {
                taken.push(format!("has a route to {route}, which is in the {name} {net}"));
            } else {
                let effect = "the cluster hides that part of it";
                wider.push(format!("has a route to {route}, which contains the {name} {net}: {effect}"));
            }
        }
    }
    let message = |all: Vec<String>| (!all.is_empty()).then(|| all.join("; "));
    let found = format!("{} routes", subject.facts.routes.len());
    let wanted = format!("no route into {} and {}", spec.settings.pod_cidr, spec.settings.service_cidr);
    let verdict = Verdict::good(found, wanted).error(message(taken)).warning(message(wider));
    match field {
        Some(field) => verdict.remedy(Remedy::Change(field)),
        None => verdict,
    }
}
