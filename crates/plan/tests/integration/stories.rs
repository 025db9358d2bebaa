//! Golden stories: what each operation does, in which order, and why. Read the texts in `tests/stories/`.
//! `UPDATE_GOLDEN=1 cargo test -p kubeon-plan` writes them again.

use std::collections::BTreeMap;

use crate::support::{NOW, address, bare_hosts, behind_load_balancer, golden, intent};
use kubeon_plan::sim::{apply, bare, describe, refused, story};
use kubeon_plan::{Intent, Remedy, Seen, Snapshot, destroy, lint, plan};
use kubeon_wire::{Claim, ClusterFacts, EtcdFact, NodeFact, ResultState};

const YEAR: i64 = 365 * 86_400;

/// Three members that all answer, under an API server whose nodes are not looked at here.
fn healthy_etcd() -> ClusterFacts {
    let members = ["h1", "h2", "h3"].map(|name| (name.to_owned(), Some(true)));
    let node = NodeFact { ready: true, ..NodeFact::default() };
    let nodes = members.clone().map(|(name, _)| (name, node.clone()));
    ClusterFacts {
        api_ready: true,
        etcd: EtcdFact::Members(members.into()),
        nodes: Some(nodes.into()),
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
fn a_host_without_nft_gets_the_bundles() {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    edit(&mut snapshot, 1, |facts| facts.programs = [("nft".to_owned(), false)].into());
    let made = plan(&intent, &snapshot).unwrap();
    let on = |name: &str| {
        made.steps
            .iter()
            .filter(|step| step.id.contains("tools"))
            .filter(|step| step.id.ends_with(name))
            .count()
    };
    assert_eq!((on("@h1"), on("@h2")), (0, 3), "who has it keeps his own");
    golden("without-nft", &story(&intent, &mut snapshot, 3));
}

#[test]
fn a_load_balancer_that_is_not_managed_is_looked_at_from_every_worker() {
    let (wish, mut snapshot) = (behind_load_balancer(3, 2), bare_hosts(5));
    let made = plan(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let kubelet = made.steps.iter().find(|step| step.id == "join/kubelet@h4").unwrap();
    assert!(kubelet.needs.contains(&"join/load-balancer@h4".parse().unwrap()), "{:?}", kubelet.needs);
    assert!(made.steps.iter().all(|step| !step.id.starts_with("join/haproxy")));
    golden("external-load-balancer", &story(&wish, &mut snapshot, 3));
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
    wish.skip_hosts.push(address(2));
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
    wish.skip_hosts.push(address(0));
    let error = plan(&wish, &snapshot).unwrap_err();
    assert!(error.refusals()[0].reason.contains("a master cannot be left out"), "{error:?}");
}

#[test]
fn hosts_that_cannot_take_part_are_refused_with_every_reason() {
    let mut snapshot = bare_hosts(6);
    edit(&mut snapshot, 0, |facts| {
        facts.claim = Some(claim("other"));
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
fn a_kubelet_that_never_asked_in_its_hour_gets_a_new_certificate_to_ask_with() {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    let first = plan(&intent, &snapshot).unwrap();
    let keys = first.steps.iter().position(|step| step.id == "join/keys@h2").unwrap();
    apply(&first, keys + 1, &mut snapshot);
    let renewed = |snapshot: &Snapshot| {
        let steps = plan(&intent, snapshot).unwrap().steps;
        steps.into_iter().find(|step| step.id == "join/keys@h2").map(|step| step.why)
    };
    snapshot.taken_at = NOW + 39 * 60;
    assert_eq!(renewed(&snapshot), None);
    snapshot.taken_at = NOW + 41 * 60;
    let bootstrap = "/var/lib/kubelet/bootstrap/client.crt is past two thirds of its life";
    assert_eq!(renewed(&snapshot), Some(format!("{bootstrap} (19 min left)")));
    snapshot.taken_at = NOW + 2 * 3600;
    assert_eq!(renewed(&snapshot), Some(format!("{bootstrap} (expired)")));
    story(&intent, &mut snapshot, 1);
    // From then on the kubelet has one of its own, and the hour means nothing.
    snapshot.taken_at += 30 * 86_400;
    assert_eq!(renewed(&snapshot), None);
    snapshot.taken_at += YEAR;
    edit(&mut snapshot, 1, |facts| facts.certificates.clear());
    assert_eq!(renewed(&snapshot), Some(format!("{bootstrap} (expired)")), "its own expired: it asks again");
}

#[test]
fn members_of_etcd_that_exist_change_one_after_the_other() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            facts.cluster = Some(healthy_etcd());
            let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/choose")).unwrap();
            entry.state = ResultState::Drifted("/var/lib/kubeon/current/etcd points elsewhere".into());
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
    stop_etcd(&mut snapshot, &EtcdFact::Down);
    let repair = plan(&intent, &snapshot).unwrap();
    let members = repair.steps.iter().filter(|step| step.id.starts_with("etcd/member"));
    assert_eq!(members.map(|step| step.needs.len()).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(lint(&repair, &snapshot), []);
}

/// No member's service is as it should be, and this is what each says.
fn stop_etcd(snapshot: &mut Snapshot, says: &EtcdFact) {
    for index in 0..3 {
        edit(snapshot, index, |facts| {
            facts.cluster = Some(ClusterFacts { etcd: says.clone(), ..ClusterFacts::default() });
            let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/member")).unwrap();
            entry.state = ResultState::Drifted("etcd.service is not running".into());
        });
    }
}

#[test]
fn members_that_did_not_tell_how_they_are_change_one_after_the_other() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    stop_etcd(&mut snapshot, &EtcdFact::Untold);
    let mut repair = plan(&intent, &snapshot).unwrap();
    let members = repair.steps.iter().filter(|step| step.id.starts_with("etcd/member"));
    let needs: Vec<_> = members
        .map(|step| step.needs.iter().map(|need| need.as_str()).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(needs, ["", "etcd/member@h1", "etcd/member@h1 etcd/member@h2"]);
    assert_eq!(lint(&repair, &snapshot), []);
    // One that stands between two that do not is no way around the rule.
    let mut between = snapshot.clone();
    edit(&mut between, 1, |facts| {
        facts.journal.iter_mut().for_each(|entry| entry.state = ResultState::UpToDate)
    });
    assert_eq!(lint(&plan(&intent, &between).unwrap(), &between), []);
    repair.steps.iter_mut().for_each(|step| step.needs.clear());
    let found: Vec<_> = lint(&repair, &snapshot).into_iter().map(|finding| finding.rule).collect();
    assert_eq!(found, ["quorum", "quorum"], "unknown is not lost");
}

#[test]
fn what_a_look_could_not_tell_is_said() {
    let (intent, mut snapshot) = (intent(1, 2), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    for index in 1..3 {
        edit(&mut snapshot, index, |facts| facts.unchecked = vec!["did not list its images".into()]);
    }
    edit(&mut snapshot, 0, |facts| {
        facts.unchecked = vec!["hangs".into()];
        facts.cluster = Some(ClusterFacts { api_ready: true, ..ClusterFacts::default() });
    });
    let again = plan(&intent, &snapshot).unwrap();
    assert!(again.steps.is_empty(), "nothing is done because of it: {:?}", again.steps[0].id);
    let notes: Vec<_> = again.notes.iter().map(|note| (note.host, note.text.as_str())).collect();
    assert_eq!(
        notes[..2],
        [(None, "172.30.0.12 and 1 more: did not list its images"), (Some(address(0)), "hangs"),]
    );
    assert!(notes[2].1.contains("did not list the nodes in time"), "{notes:?}");
    edit(&mut snapshot, 0, |facts| {
        facts.cluster = Some(ClusterFacts { nodes: Some(BTreeMap::new()), ..healthy_etcd() })
    });
    let missed = plan(&intent, &snapshot).unwrap();
    assert_eq!(missed.steps[0].why, "the cluster does not know the node", "an empty list is told");
}

#[test]
fn the_linter_sees_two_members_changed_at_once() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    story(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            facts.cluster = Some(healthy_etcd());
            facts.journal.iter_mut().for_each(|entry| entry.state = ResultState::Drifted("gone".into()));
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
fn destroys_without_a_master_that_is_dead() {
    let (mut wish, mut snapshot) = (intent(3, 1), bare_hosts(4));
    story(&wish, &mut snapshot, 1);
    snapshot.hosts.insert(address(2), Seen::Unknown { why: "no route to host".into(), denied: false });
    let mut log = refused(&destroy(&wish, &snapshot).unwrap_err());
    wish.skip_hosts = vec![address(2)];
    let made = destroy(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(!made.hosts.contains_key(&address(2)));
    log.push_str(&describe(&made));
    golden("destroy-without-master", &log);
}

#[test]
fn a_host_that_is_left_out_of_a_destroy_is_left_alone_although_it_answers() {
    let (mut wish, mut snapshot) = (intent(1, 2), bare_hosts(3));
    story(&wish, &mut snapshot, 1);
    wish.generation = 1;
    wish.skip_hosts = vec![address(1)];
    // By now it is somebody else's, which is of no concern where it is left out.
    edit(&mut snapshot, 1, |facts| facts.claim.as_mut().unwrap().uid = "other".into());
    let made = destroy(&wish, &snapshot).unwrap();
    assert_eq!(
        made.steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(),
        ["reset/host@h3", "reset/host@h1"]
    );
    let all = Intent { skip_hosts: (0..3).map(address).collect(), ..wish };
    let none = destroy(&all, &Snapshot { taken_at: NOW, ..Snapshot::default() }).unwrap();
    assert!(none.steps.is_empty() && none.hosts.is_empty());
    assert_eq!(none.notes.len(), 3);
    assert!(
        none.notes[0].text.contains("etcd's data") && none.notes[2].text.contains("reset --cluster demo"),
        "{none:?}"
    );
}

/// As when two clusters were declared on it at the same moment, and the other one was there first.
#[test]
fn a_host_that_carries_another_cluster_is_left_alone_by_a_destroy() {
    let (mut wish, mut snapshot) = (intent(1, 2), bare_hosts(3));
    story(&wish, &mut snapshot, 1);
    wish.generation = 1;
    edit(&mut snapshot, 0, |facts| facts.claim = Some(claim("other")));
    edit(&mut snapshot, 1, |facts| (facts.claim, facts.foreign) = (None, vec!["/etc/kubeedge".into()]));
    let made = destroy(&wish, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(made.steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(), ["reset/host@h3"]);
    assert_eq!(made.hosts.keys().collect::<Vec<_>>(), [&address(2)], "no other is told to be clean");
    let notes: Vec<_> = made.notes.iter().map(|note| (note.host.unwrap(), note.text.as_str())).collect();
    let other = "belongs to cluster other (identity x) and is left alone";
    let kubeedge = "has nothing of demo, but another cluster (found /etc/kubeedge), and is left alone";
    assert_eq!(notes, [(address(0), other), (address(1), kubeedge)]);
}

#[test]
fn what_was_only_written_down_is_forgotten_whatever_its_hosts_are() {
    let (wish, mut snapshot) = (intent(1, 2), bare_hosts(3));
    snapshot.hosts.insert(address(0), Seen::Unknown { why: "no route to host".into(), denied: false });
    edit(&mut snapshot, 1, |facts| facts.claim = Some(claim("other")));
    let made = destroy(&wish, &snapshot).unwrap();
    assert!(made.steps.is_empty());
    assert!(
        made.notes.iter().any(|note| note.text.contains("no host was ever written to")),
        "{:?}",
        made.notes
    );
    // Once a host carries it, each of them has to be looked at.
    edit(&mut snapshot, 1, |facts| facts.claim.as_mut().unwrap().uid = "uid-1".into());
    edit(&mut snapshot, 1, |facts| facts.claim.as_mut().unwrap().cluster = "demo".parse().unwrap());
    let refused = destroy(&wish, &snapshot).unwrap_err().refusals()[0].clone();
    assert_eq!(refused.remedy, Some(Remedy::SkipHost("172.30.0.11".parse().unwrap())));
}

fn claim(cluster: &str) -> Claim {
    let (cluster, version) = (cluster.parse().unwrap(), "v1.36.3".parse().unwrap());
    Claim { cluster, uid: "x".into(), generation: 4, version, role: kubeon_api::HostRole::Master }
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let (intent, snapshot) = (intent(3, 2), bare_hosts(5));
    assert_eq!(plan(&intent, &snapshot).unwrap(), plan(&intent, &snapshot).unwrap());
}
