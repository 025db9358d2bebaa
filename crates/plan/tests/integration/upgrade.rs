//! Golden stories of upgrades. Read the texts in `tests/stories/`.

use kubeon_plan::precheck::precheck;
use kubeon_plan::sim::{artifacts, run_to_completion};
use kubeon_plan::{Intent, Plan, RollingPart, Snapshot, StepId, lint, plan, validate};
use kubeon_wire::{JournalEntry, ResultState};

use crate::support::{created, edit, golden, lose, named, step, texts};

const OLDER: &str = "v1.35.7";
const OLD: &str = "v1.36.3";
const NEW: &str = "v1.37.2";
const SERVES: Option<bool> = Some(true);

fn upgrade(masters: usize, workers: usize, version: &str) -> Intent {
    let intent = named(masters, workers);
    let mut spec = (*intent.spec).clone();
    spec.version = version.parse().unwrap();
    let known = [spec.version];
    Intent { spec: validate(spec, &known).unwrap().0, artifacts: artifacts(version), ..intent }
}

/// A cluster of the old version, as all its masters report it.
fn old(masters: usize, workers: usize) -> Snapshot {
    let mut snapshot = created(masters, workers, &vec![SERVES; masters]);
    for index in 0..masters {
        edit(&mut snapshot, index, |facts| {
            let nodes = facts.cluster.as_mut().unwrap().nodes.as_mut().unwrap();
            nodes.values_mut().for_each(|node| node.kubelet = OLD.to_owned());
        });
    }
    snapshot
}

fn ids(plan: &Plan, text: &str) -> Vec<String> {
    let ids = texts(plan.steps.iter().map(|step| &step.id));
    ids.into_iter().filter(|id| id.contains(text)).collect()
}

#[test]
fn masters_come_first_and_each_node_is_drained_before_it_changes() {
    let mut snapshot = old(3, 2);
    let desired = upgrade(3, 2, NEW);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let drains = ids(&made, "join/drain-");
    assert_eq!(drains.len(), 5, "{drains:?}");
    assert!(texts(&step(&made, "join/kubelet@h4").needs).contains(&"join/drain-h4".to_owned()));
    let second = texts(&step(&made, "join/drain-h5").needs);
    assert!(second.contains(&"join/uncordon-h4".to_owned()) && second.contains(&"verify/node@h4".to_owned()));
    golden("upgrade", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn no_kubelet_changes_its_minor_version_before_an_api_server() {
    let snapshot = old(3, 2);
    let made = plan(&upgrade(3, 2, NEW), &snapshot).unwrap();
    let parts: Vec<_> = made.rolling.iter().map(|group| (group.part, group.hosts.len())).collect();
    let wanted = [(RollingPart::ControlPlane, 3), (RollingPart::Node, 3), (RollingPart::All, 2)];
    assert_eq!(parts, wanted);
    for host in ["h1", "h2", "h3", "h4", "h5"] {
        let needs = texts(&step(&made, &format!("join/kubelet@{host}")).needs);
        for master in ["h1", "h2", "h3"] {
            assert!(needs.contains(&format!("control/apiserver@{master}")), "{host}: {needs:?}");
        }
    }
    let control = texts(&step(&made, "control/apiserver@h2").needs);
    assert!(control.contains(&"verify/control-plane@h1".to_owned()), "{control:?}");
    assert!(!control.iter().any(|need| need.starts_with("join/drain")), "{control:?}");
    let drain = texts(&step(&made, "join/drain-h1").needs);
    assert!(drain.contains(&"verify/control-plane@h3".to_owned()), "{drain:?}");

    let mut early = made.clone();
    let api: StepId = "control/apiserver@h3".parse().unwrap();
    let kubelet = early.steps.iter_mut().find(|step| step.id.to_string() == "join/kubelet@h1").unwrap();
    kubelet.needs.retain(|need| *need != api);
    let findings = lint(&early, &snapshot);
    assert!(findings.iter().any(|finding| finding.rule == "kubelets"), "{findings:?}");

    // A patch changes one whole master after another.
    let patch = plan(&upgrade(3, 2, "v1.36.4"), &snapshot).unwrap();
    assert!(patch.rolling.iter().all(|group| group.part == RollingPart::All));
}

#[test]
fn coredns_changes_when_every_node_has_its_new_image() {
    let snapshot = old(3, 2);
    let mut desired = upgrade(3, 2, NEW);
    desired.artifacts.images.get_mut("coredns").unwrap().name = "registry.k8s.io/coredns:2".to_owned();
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let needs = texts(&step(&made, "network/dns").needs);
    for host in ["h1", "h2", "h3", "h4", "h5"] {
        assert!(needs.contains(&format!("join/image-coredns@{host}")), "{host}: {needs:?}");
    }
}

#[test]
fn a_master_whose_api_server_is_down_is_repaired_before_any_kubelet_changes() {
    let mut snapshot = old(3, 2);
    edit(&mut snapshot, 1, |facts| facts.cluster.as_mut().unwrap().api_ready = false);
    let made = plan(&upgrade(3, 2, NEW), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let needs = texts(&step(&made, "join/kubelet@h2").needs);
    assert!(needs.contains(&"control/apiserver@h3".to_owned()), "{needs:?}");
    let others = texts(&step(&made, "control/apiserver@h1").needs);
    assert!(others.contains(&"verify/control-plane@h2".to_owned()), "{others:?}");
}

#[test]
fn kubelets_wait_for_a_master_that_does_not_answer() {
    let mut snapshot = old(3, 1);
    lose(&mut snapshot, 0);
    let made = plan(&upgrade(3, 1, NEW), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(ids(&made, "join/kubelet@"), [""; 0]);
    assert_eq!(ids(&made, "join/drain"), [""; 0]);
    assert_eq!(ids(&made, "control/apiserver@"), ["control/apiserver@h2", "control/apiserver@h3"]);
    let waiting = texts(made.waiting.iter().map(|step| &step.id));
    for step in ["join/choose-kubelet@h4", "join/kubelet@h2", "join/kubelet@h3", "join/kubelet@h4"] {
        assert!(waiting.contains(&step.to_owned()), "{waiting:?}");
    }
}

#[test]
fn a_patch_and_skip_evict_drain_nothing() {
    let patch = plan(&upgrade(1, 1, "v1.36.4"), &old(1, 1)).unwrap();
    assert_eq!(ids(&patch, "drain"), [""; 0]);
    assert!(!ids(&patch, "join/kubelet@").is_empty(), "the kubelets change");
    let stays = Intent { skip_evict: true, ..upgrade(1, 1, NEW) };
    assert_eq!(ids(&plan(&stays, &old(1, 1)).unwrap(), "drain"), [""; 0]);
    let alone = plan(&upgrade(1, 0, NEW), &old(1, 0)).unwrap();
    assert_eq!(ids(&alone, "drain"), [""; 0], "the pods of the only node have no other");
}

/// What a node of the snapshot records, as all masters report it.
fn record(snapshot: &mut Snapshot, id: &str) {
    edit(snapshot, 0, |facts| {
        let entry = JournalEntry { id: id.to_owned(), digest: "d".to_owned(), state: ResultState::UpToDate };
        facts.cluster_steps.get_or_insert_default().push(entry);
        facts.cluster.as_mut().unwrap().nodes.as_mut().unwrap().get_mut("h2").unwrap().unschedulable = true;
    });
}

#[test]
fn a_node_that_an_interrupted_upgrade_drained_gets_its_pods_back() {
    let mut snapshot = created(1, 1, &[SERVES]);
    record(&mut snapshot, "join/drain-h2");
    let made = plan(&named(1, 1), &snapshot).unwrap();
    assert_eq!(texts(made.steps.iter().map(|step| &step.id)), ["join/uncordon-h2"]);
    assert_eq!(made.steps[0].digest, "d", "it ends that drain, also on the way to another version");
    // The end of that drain is recorded: a user cordoned the node later.
    record(&mut snapshot, "join/uncordon-h2");
    assert!(plan(&named(1, 1), &snapshot).unwrap().steps.is_empty());
}

#[test]
fn a_node_that_a_user_cordoned_stays_cordoned() {
    let mut snapshot = old(1, 1);
    edit(&mut snapshot, 0, |facts| {
        facts.cluster.as_mut().unwrap().nodes.as_mut().unwrap().get_mut("h2").unwrap().unschedulable = true;
    });
    let made = plan(&upgrade(1, 1, NEW), &snapshot).unwrap();
    assert_eq!(ids(&made, "cordon"), ["join/uncordon-h1"]);
    assert!(!step(&made, "join/drain-h2").journal);
}

#[test]
fn the_control_plane_of_a_tried_version_emulates_the_old_one() {
    let mut snapshot = created(3, 2, &[SERVES; 3]);
    let intent = named(3, 2);
    let tried = intent.artifacts.with_control_plane_of(&artifacts(NEW));
    let desired = Intent { trial: NEW.parse().ok(), artifacts: tried, ..intent };
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let api = step(&made, "control/apiserver@h2");
    assert!(api.title.contains("v1.37.2 as v1.36"), "{}", api.title);
    assert!(texts(&api.needs).contains(&"control/apiserver@h1".to_owned()), "{:?}", api.needs);
    assert_eq!(ids(&made, "drain"), [""; 0]);
    assert_eq!(ids(&made, "etcd/"), [""; 0], "etcd keeps its version");
    golden("trial", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn the_disk_has_space_for_every_version_before_one_is_tried() {
    let mut snapshot = old(1, 1);
    let desired = |later: &[&str]| {
        let intent = named(1, 1);
        let tried = intent.artifacts.with_control_plane_of(&artifacts(NEW));
        let later_artifacts = later.iter().map(|version| artifacts(version)).collect();
        Intent { trial: NEW.parse().ok(), artifacts: tried, later_artifacts, ..intent }
    };
    let needed = |later: &[&str]| -> Vec<String> {
        let report = precheck(&desired(later), &snapshot);
        let disks = report.hosts.iter().flat_map(|host| &host.checks).filter(|result| result.check == "disk");
        disks.map(|result| result.wanted.clone()).collect()
    };
    // A part has 40 MiB. Of each version, a master lacks 13 parts and a worker 9; 1024 MiB stay free.
    assert_eq!(needed(&[]), ["1144 MiB", "1024 MiB"], "the programs that are tried");
    assert_eq!(needed(&[NEW]), ["1544 MiB", "1384 MiB"], "no part counts twice");
    assert_eq!(needed(&[NEW, "v1.38.0"]), ["2064 MiB", "1744 MiB"]);

    edit(&mut snapshot, 0, |facts| facts.disk_free_bytes = 1_500 << 20);
    let error = plan(&desired(&[NEW]), &snapshot).unwrap_err();
    assert_eq!(error.refusals()[0].reason, "has 1500 MiB free for /var/lib/kubeon, 1544 MiB needed");
}

/// The cluster of the old version with programs of an older one on its nodes.
fn nodes_at(masters: usize, workers: usize, version: &str) -> Intent {
    let intent = named(masters, workers);
    let artifacts = intent.artifacts.with_nodes_of(&artifacts(version));
    Intent { nodes_at: version.parse().ok(), artifacts, ..intent }
}

#[test]
fn nodes_alone_go_back_and_come_forward_again() {
    let mut snapshot = old(3, 2);
    let desired = nodes_at(3, 2, OLDER);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(
        (made.version.to_string(), made.node_version().to_string()),
        (OLD.to_owned(), OLDER.to_owned())
    );
    assert_eq!(ids(&made, "etcd/"), [""; 0], "etcd stays");
    assert_eq!(ids(&made, "control/"), ["control/declaration"], "the control plane stays");
    assert_eq!(ids(&made, "join/drain-").len(), 5);
    let parts: Vec<_> = made.rolling.iter().map(|group| (group.part, group.hosts.len())).collect();
    assert_eq!(parts, [(RollingPart::Node, 3), (RollingPart::All, 2)]);
    let proof = serde_json::to_value(&step(&made, "verify/node@h4").op).unwrap().to_string();
    assert!(proof.contains(OLDER), "{proof}");
    golden("nodes-back", &run_to_completion(&desired, &mut snapshot, 3));
    let forward = plan(&named(3, 2), &snapshot).unwrap();
    assert_eq!(lint(&forward, &snapshot), []);
    assert_eq!(ids(&forward, "control/"), ["control/declaration"]);
    golden("nodes-forward", &run_to_completion(&named(3, 2), &mut snapshot, 3));
}

#[test]
fn nodes_go_back_while_a_master_does_not_answer() {
    let mut snapshot = old(3, 1);
    lose(&mut snapshot, 0);
    let made = plan(&nodes_at(3, 1, OLDER), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(made.waiting, []);
    assert_eq!(ids(&made, "join/kubelet@"), ["join/kubelet@h2", "join/kubelet@h3", "join/kubelet@h4"]);
}

#[test]
fn an_upgrade_of_a_cluster_with_older_nodes_tries_the_control_plane_alone() {
    let mut snapshot = old(3, 2);
    run_to_completion(&nodes_at(3, 2, OLDER), &mut snapshot, 3);
    let behind = nodes_at(3, 2, OLDER);
    let tried = behind.artifacts.with_control_plane_of(&artifacts(NEW));
    let trial = Intent { trial: NEW.parse().ok(), artifacts: tried, ..behind };
    let made = plan(&trial, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(ids(&made, "join/"), [""; 0], "no node changes");
    assert!(!ids(&made, "control/apiserver@").is_empty());
    run_to_completion(&trial, &mut snapshot, 3);
    let taken = plan(&upgrade(3, 2, NEW), &snapshot).unwrap();
    assert_eq!(lint(&taken, &snapshot), []);
    assert_eq!(ids(&taken, "join/kubelet@").len(), 5, "the nodes come with the cluster");
}

#[test]
fn a_state_without_recorded_programs_does_not_take_older_nodes_for_another_build() {
    let snapshot = old(1, 1);
    let made = plan(&nodes_at(1, 1, OLDER), &snapshot).unwrap();
    assert!(!made.notes.iter().any(|note| note.text.contains("another build")), "{:?}", made.notes);
}
