//! Golden stories of changes that restart services of nodes that work. Read the texts in `tests/stories/`.

use crate::support::{address, bare_hosts, created, edit, golden, lose, named, step, texts, with_settings};
use kubeon_plan::sim::{apply, describe, run_to_completion};
use kubeon_plan::{Intent, MaxUnavailable, Plan, Snapshot, StageName, StepId, lint, plan};
use kubeon_wire::{Facts, NodeFact};

const HEALTHY: [Option<bool>; 3] = [Some(true), Some(true), Some(true)];

/// The intent with another setting of every kubelet.
fn more_pods(masters: usize, workers: usize, max_unavailable: &str) -> Intent {
    let max_unavailable: MaxUnavailable = max_unavailable.parse().unwrap();
    let intent = with_settings(named(masters, workers), |settings| settings.max_pods = 100);
    Intent { max_unavailable, ..intent }
}

fn id(text: &str) -> StepId {
    text.parse().unwrap()
}

/// The names of the hosts of each group.
fn order(made: &Plan) -> Vec<(String, usize)> {
    let names =
        |hosts: &[_]| hosts.iter().map(|host| made.hosts[host].name.as_str()).collect::<Vec<_>>().join(" ");
    made.rolling.iter().map(|group| (names(&group.hosts), group.at_once)).collect()
}

/// The proofs for which the kubelet of a host waits.
fn waits_for(made: &Plan, host: &str) -> Vec<String> {
    let needs = &step(made, &format!("join/kubelet@{host}")).needs;
    texts(needs.iter().filter(|need| (need.stage(), need.what()) == (StageName::new("verify"), "node")))
}

fn not_ready(snapshot: &mut Snapshot, masters: usize, node: &str) {
    let report = NodeFact { reason: "container runtime is down".into(), ..NodeFact::default() };
    for index in 0..masters {
        edit(snapshot, index, |facts: &mut Facts| {
            let nodes = facts.cluster.as_mut().unwrap().nodes.as_mut().unwrap();
            nodes.insert(node.to_owned(), report.clone());
        });
    }
}

#[test]
fn a_setting_of_every_kubelet_goes_from_node_to_node() {
    let (intent, mut snapshot) = (more_pods(3, 3, "1"), created(3, 3, &HEALTHY));
    let made = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(order(&made), [("h1 h2 h3".to_owned(), 1), ("h4 h5 h6".to_owned(), 1)]);
    let config = step(&made, "join/kubelet-config@h6");
    assert_eq!(config.needs, [], "a file that is only written waits for nothing");
    golden("rolling-setting", &run_to_completion(&intent, &mut snapshot, 3));
}

#[test]
fn half_of_the_workers_may_restart_at_the_same_time() {
    let (intent, mut snapshot) = (more_pods(3, 4, "50%"), created(3, 4, &HEALTHY));
    let made = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(order(&made), [("h1 h2 h3".to_owned(), 1), ("h4 h5 h6 h7".to_owned(), 2)]);
    assert_eq!(waits_for(&made, "h5"), ["verify/node@h3"]);
    assert_eq!(waits_for(&made, "h6"), ["verify/node@h4"]);
    golden("rolling-setting-half", &run_to_completion(&intent, &mut snapshot, 3));
}

#[test]
fn a_new_worker_joins_while_others_wait() {
    let (intent, mut snapshot) = (more_pods(1, 2, "1"), created(1, 1, &[Some(true)]));
    snapshot.hosts.extend(bare_hosts(3).hosts.split_off(&address(2)));
    let made = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(order(&made), [("h1".to_owned(), 1), ("h2".to_owned(), 1)]);
    assert_eq!(waits_for(&made, "h3"), Vec::<String>::new());
}

#[test]
fn a_node_that_an_interrupted_run_restarted_proves_that_it_works_first() {
    let (intent, mut snapshot) = (more_pods(1, 2, "1"), created(1, 2, &[Some(true)]));
    let made = plan(&intent, &snapshot).unwrap();
    let restarted = made.steps.iter().position(|step| step.id == id("join/kubelet@h2")).unwrap();
    apply(&made, restarted + 1, &mut snapshot);
    let rest = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&rest, &snapshot), []);
    assert_eq!(order(&rest), [("h3".to_owned(), 1)]);
    assert_eq!(waits_for(&rest, "h3"), ["verify/node@h1", "verify/node@h2"]);
    let proof = step(&rest, "verify/node@h2");
    assert!(proof.needs.contains(&id("join/ready-h2")), "{:?}", proof.needs);
}

#[test]
fn a_worker_that_does_not_answer_counts_and_blocks_nobody() {
    let mut snapshot = created(1, 4, &[Some(true)]);
    lose(&mut snapshot, 4);
    for (max_unavailable, at_once) in [("1", 1), ("2", 1), ("3", 2)] {
        let made = plan(&more_pods(1, 4, max_unavailable), &snapshot).unwrap();
        assert_eq!(lint(&made, &snapshot), []);
        assert_eq!(order(&made)[1], ("h2 h3 h4".to_owned(), at_once), "{max_unavailable}");
    }
}

#[test]
fn a_node_that_is_not_ready_is_repaired_before_another_is_interrupted() {
    let mut snapshot = created(1, 3, &[Some(true)]);
    not_ready(&mut snapshot, 1, "h3");
    let made = plan(&more_pods(1, 3, "1"), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(order(&made)[1], ("h2 h4".to_owned(), 1));
    assert_eq!(waits_for(&made, "h3"), Vec::<String>::new(), "it has nothing to lose");
    assert_eq!(waits_for(&made, "h2"), ["verify/node@h1", "verify/node@h3"]);
}

#[test]
fn a_worker_that_stays_broken_takes_one_place() {
    let mut snapshot = created(1, 3, &[Some(true)]);
    run_to_completion(&more_pods(1, 3, "1"), &mut snapshot, 1);
    not_ready(&mut snapshot, 1, "h3");
    edit(&mut snapshot, 1, |facts| facts.journal.retain(|entry| entry.id != "join/kubelet-config@h2"));
    let of = |max_unavailable| plan(&more_pods(1, 3, max_unavailable), &snapshot).unwrap();
    assert_eq!(waits_for(&of("1"), "h2"), ["verify/node@h1", "verify/node@h3", "verify/node@h4"]);
    assert_eq!(waits_for(&of("2"), "h2"), ["verify/node@h1", "verify/node@h4"]);
}

/// The user accepts another build of the bundle.
fn accepted() -> std::collections::BTreeSet<String> {
    [kubeon_plan::precheck::BUNDLE_CHECK.to_owned()].into()
}

#[test]
fn another_build_goes_from_node_to_node() {
    let snapshot = created(3, 2, &HEALTHY);
    let intent = named(3, 2);
    let artifacts = kubeon_plan::sim::artifacts("v1.36.3+1");
    let other_build = Intent { artifacts, ignore: accepted(), ..intent };
    let made = plan(&other_build, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(order(&made), [("h1 h2 h3".to_owned(), 1), ("h4 h5".to_owned(), 1)]);
    golden("rolling-build", &describe(&made));
}

#[test]
fn the_first_master_is_down_and_a_later_one_executes_cluster_wide_steps() {
    let mut snapshot = created(3, 1, &HEALTHY);
    edit(&mut snapshot, 0, |facts| facts.cluster.as_mut().unwrap().api_ready = false);
    let intent = named(3, 1);
    let artifacts = kubeon_plan::sim::artifacts("v1.36.3+1");
    let other_build = Intent { artifacts, ignore: accepted(), ..intent };
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| facts.cluster_steps.iter_mut().for_each(Vec::clear));
    }
    let made = plan(&other_build, &snapshot).unwrap();
    assert_eq!(step(&made, "control/rights").host, address(1));
    assert_eq!(lint(&made, &snapshot), []);
}

#[test]
fn the_linter_finds_nodes_that_could_be_interrupted_at_the_same_time() {
    let snapshot = created(3, 2, &HEALTHY);
    let made = plan(&more_pods(3, 2, "1"), &snapshot).unwrap();
    let rules =
        |plan: &Plan| lint(plan, &snapshot).into_iter().map(|finding| finding.rule).collect::<Vec<_>>();
    assert_eq!(rules(&made), Vec::<String>::new());
    let proof = id("verify/node@h3");
    let mut early = made.clone();
    early.steps.iter_mut().for_each(|step| step.needs.retain(|need| *need != proof));
    assert_eq!(rules(&early), ["rolling"]);
    let mut unproven = made.clone();
    let step = unproven.steps.iter_mut().find(|step| step.id == proof).unwrap();
    step.needs.clear();
    assert_eq!(rules(&unproven), ["rolling"]);
    let without_order = Plan { rolling: Vec::new(), ..made };
    assert_eq!(rules(&without_order), ["rolling"; 5]);
}
