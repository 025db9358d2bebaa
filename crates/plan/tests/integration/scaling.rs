//! Golden stories of added and removed workers. Read the texts in `tests/stories/`.

use std::collections::BTreeMap;

use crate::support::{address, bare_hosts, golden, intent, step, texts};
use kubeon_plan::sim::{apply, refused, run_to_completion};
use kubeon_plan::{
    HostSpec, Intent, Observation, ObservationFailure, Plan, Snapshot, StageName, Step, destroy, lint, plan,
};
use kubeon_wire::{Claim, ClusterFacts, EtcdFact, NodeFact, Op};

/// A created cluster whose first master reports its nodes.
fn created(masters: usize, workers: usize) -> Snapshot {
    let mut snapshot = bare_hosts(masters + workers);
    run_to_completion(&intent(masters, workers), &mut snapshot, 1);
    report_nodes(&mut snapshot, masters + workers);
    snapshot
}

/// Makes the first master report this number of Ready nodes.
fn report_nodes(snapshot: &mut Snapshot, nodes: usize) {
    let node = || NodeFact { ready: true, ..NodeFact::default() };
    let nodes = (1..=nodes).map(|number| (format!("h{number}"), node())).collect();
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else { panic!("not observed") };
    let etcd = EtcdFact::Members([("h1".to_owned(), Some(true))].into());
    facts.cluster =
        Some(ClusterFacts { api_ready: true, nodes: Some(nodes), etcd, ..ClusterFacts::default() });
}

/// The nodes that the first master reports.
fn nodes(snapshot: &mut Snapshot) -> &mut Option<BTreeMap<String, NodeFact>> {
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else { panic!("not observed") };
    &mut facts.cluster.as_mut().unwrap().nodes
}

/// The intent that removes the last workers.
fn without_last(masters: usize, workers: usize, leaving: usize) -> Intent {
    let all = intent(masters, workers + leaving);
    let leaving = all.spec.workers[workers..].iter().cloned().zip(masters + workers + 1..);
    let named = leaving.map(|(host, number)| HostSpec { name: format!("h{number}").parse().ok(), ..host });
    Intent { leaving: named.collect(), ..intent(masters, workers) }
}

fn make_unreachable(snapshot: &mut Snapshot, index: usize) {
    snapshot.hosts.insert(
        address(index),
        Observation::Unknown { why: "no route to host".into(), failure: ObservationFailure::NoAnswer },
    );
}

#[test]
fn a_worker_is_added() {
    let mut snapshot = created(1, 1);
    snapshot.hosts.extend(bare_hosts(3).hosts.split_off(&address(2)));
    golden("add-worker", &run_to_completion(&intent(1, 2), &mut snapshot, 3));
}

#[test]
fn the_parts_of_a_worker_come_before_the_rest() {
    let mut snapshot = created(1, 1);
    snapshot.hosts.extend(bare_hosts(3).hosts.split_off(&address(2)));
    let all = intent(1, 2);
    let is_part = |step: &&Step| matches!(step.op, Op::Part { .. });
    let whole = plan(&all, &snapshot).unwrap();
    let parts = plan(&Intent { only_parts: true, ..all.clone() }, &snapshot).unwrap();
    assert_eq!(lint(&parts, &snapshot), []);
    let of_whole: Vec<&Step> = whole.steps.iter().filter(is_part).collect();
    assert!(of_whole.len() > 5, "{of_whole:?}");
    assert_eq!(parts.steps.iter().collect::<Vec<_>>(), of_whole, "nothing else");

    apply(&parts, parts.steps.len(), &mut snapshot);
    let rest = plan(&all, &snapshot).unwrap();
    assert_eq!(rest.steps.iter().filter(is_part).count(), 0);
    assert_eq!(rest.steps.len(), whole.steps.len() - of_whole.len());
    let again = plan(&Intent { only_parts: true, ..all }, &snapshot).unwrap();
    assert_eq!(again.steps, []);
}

#[test]
fn a_worker_is_removed() {
    let mut snapshot = created(1, 2);
    let desired = without_last(1, 1, 1);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    golden("remove-worker", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn the_last_worker_is_drained_after_masters_accept_pods() {
    let snapshot = created(1, 1);
    let made = plan(&without_last(1, 0, 1), &snapshot).unwrap();
    let drain = step(&made, "leave/drain-h2");
    assert_eq!(texts(&drain.needs), ["join/taint-h1"]);
}

#[test]
fn a_worker_is_replaced_by_another() {
    let mut snapshot = created(1, 2);
    snapshot.hosts.extend(bare_hosts(4).hosts.split_off(&address(3)));
    let mut desired = intent(1, 3);
    let mut spec = (*desired.spec).clone();
    let removed = HostSpec { name: "h2".parse().ok(), ..spec.workers.remove(0) };
    let version = spec.version;
    desired.spec = kubeon_plan::validate(spec, &[version]).unwrap().0;
    desired.leaving = vec![removed];
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let drain = step(&made, "leave/drain-h2");
    assert_eq!(
        texts(&drain.needs),
        ["join/ready-h4"],
        "the new node is Ready before the old node is drained"
    );
}

#[test]
fn an_unreachable_worker_is_removed_without_a_reset() {
    let mut snapshot = created(1, 2);
    make_unreachable(&mut snapshot, 2);
    let mut desired = without_last(1, 1, 1);
    let mut log = refused(&plan(&desired, &snapshot).unwrap_err());
    desired.skip_hosts.push(address(2));
    nodes(&mut snapshot).as_mut().unwrap().get_mut("h3").unwrap().ready = false;
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(made.steps.iter().all(|step| step.host != address(2)));
    log.push_str(&run_to_completion(&desired, &mut snapshot, 3));
    golden("remove-unreachable-worker", &log);
}

/// The ids of the steps that remove workers.
fn leaving_steps(plan: &Plan) -> Vec<String> {
    texts(plan.steps.iter().filter(|step| step.stage == StageName::new("leave")).map(|step| &step.id))
}

#[test]
fn a_ready_node_is_drained_although_its_host_is_unreachable() {
    let mut snapshot = created(1, 2);
    make_unreachable(&mut snapshot, 2);
    let desired = Intent { skip_hosts: vec![address(2)], ..without_last(1, 1, 1) };
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(leaving_steps(&made), ["leave/drain-h3", "leave/remove-h3"]);
}

#[test]
fn a_node_is_drained_if_its_status_was_not_reported() {
    let mut snapshot = created(1, 2);
    *nodes(&mut snapshot) = None;
    let made = plan(&without_last(1, 1, 1), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(leaving_steps(&made), ["leave/drain-h3", "leave/remove-h3", "leave/reset@h3"]);
    // The pods may still run although the host is unreachable too.
    make_unreachable(&mut snapshot, 2);
    let desired = Intent { skip_hosts: vec![address(2)], ..without_last(1, 1, 1) };
    let mut made = plan(&desired, &snapshot).unwrap();
    assert_eq!(leaving_steps(&made), ["leave/drain-h3", "leave/remove-h3"]);
    let drain = step(&made, "leave/drain-h3");
    assert!(drain.why.ends_with("the cluster did not report whether its pods still run"), "{}", drain.why);
    let drain = drain.id.clone();
    made.steps.retain(|step| step.id != drain);
    made.steps.iter_mut().for_each(|step| step.needs.retain(|need| *need != drain));
    let found = lint(&made, &snapshot);
    assert!(found[0].rule == "unknown" && found[0].text.contains("no API server reported"), "{found:?}");
}

#[test]
fn a_leaving_host_of_another_cluster_is_not_changed() {
    let mut snapshot = created(1, 2);
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(2)) else { panic!("not observed") };
    facts.claim = Some(Claim { uid: "other".into(), ..facts.claim.clone().unwrap() });
    let made = plan(&without_last(1, 1, 1), &snapshot).unwrap();
    assert!(made.steps.iter().all(|step| step.host != address(2)));
    assert!(made.notes.iter().any(|note| note.text.contains("is not changed")), "{:?}", made.notes);
}

#[test]
fn only_necessary_steps_run_on_hosts_that_stay() {
    let mut snapshot = created(3, 2);
    snapshot.hosts.extend(bare_hosts(6).hosts.split_off(&address(5)));
    let made = plan(&intent(3, 3), &snapshot).unwrap();
    let elsewhere = made.steps.iter().filter(|step| step.host != address(5));
    let other_nodes = |step: &&kubeon_plan::Step| !step.id.what().ends_with("-h6");
    let rest = texts(elsewhere.filter(other_nodes).map(|step| &step.id));
    assert_eq!(rest, ["control/declaration"], "a new worker changes no other host");
}

#[test]
fn the_linter_finds_a_host_that_is_reset_before_its_node_is_removed() {
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
fn destroying_resets_leaving_hosts_too() {
    let snapshot = created(1, 2);
    let made = destroy(&without_last(1, 1, 1), &snapshot).unwrap();
    let ids = texts(made.steps.iter().map(|step| &step.id));
    assert_eq!(ids, ["reset/host@h2", "reset/host@h3", "reset/host@h1"]);
}

/// A node that the first master reports.
fn node_of<'a>(snapshot: &'a mut Snapshot, name: &str) -> &'a mut NodeFact {
    nodes(snapshot).as_mut().unwrap().get_mut(name).unwrap()
}

#[test]
fn a_returning_worker_is_only_uncordoned() {
    let mut snapshot = created(1, 2);
    let desired = Intent { returning: vec![address(2)], ..intent(1, 2) };
    assert_eq!(plan(&desired, &snapshot).unwrap().steps, [], "it was not cordoned yet");
    node_of(&mut snapshot, "h3").unschedulable = true;
    assert_eq!(
        plan(&intent(1, 2), &snapshot).unwrap().steps,
        [],
        "a node that a user cordoned is not changed"
    );
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    golden("keep-worker", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn a_worker_whose_node_was_deleted_is_reset_before_it_joins_again() {
    let mut snapshot = created(1, 2);
    nodes(&mut snapshot).as_mut().unwrap().remove("h3");
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else { panic!("not observed") };
    facts.cluster_steps.as_mut().unwrap().retain(|entry| !entry.id.ends_with("-h3"));
    let desired = Intent { returning: vec![address(2)], ..intent(1, 2) };
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(made.continues, "another plan must follow");
    let on_worker = texts(made.steps.iter().filter(|step| step.host == address(2)).map(|step| &step.id));
    assert_eq!(on_worker, ["leave/reset@h3"], "its kubelet would not create the node again");
    assert!(made.steps.iter().all(|step| !matches!(step.op, Op::Taint { .. } | Op::Drain { .. })));
    kubeon_plan::sim::apply(&made, made.steps.len(), &mut snapshot);
    let made = plan(&desired, &snapshot).unwrap();
    let ids = texts(made.steps.iter().map(|step| &step.id));
    assert!(ids.contains(&"join/ready-h3".to_owned()), "then it joins: {ids:?}");
    assert!(!made.continues);
    assert!(made.steps.iter().all(|step| !matches!(step.op, Op::Reset { .. } | Op::Uncordon { .. })));
}
