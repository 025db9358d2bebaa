//! Golden stories of workers that come and go. Read the texts in `tests/stories/`.

use std::collections::BTreeMap;

use crate::support::{address, bare_hosts, golden, intent};
use kubeon_plan::sim::{refused, story};
use kubeon_plan::{HostSpec, Intent, Seen, Snapshot, StageName, destroy, lint, plan};
use kubeon_wire::{Claim, ClusterFacts, EtcdFact, NodeFact, Op};

/// A cluster that stands, and whose first master tells its nodes.
fn created(masters: usize, workers: usize) -> Snapshot {
    let mut snapshot = bare_hosts(masters + workers);
    story(&intent(masters, workers), &mut snapshot, 1);
    says(&mut snapshot, masters + workers);
    snapshot
}

/// The first master tells of so many nodes, all ready.
fn says(snapshot: &mut Snapshot, nodes: usize) {
    let node = || NodeFact { ready: true, ..NodeFact::default() };
    let nodes = (1..=nodes).map(|number| (format!("h{number}"), node())).collect();
    let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else { panic!("not seen") };
    let etcd = EtcdFact::Members([("h1".to_owned(), Some(true))].into());
    facts.cluster = Some(ClusterFacts { api_ready: true, version: None, nodes: Some(nodes), etcd });
}

/// What the first master tells of nodes.
fn nodes(snapshot: &mut Snapshot) -> &mut Option<BTreeMap<String, NodeFact>> {
    let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else { panic!("not seen") };
    &mut facts.cluster.as_mut().unwrap().nodes
}

/// The cluster without its last workers, which are to leave.
fn without_last(masters: usize, workers: usize, leaving: usize) -> Intent {
    let all = intent(masters, workers + leaving);
    let leaving = all.spec.workers[workers..].iter().cloned().zip(masters + workers + 1..);
    let named = leaving.map(|(host, number)| HostSpec { name: format!("h{number}").parse().ok(), ..host });
    Intent { leaving: named.collect(), ..intent(masters, workers) }
}

fn silent(snapshot: &mut Snapshot, index: usize) {
    snapshot.hosts.insert(address(index), Seen::Unknown { why: "no route to host".into(), denied: false });
}

#[test]
fn a_worker_is_added() {
    let mut snapshot = created(1, 1);
    snapshot.hosts.extend(bare_hosts(3).hosts.split_off(&address(2)));
    golden("add-worker", &story(&intent(1, 2), &mut snapshot, 3));
}

#[test]
fn a_worker_is_removed() {
    let mut snapshot = created(1, 2);
    let wish = without_last(1, 1, 1);
    let made = plan(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    golden("remove-worker", &story(&wish, &mut snapshot, 3));
}

#[test]
fn the_last_worker_leaves_after_masters_take_pods() {
    let snapshot = created(1, 1);
    let made = plan(&without_last(1, 0, 1), &snapshot).unwrap();
    let drain = made.steps.iter().find(|step| step.id == "leave/drain-h2@h1").unwrap();
    assert_eq!(drain.needs, ["join/taint-h1@h1"]);
}

#[test]
fn a_worker_takes_the_place_of_another() {
    let mut snapshot = created(1, 2);
    snapshot.hosts.extend(bare_hosts(4).hosts.split_off(&address(3)));
    let mut wish = intent(1, 3);
    let mut spec = (*wish.spec).clone();
    let gone = HostSpec { name: "h2".parse().ok(), ..spec.workers.remove(0) };
    let version = spec.version;
    wish.spec = kubeon_plan::validate(spec, &[version]).unwrap().0;
    wish.leaving = vec![gone];
    let made = plan(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let drain = made.steps.iter().find(|step| step.id == "leave/drain-h2@h1").unwrap();
    assert_eq!(drain.needs, ["join/ready-h4@h1"], "the new one is Ready before the old one is emptied");
}

#[test]
fn a_worker_that_cannot_be_reached_is_only_taken_out() {
    let mut snapshot = created(1, 2);
    silent(&mut snapshot, 2);
    let mut wish = without_last(1, 1, 1);
    let mut log = refused(&plan(&wish, &snapshot).unwrap_err());
    wish.skip_hosts.push(address(2));
    nodes(&mut snapshot).as_mut().unwrap().get_mut("h3").unwrap().ready = false;
    let made = plan(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(made.steps.iter().all(|step| step.host != address(2)));
    log.push_str(&story(&wish, &mut snapshot, 3));
    golden("remove-unreachable-worker", &log);
}

#[test]
fn a_node_that_lives_is_emptied_although_its_host_cannot_be_reached_from_here() {
    let mut snapshot = created(1, 2);
    silent(&mut snapshot, 2);
    let wish = Intent { skip_hosts: vec![address(2)], ..without_last(1, 1, 1) };
    let made = plan(&wish, &snapshot).unwrap();
    let leave: Vec<_> =
        made.steps.iter().filter(|it| it.stage == StageName::Leave).map(|it| it.id.as_str()).collect();
    assert_eq!(leave, ["leave/drain-h3@h1", "leave/remove-h3@h1"]);
}

#[test]
fn a_node_is_emptied_where_nobody_told_whether_it_is_there() {
    let mut snapshot = created(1, 2);
    *nodes(&mut snapshot) = None;
    let made = plan(&without_last(1, 1, 1), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let leave = |plan: &kubeon_plan::Plan| {
        plan.steps
            .iter()
            .filter(|it| it.stage == StageName::Leave)
            .map(|it| it.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(leave(&made), ["leave/drain-h3@h1", "leave/remove-h3@h1", "leave/reset@h3"]);
    // Where its host is silent too, its pods may run all the same.
    silent(&mut snapshot, 2);
    let wish = Intent { skip_hosts: vec![address(2)], ..without_last(1, 1, 1) };
    let mut made = plan(&wish, &snapshot).unwrap();
    assert_eq!(leave(&made), ["leave/drain-h3@h1", "leave/remove-h3@h1"]);
    let drain = made.steps.iter().find(|step| step.id.starts_with("leave/drain")).unwrap();
    assert!(drain.why.ends_with("the cluster did not report whether its pods still run"), "{}", drain.why);
    made.steps.retain(|step| !step.id.starts_with("leave/drain"));
    made.steps.iter_mut().for_each(|step| step.needs.retain(|need| !need.starts_with("leave/drain")));
    let found = lint(&made, &snapshot);
    assert!(found[0].rule == "unknown" && found[0].text.contains("no API server reported"), "{found:?}");
}

#[test]
fn what_belongs_to_another_cluster_by_now_is_left_alone() {
    let mut snapshot = created(1, 2);
    let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&address(2)) else { panic!("not seen") };
    facts.claim = Some(Claim { uid: "other".into(), ..facts.claim.clone().unwrap() });
    let made = plan(&without_last(1, 1, 1), &snapshot).unwrap();
    assert!(made.steps.iter().all(|step| step.host != address(2)));
    assert!(made.notes.iter().any(|note| note.text.contains("is left alone")), "{:?}", made.notes);
}

#[test]
fn only_what_must_change_is_touched_on_hosts_that_stay() {
    let mut snapshot = created(3, 2);
    snapshot.hosts.extend(bare_hosts(6).hosts.split_off(&address(5)));
    let made = plan(&intent(3, 3), &snapshot).unwrap();
    let elsewhere = made.steps.iter().filter(|step| step.host != address(5));
    let about_it = |step: &&kubeon_plan::Step| !step.id.contains("-h6@");
    let rest: Vec<_> = elsewhere.filter(about_it).map(|step| step.id.as_str()).collect();
    let mut wanted = ["h1", "h2", "h3", "h4", "h5"].map(|host| format!("prepare/hosts@{host}")).to_vec();
    wanted.push("verify/dns@h1".to_owned());
    assert_eq!(rest, wanted, "the new name, a look at CoreDNS, and nothing that runs");
}

#[test]
fn above_250_hosts_nobody_else_is_touched() {
    let mut snapshot = created(3, 250);
    snapshot.hosts.extend(bare_hosts(254).hosts.split_off(&address(253)));
    let made = plan(&intent(3, 251), &snapshot).unwrap();
    let elsewhere = made.steps.iter().filter(|step| step.host != address(253) && !step.id.contains("-h254@"));
    assert_eq!(elsewhere.map(|step| &step.id).collect::<Vec<_>>(), ["verify/dns@h1"]);
}

#[test]
fn the_linter_sees_a_host_that_is_reset_before_its_node_is_gone() {
    let snapshot = created(1, 2);
    let mut made = plan(&without_last(1, 1, 1), &snapshot).unwrap();
    for step in
        made.steps.iter_mut().filter(|step| matches!(step.op, Op::Reset { .. } | Op::RemoveNode { .. }))
    {
        step.needs.clear();
    }
    let rules: Vec<_> = lint(&made, &snapshot).into_iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["drain", "drain"]);
}

#[test]
fn destroying_takes_hosts_that_were_about_to_leave_along() {
    let snapshot = created(1, 2);
    let made = destroy(&without_last(1, 1, 1), &snapshot).unwrap();
    let ids: Vec<_> = made.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["reset/host@h2", "reset/host@h3", "reset/host@h1"]);
}

/// The first master tells of a node.
fn node_of<'a>(snapshot: &'a mut Snapshot, name: &str) -> &'a mut NodeFact {
    nodes(snapshot).as_mut().unwrap().get_mut(name).unwrap()
}

#[test]
fn a_worker_that_stays_after_all_takes_pods_again_and_nothing_else_is_touched() {
    let mut snapshot = created(1, 2);
    let wish = Intent { returning: vec![address(2)], ..intent(1, 2) };
    assert_eq!(plan(&wish, &snapshot).unwrap().steps, [], "it was not cordoned yet");
    node_of(&mut snapshot, "h3").unschedulable = true;
    assert_eq!(plan(&intent(1, 2), &snapshot).unwrap().steps, [], "what a person cordoned stays so");
    let made = plan(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    golden("keep-worker", &story(&wish, &mut snapshot, 3));
}

#[test]
fn a_worker_whose_node_was_deleted_is_reset_before_it_joins_again() {
    let mut snapshot = created(1, 2);
    nodes(&mut snapshot).as_mut().unwrap().remove("h3");
    let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else { panic!("not seen") };
    facts.journal.retain(|entry| !entry.id.contains("-h3@"));
    let wish = Intent { returning: vec![address(2)], ..intent(1, 2) };
    let made = plan(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let on_it: Vec<_> =
        made.steps.iter().filter(|step| step.host == address(2)).map(|step| &step.id).collect();
    assert_eq!(on_it, ["leave/reset@h3"], "its kubelet would not make the node again");
    assert!(made.steps.iter().all(|step| !matches!(step.op, Op::Taint { .. } | Op::Drain { .. })));
    kubeon_plan::sim::apply(&made, made.steps.len(), &mut snapshot);
    let made = plan(&wish, &snapshot).unwrap();
    assert!(made.steps.iter().any(|step| step.id == "join/ready-h3@h1"), "then it joins");
    assert!(made.steps.iter().all(|step| !matches!(step.op, Op::Reset { .. } | Op::Uncordon { .. })));
}
