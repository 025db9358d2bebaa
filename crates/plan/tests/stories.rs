//! Golden stories: what each operation does, in which order, and why. Read the texts in `tests/stories/`.
//! `UPDATE_GOLDEN=1 cargo test -p kubeon-plan` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod support;

use kubeon_plan::sim::{apply, bare, describe, refused, story};
use kubeon_plan::{Seen, Snapshot, destroy, lint, plan};
use kubeon_wire::{Claim, ClusterFacts, NodeFact, Standing};
use support::{NOW, address, bare_hosts, golden, intent};

const YEAR: i64 = 365 * 86_400;

/// Three members that all answer, under an API server whose nodes are not looked at here.
fn healthy_etcd() -> ClusterFacts {
    let members = ["h1", "h2", "h3"].map(|name| (name.to_owned(), true));
    let node = NodeFact { ready: true, ..NodeFact::default() };
    let nodes = members.clone().map(|(name, _)| (name, node.clone()));
    ClusterFacts {
        api_ready: true,
        etcd_members: members.into(),
        nodes: nodes.into(),
        ..ClusterFacts::default()
    }
}

fn edit(snapshot: &mut Snapshot, index: usize, change: impl FnOnce(&mut kubeon_wire::Facts)) {
    let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else { panic!("not seen") };
    change(facts);
}

#[test]
fn one_master() {
    golden("one-master", &story(&intent(1, 0), &mut bare_hosts(1), 3));
}

#[test]
fn one_master_two_workers() {
    golden("one-master-two-workers", &story(&intent(1, 2), &mut bare_hosts(3), 3));
}

#[test]
fn three_masters_two_workers() {
    golden("three-masters-two-workers", &story(&intent(3, 2), &mut bare_hosts(5), 3));
}

#[test]
fn a_rerun_has_nothing_to_do() {
    let (intent, mut snapshot) = (intent(3, 2), bare_hosts(5));
    story(&intent, &mut snapshot, 1);
    let again = plan(&intent, &snapshot).unwrap();
    assert_eq!((again.steps.len(), again.generation), (0, 1));
    golden("rerun", &describe(&again));
}

#[test]
fn a_run_that_died_half_way_continues() {
    let (intent, mut snapshot) = (intent(1, 2), bare_hosts(3));
    let first = plan(&intent, &snapshot).unwrap();
    let half = first.steps.len() / 2;
    apply(&first, half, &mut snapshot);
    let rest = plan(&intent, &snapshot).unwrap();
    let remembered = |step: &&kubeon_plan::Step| step.journal;
    let ids = |steps: &[kubeon_plan::Step]| {
        steps.iter().filter(remembered).map(|step| step.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&rest.steps), ids(&first.steps[half..]));
    golden("died-half-way", &describe(&rest));
}

#[test]
fn a_host_that_is_unreachable_is_named() {
    let mut snapshot = bare_hosts(3);
    snapshot.hosts.insert(address(2), Seen::Unknown { why: "no route to host".into(), denied: false });
    let mut wish = intent(1, 2);
    let mut log = refused(&plan(&wish, &snapshot).unwrap_err());
    wish.without.push(address(2));
    let without = plan(&wish, &snapshot).unwrap();
    assert!(without.steps.iter().all(|step| step.host != address(2)));
    log.push_str(&describe(&without).lines().take(2).collect::<Vec<_>>().join("\n"));
    golden("unreachable", &log);
}

#[test]
fn a_master_cannot_be_left_out() {
    let mut snapshot = bare_hosts(2);
    snapshot.hosts.insert(address(0), Seen::Unknown { why: "no route to host".into(), denied: false });
    let mut wish = intent(1, 1);
    wish.without.push(address(0));
    let error = plan(&wish, &snapshot).unwrap_err();
    assert!(error.refusals[0].reason.contains("a master cannot be left out"), "{error:?}");
}

#[test]
fn hosts_that_cannot_take_part_are_refused_with_every_reason() {
    let mut snapshot = bare_hosts(6);
    edit(&mut snapshot, 0, |facts| {
        facts.claim = Some(Claim {
            cluster: "other".parse().unwrap(),
            uid: "x".into(),
            generation: 4,
            version: "v1.36.3".parse().unwrap(),
            role: "master".into(),
        });
    });
    edit(&mut snapshot, 1, |facts| facts.foreign = vec!["/etc/kubernetes/admin.conf".into()]);
    edit(&mut snapshot, 2, |facts| facts.system = "FreeBSD".into());
    edit(&mut snapshot, 3, |facts| {
        facts.architecture = "aarch64".into();
        facts.disk_free_bytes = 100 << 20;
    });
    edit(&mut snapshot, 4, |facts| facts.clock_offset_seconds = -3600);
    edit(&mut snapshot, 5, |facts| {
        facts.hostname = "h5".into();
        facts.busy_ports = vec![6443, 10250];
    });
    golden("refused-hosts", &refused(&plan(&intent(3, 3), &snapshot).unwrap_err()));
}

#[test]
fn certificates_are_renewed_past_two_thirds_of_their_life() {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    story(&intent, &mut snapshot, 1);
    snapshot.taken_at = NOW + YEAR / 3 * 2 - 86_400;
    assert!(plan(&intent, &snapshot).unwrap().steps.is_empty());
    snapshot.taken_at += 2 * 86_400;
    golden("renewal", &story(&intent, &mut snapshot, 3));
}

#[test]
fn members_of_etcd_that_exist_change_one_after_the_other() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            facts.cluster = Some(healthy_etcd());
            let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/choose")).unwrap();
            entry.standing = Standing::Drifted("/var/lib/kubeon/current/etcd points elsewhere".into());
        });
    }
    let repair = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&repair, &snapshot), []);
    golden("etcd-one-by-one", &describe(&repair));
}

#[test]
fn a_quorum_that_is_lost_already_is_mended_side_by_side() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/member")).unwrap();
            entry.standing = Standing::Drifted("etcd.service is not running".into());
        });
    }
    let repair = plan(&intent, &snapshot).unwrap();
    let members = repair.steps.iter().filter(|step| step.id.starts_with("etcd/member"));
    assert_eq!(members.map(|step| step.needs.len()).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(lint(&repair, &snapshot), []);
}

#[test]
fn the_linter_sees_two_members_changed_at_once() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            facts.cluster = Some(healthy_etcd());
            facts.journal.iter_mut().for_each(|entry| entry.standing = Standing::Drifted("gone".into()));
        });
    }
    let mut repair = plan(&intent, &snapshot).unwrap();
    for step in &mut repair.steps {
        step.needs.retain(|need| !need.starts_with("etcd/member"));
    }
    assert!(lint(&repair, &snapshot).iter().any(|finding| finding.rule == "quorum"));
}

#[test]
fn every_story_passes_the_linter() {
    for (masters, workers) in [(1, 0), (1, 2), (3, 2), (5, 10)] {
        let snapshot = bare_hosts(masters + workers);
        let plan = plan(&intent(masters, workers), &snapshot).unwrap();
        assert_eq!(lint(&plan, &snapshot), [], "{masters} + {workers}");
    }
}

#[test]
fn destroys_workers_before_masters_and_leaves_bare_hosts_alone() {
    let (intent, mut snapshot) = (intent(1, 2), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    snapshot.hosts.insert(address(2), Seen::Fresh(bare("h3")));
    let plan = destroy(&intent, &snapshot).unwrap();
    assert_eq!(lint(&plan, &snapshot), []);
    golden("destroy", &describe(&plan));
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let (intent, snapshot) = (intent(3, 2), bare_hosts(5));
    assert_eq!(plan(&intent, &snapshot).unwrap(), plan(&intent, &snapshot).unwrap());
}
