//! A cluster out of a snapshot.

use kubeon_plan::sim::{apply, describe, refused};
use kubeon_plan::{Intent, PartInfo, SnapshotRestore, lint, plan};
use kubeon_wire::{ClusterFacts, NodeFact, Op};

use crate::support::{bare_hosts, created, edit, golden, named, step, texts};

fn restored(masters: usize, workers: usize) -> Intent {
    restored_by("", masters, workers)
}

fn restored_by(attempt: &str, masters: usize, workers: usize) -> Intent {
    let digest = "d".repeat(64).parse().unwrap();
    let snapshot = PartInfo { digest, size: 1 << 10, unpacked_size: 1 << 20, version: "of etcd".to_owned() };
    let restore = SnapshotRestore { attempt: attempt.to_owned(), snapshot };
    Intent { restore: Some(restore), ..named(masters, workers) }
}

#[test]
fn every_member_begins_with_the_snapshot_and_lost_nodes_are_removed() {
    let mut snapshot = bare_hosts(3);
    let desired = restored(2, 1);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(made.continues, "the nodes of the cluster before are not known yet");
    assert!(!made.steps.iter().any(|step| step.id.what() == "dns" && step.stage.as_str() == "verify"));
    for host in ["h1", "h2"] {
        let restore = step(&made, &format!("etcd/restore@{host}"));
        assert!(texts(&restore.needs).contains(&format!("artifacts/etcd-snapshot@{host}")));
        let member = step(&made, &format!("etcd/member@{host}"));
        assert!(texts(&member.needs).contains(&format!("etcd/restore@{host}")));
        let Op::RestoreMember { members, .. } = &restore.op else { panic!("{:?}", restore.op) };
        assert_eq!(members.len(), 2);
    }
    apply(&made, made.steps.len(), &mut snapshot);
    let ready = || NodeFact { ready: true, ..NodeFact::default() };
    let nodes = ["h1", "h2", "h3", "old"].map(|name| (name.to_owned(), ready())).into();
    let report = ClusterFacts { api_ready: true, nodes: Some(nodes), ..ClusterFacts::default() };
    edit(&mut snapshot, 0, |facts| facts.cluster = Some(report));
    let next = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&next, &snapshot), []);
    let ids = texts(next.steps.iter().map(|step| &step.id));
    let dns = ["verify/dns", "verify/resolve@h1", "verify/resolve@h2", "verify/resolve@h3"];
    assert_eq!(ids, [&dns[..], &["leave/lost-old", "leave/remove-old"]].concat());
    assert!(!next.continues);
    golden("restore", &(describe(&made) + &describe(&next)));
}

/// A restore that was killed when every member had its data, and before they started.
#[test]
fn another_plan_follows_until_every_member_started() {
    let mut snapshot = bare_hosts(3);
    let desired = restored(2, 1);
    let made = plan(&desired, &snapshot).unwrap();
    let last = made.steps.iter().rposition(|step| matches!(step.op, Op::RestoreMember { .. })).unwrap();
    apply(&made, last + 1, &mut snapshot);
    let next = plan(&desired, &snapshot).unwrap();
    assert!(!next.steps.iter().any(|step| matches!(step.op, Op::RestoreMember { .. })));
    assert!(!next.steps.iter().any(|step| step.id.what() == "resolve"), "the old nodes are not known yet");
    assert!(next.continues, "the plan after it removes them and checks that names are resolved");
    apply(&next, next.steps.len(), &mut snapshot);
    assert!(plan(&desired, &snapshot).unwrap().steps.iter().any(|step| step.id.what() == "resolve"));
}

#[test]
fn data_of_a_cluster_is_not_replaced() {
    let snapshot = created(1, 0, &[Some(true)]);
    let text = refused(&plan(&restored(1, 0), &snapshot).unwrap_err());
    assert!(text.contains("still has the data of demo: destroy that cluster first"), "{text}");
}

/// A restore continues after it was killed. Another one, also of the same snapshot, would not replace what the members hold.
#[test]
fn a_restored_cluster_is_not_restored_again_in_silence() {
    let mut snapshot = bare_hosts(1);
    let first = restored_by("0a1b2c3d", 1, 0);
    let made = plan(&first, &snapshot).unwrap();
    apply(&made, made.steps.len(), &mut snapshot);
    assert!(plan(&first, &snapshot).is_ok());
    let text = refused(&plan(&restored_by("4e5f6a7b", 1, 0), &snapshot).unwrap_err());
    assert!(text.contains("still has the data of demo: destroy that cluster first"), "{text}");
}
