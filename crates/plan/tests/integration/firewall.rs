//! The check of firewalls, and the proof that packets cross the overlay.

use crate::support::{address, bare_hosts, golden, intent, step, texts};
use kubeon_api::kubernetes_cluster::FirewallMode;
use kubeon_plan::precheck::precheck;
use kubeon_plan::sim::{describe, refused};
use kubeon_plan::{DesiredCluster, Intent, Observation, Remedy, Snapshot, Step, plan, validate};
use kubeon_wire::{
    Check, FORWARDING_PORT, Facts, FirewallFact, FirewallProgram, LinkFact, Op, PacketMatch, PrecheckResult,
    PrecheckSeverity, Reach, ReachFact, Transport,
};

fn firewall(program: FirewallProgram) -> FirewallFact {
    FirewallFact { program, lets_in: vec![port("eth0", 22)], forwards: Vec::new(), understood: true }
}

fn port(link: &str, port: u16) -> PacketMatch {
    PacketMatch {
        link: Some(link.to_owned()),
        transport: Some(Transport::Tcp),
        ports: Some((port, port)),
        ..PacketMatch::default()
    }
}

fn edit(snapshot: &mut Snapshot, index: usize, change: impl FnOnce(&mut Facts)) {
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else {
        panic!("not observed")
    };
    let link = LinkFact { address: address(index).ip(), name: "eth0".to_owned(), mtu: 1500 };
    facts.links = vec![link];
    change(facts);
}

/// The result on the last host of a cluster with this firewall.
fn checked(masters: usize, workers: usize, firewall: FirewallFact) -> PrecheckResult {
    let last = masters + workers - 1;
    let mut snapshot = bare_hosts(masters + workers);
    edit(&mut snapshot, last, |facts| facts.firewall = Some(firewall));
    result(&intent(masters, workers), &snapshot, last)
}

fn result(intent: &Intent, snapshot: &Snapshot, index: usize) -> PrecheckResult {
    let report = precheck(intent, snapshot);
    let host = report.hosts.into_iter().find(|host| host.host == address(index)).unwrap();
    host.checks.into_iter().find(|result| result.check == "firewall").unwrap()
}

#[test]
fn a_closed_firewall_names_the_ports_of_the_role_and_the_hosts_that_need_them() {
    let worker = checked(2, 1, firewall(FirewallProgram::Firewalld));
    assert_eq!(
        worker.message,
        "its firewall (firewalld) does not let in TCP 10250 and UDP 8472 from 172.30.0.11, 172.30.0.12, and packets of \
         the pod network 10.96.0.0/12"
    );
    assert!(worker.prevents() && worker.remedy == Some(Remedy::ManageFirewall(address(2))), "{worker:?}");
    let master = checked(3, 0, firewall(FirewallProgram::Ufw));
    let ports = "its firewall (ufw) does not let in TCP 2379-2380, 6443, 10250 and UDP 8472 from 172.30.0.11, 172.30.0.12, ";
    assert!(master.message.starts_with(ports), "{master:?}");
    let mixed = checked(1, 2, firewall(FirewallProgram::Ufw)).message;
    let groups = "TCP 10250 from 172.30.0.11, and UDP 8472 from 172.30.0.11, 172.30.0.12, and packets";
    assert!(mixed.contains(groups), "each port has its own hosts: {mixed}");
    let alone = checked(1, 0, firewall(FirewallProgram::Ufw));
    assert_eq!(alone.message, "its firewall (ufw) does not let in packets of the pod network 10.96.0.0/12");
}

#[test]
fn a_firewall_that_lets_in_the_hosts_and_the_pods_passes() {
    let pods = PacketMatch { source: Some("10.96.0.0/12".parse().unwrap()), ..PacketMatch::default() };
    let host = |index: usize, transport, port| PacketMatch {
        source: Some(format!("{}/32", address(index)).parse().unwrap()),
        transport: Some(transport),
        ports: Some((port, port)),
        link: Some("eth0".to_owned()),
        denied: false,
    };
    let rules = vec![pods.clone(), host(0, Transport::Tcp, 10250), host(0, Transport::Udp, 8472)];
    let open = |lets_in, forwards| FirewallFact { lets_in, forwards, ..firewall(FirewallProgram::Firewalld) };
    let result = checked(1, 1, open(rules.clone(), vec![pods.clone()]));
    assert!(result.ok && result.found == "firewalld", "{result:?}");
    let other = checked(1, 2, open(rules.clone(), vec![pods.clone()]));
    assert!(other.message.contains("UDP 8472 from 172.30.0.12"), "another host is not let in: {other:?}");
    assert!(
        checked(1, 1, open(rules, Vec::new()))
            .message
            .ends_with("let in packets of the pod network 10.96.0.0/12")
    );
}

/// A firewall that lets everything pass but packets to UDP 8472.
fn refuses_overlay(program: FirewallProgram) -> FirewallFact {
    let ports = Some((8472, 8472));
    let denied =
        PacketMatch { transport: Some(Transport::Udp), ports, denied: true, ..PacketMatch::default() };
    let all = vec![PacketMatch::default()];
    FirewallFact { lets_in: [vec![denied], all.clone()].concat(), forwards: all, ..firewall(program) }
}

#[test]
fn a_rule_that_refuses_the_overlay_is_found_unless_an_earlier_one_lets_it_in() {
    let closed = checked(1, 1, refuses_overlay(FirewallProgram::Nftables));
    let message = "its firewall (nftables) does not let in UDP 8472 from 172.30.0.11; add before the rule that refuses \
                   them: `ip saddr { 172.30.0.11 } udp dport 8472 accept`";
    assert!(closed.prevents() && closed.message == message, "{closed:?}");
    let mut open = refuses_overlay(FirewallProgram::Nftables);
    let source = format!("{}/32", address(0)).parse().ok();
    open.lets_in.insert(0, PacketMatch { source, ..PacketMatch::default() });
    assert!(checked(1, 1, open.clone()).ok);
    let mail = PacketMatch { ports: Some((25, 25)), denied: true, ..PacketMatch::default() };
    open.forwards.insert(0, mail.clone());
    assert!(checked(1, 1, open.clone()).ok, "a refused port forbids no forwarding");
    open.forwards.insert(0, PacketMatch { ports: None, ..mail });
    assert!(!checked(1, 1, open).ok);
}

#[test]
fn a_managed_firewall_must_not_refuse_before_the_rules_of_kubeon() {
    for (program, ok) in [(FirewallProgram::Nftables, true), (FirewallProgram::Ufw, false)] {
        let mut snapshot = bare_hosts(2);
        edit(&mut snapshot, 1, |facts| facts.firewall = Some(refuses_overlay(program)));
        let result = result(&with_mode(1, 1, FirewallMode::Manage), &snapshot, 1);
        assert_eq!(result.ok, ok, "{result:?}");
        assert!(ok || result.message.contains("refuse UDP 8472 from 172.30.0.11: kubeon"), "{result:?}");
    }
}

#[test]
fn rules_that_are_not_understood_and_hosts_of_the_cluster_are_only_warned_of() {
    let unclear = FirewallFact { understood: false, ..firewall(FirewallProgram::Iptables) };
    let result = checked(1, 1, unclear);
    assert_eq!(result.severity, PrecheckSeverity::Warning);
    assert!(result.message.contains("may not let in TCP 10250"), "{result:?}");
    let mut snapshot = bare_hosts(2);
    let first = plan(&intent(1, 1), &snapshot).unwrap();
    kubeon_plan::sim::apply(&first, first.steps.len(), &mut snapshot);
    edit(&mut snapshot, 1, |facts| facts.firewall = Some(firewall(FirewallProgram::Ufw)));
    let later = plan(&intent(1, 1), &snapshot).unwrap();
    assert!(later.notes.iter().any(|note| note.text.contains("(ufw) does not let in")), "{:?}", later.notes);
}

#[test]
fn the_owner_of_plain_rules_gets_the_rules_to_add() {
    let nft = checked(1, 1, firewall(FirewallProgram::Nftables)).message;
    assert!(nft.contains("`ip saddr { 172.30.0.11 } udp dport 8472 accept`"), "{nft}");
    assert!(nft.contains("in the hook forward `ip saddr 10.96.0.0/12 accept`"), "{nft}");
    let iptables = checked(1, 1, firewall(FirewallProgram::Iptables)).message;
    assert!(
        iptables.contains("`iptables -I INPUT -s 172.30.0.11 -p udp --dport 8472 -j ACCEPT`"),
        "{iptables}"
    );
}

#[test]
fn a_closed_firewall_is_refused_unless_the_check_is_ignored() {
    let mut snapshot = bare_hosts(3);
    edit(&mut snapshot, 0, |facts| facts.firewall = Some(firewall(FirewallProgram::Firewalld)));
    edit(&mut snapshot, 2, |facts| facts.firewall = Some(firewall(FirewallProgram::Ufw)));
    let mut intent = intent(1, 2);
    let mut text = refused(&plan(&intent, &snapshot).unwrap_err());
    intent.ignore.insert("firewall".to_owned());
    let ignored = plan(&intent, &snapshot).unwrap();
    text.push_str("with the check ignored:\n");
    text.extend(describe(&ignored).lines().take(6).map(|line| format!("{line}\n")));
    golden("firewall-closed", &text);
}

/// A cluster whose settings say what happens to firewalls.
fn with_mode(masters: usize, workers: usize, mode: FirewallMode) -> Intent {
    let mut intent = intent(masters, workers);
    let mut spec = DesiredCluster::clone(&intent.spec);
    spec.settings.firewall = mode;
    let version = spec.version;
    intent.spec = validate(spec, &[version]).unwrap().0;
    intent
}

#[test]
fn a_firewall_that_kubeon_opens_may_refuse_the_other_hosts_until_then() {
    for (mode, ok) in [(FirewallMode::Manage, true), (FirewallMode::Check, false)] {
        let mut snapshot = bare_hosts(2);
        edit(&mut snapshot, 0, |facts| facts.firewall = Some(firewall(FirewallProgram::Firewalld)));
        let target = address(0).to_string();
        let refused = ReachFact { target, port: 6443, outcome: Reach::Failed };
        edit(&mut snapshot, 1, |facts| facts.reached = vec![refused]);
        let report = precheck(&with_mode(1, 1, mode), &snapshot);
        let peers = report.hosts[1].checks.iter().find(|result| result.check == "peers").unwrap();
        assert_eq!(peers.ok, ok, "{mode}: {peers:?}");
    }
}

/// What the step that opens the firewall of the host lets in; `None` without such a step.
fn opened(plan: &kubeon_plan::Plan, host: &str) -> Option<Vec<PacketMatch>> {
    let id = format!("prepare/firewall@{host}");
    let step = plan.steps.iter().find(|step| step.id.to_string() == id)?;
    let Op::Firewall { lets_in, .. } = &step.op else { panic!("{id}") };
    Some(lets_in.clone())
}

#[test]
fn a_managed_firewall_is_opened_for_each_host_that_needs_it() {
    let mut snapshot = bare_hosts(3);
    edit(&mut snapshot, 0, |facts| facts.firewall = Some(firewall(FirewallProgram::Firewalld)));
    edit(&mut snapshot, 1, |facts| facts.firewall = Some(firewall(FirewallProgram::Ufw)));
    let desired = with_mode(1, 2, FirewallMode::Manage);
    let first = plan(&desired, &snapshot).unwrap();
    assert_eq!(opened(&first, "h3"), None, "a host without a firewall");
    let master = opened(&first, "h1").unwrap();
    let opens = |all: &[PacketMatch], transport, port, source: Option<&str>| {
        let source = source.map(|text| text.parse().unwrap());
        all.iter().any(|packets| packets.source == source && packets.opens(transport, port))
    };
    assert!(opens(&master, Transport::Tcp, 6443, None), "people use the API: {master:?}");
    let worker = opened(&first, "h2").unwrap();
    assert!(opens(&worker, Transport::Tcp, 10250, Some("172.30.0.11/32")), "{worker:?}");
    assert!(!opens(&worker, Transport::Tcp, 10250, Some("172.30.0.13/32")), "only masters: {worker:?}");
    assert!(opens(&worker, Transport::Udp, 8472, Some("172.30.0.13/32")), "{worker:?}");
    assert!(!opens(&worker, Transport::Tcp, 6443, None), "{worker:?}");
    assert!(opens(&worker, Transport::Tcp, FORWARDING_PORT, Some("172.30.0.13/32")), "{worker:?}");
    let opened_before = |host: &str| {
        let needs = texts(&step(&first, &format!("artifacts/kubelet@{host}")).needs);
        needs.contains(&format!("prepare/firewall@{host}"))
    };
    assert!(
        opened_before("h1") && opened_before("h2") && !opened_before("h3"),
        "a host that forwards parts is open"
    );
    let parts = plan(&Intent { only_parts: true, ..desired.clone() }, &snapshot).unwrap();
    assert!(opened(&parts, "h1").is_some(), "also if nothing follows the parts");
    let other = |step: &&Step| !matches!(step.op, Op::Part { .. } | Op::Firewall { .. });
    assert_eq!(parts.steps.iter().find(other), None);
    kubeon_plan::sim::apply(&first, first.steps.len(), &mut snapshot);
    let open = |facts: &mut Facts| {
        let all = vec![PacketMatch::default()];
        let program = facts.firewall.as_ref().unwrap().program;
        facts.firewall = Some(FirewallFact { lets_in: all.clone(), forwards: all, ..firewall(program) });
    };
    edit(&mut snapshot, 0, open);
    edit(&mut snapshot, 1, open);
    assert_eq!(plan(&desired, &snapshot).unwrap().steps.len(), 0);
    edit(&mut snapshot, 1, |facts| facts.firewall = Some(firewall(FirewallProgram::Ufw)));
    let drifted = plan(&desired, &snapshot).unwrap();
    assert!(opened(&drifted, "h2").is_some() && opened(&drifted, "h1").is_none());
}

#[test]
fn an_ignored_firewall_is_not_checked_and_rules_of_iptables_are_not_managed() {
    let mut snapshot = bare_hosts(2);
    edit(&mut snapshot, 1, |facts| facts.firewall = Some(firewall(FirewallProgram::Iptables)));
    let managed = with_mode(1, 1, FirewallMode::Manage);
    let refused = result(&managed, &snapshot, 1);
    assert!(refused.prevents(), "the owner adds the rules: {refused:?}");
    assert!(
        refused.message.contains("(iptables) is not managed by kubeon and does not let in"),
        "{refused:?}"
    );
    assert!(result(&with_mode(1, 1, FirewallMode::Ignore), &snapshot, 1).ok);
}

/// Whether the check of DNS on the host asks pods on other hosts, before it asks the Service.
fn proves_overlay(plan: &kubeon_plan::Plan, host: &str) -> bool {
    let Op::Await { checks } = &step(plan, &format!("verify/resolve@{host}")).op else { panic!("checks") };
    matches!(&checks[..], [Check::Overlay { node, .. }, Check::Dns { .. }, ..] if node.as_str() == host)
}

#[test]
fn every_host_proves_the_overlay_if_there_are_two() {
    let two = plan(&intent(1, 1), &bare_hosts(2)).unwrap();
    assert!(proves_overlay(&two, "h1") && proves_overlay(&two, "h2"));
    let one = plan(&intent(1, 0), &bare_hosts(1)).unwrap();
    assert!(!proves_overlay(&one, "h1"), "there is no other host");
}
