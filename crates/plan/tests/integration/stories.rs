//! Golden stories: what each operation does, in which order, and why. Read the texts in `tests/stories/`.
//! `UPDATE_GOLDEN=1 cargo test -p kubeon-plan` updates them.

use std::collections::BTreeMap;

use crate::support::{NOW, address, bare_hosts, golden, intent, step, texts};
use kubeon_plan::sim::{apply, bare, describe, refused, renew, run_to_completion};
use kubeon_plan::{
    Intent, Observation, ObservationFailure, Remedy, Snapshot, StageName, Step, StepId, destroy, lint, plan,
};
use kubeon_wire::{Claim, ClusterFacts, EtcdFact, NodeFact, ResultState};

const YEAR: i64 = 365 * 86_400;

/// Three healthy etcd members and a ready API server.
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
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else {
        panic!("not observed")
    };
    change(facts);
}

#[test]
fn one_master() {
    golden("one-master", &run_to_completion(&intent(1, 0), &mut bare_hosts(1), 3));
}

#[test]
fn one_master_two_workers() {
    golden("one-master-two-workers", &run_to_completion(&intent(1, 2), &mut bare_hosts(3), 3));
}

#[test]
fn three_masters_two_workers() {
    golden("three-masters-two-workers", &run_to_completion(&intent(3, 2), &mut bare_hosts(5), 3));
}

#[test]
fn a_host_without_nft_gets_nft_from_the_bundle() {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    edit(&mut snapshot, 1, |facts| facts.programs = [("nft".to_owned(), false)].into());
    let made = plan(&intent, &snapshot).unwrap();
    let on = |name: &str| {
        made.steps
            .iter()
            .filter(|step| {
                step.id.what().contains("tools") && step.id.to_string().ends_with(&format!("@{name}"))
            })
            .count()
    };
    assert_eq!((on("h1"), on("h2")), (0, 3), "a host that has nft keeps it");
    golden("without-nft", &run_to_completion(&intent, &mut snapshot, 3));
}

/// The cluster was made by a program that did not encrypt Secrets.
#[test]
fn every_api_server_of_an_existing_cluster_has_the_key_before_any_encrypts() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            let newer = ["control/encryption@", "control/decrypts@"];
            facts.journal.retain(|entry| !newer.iter().any(|id| entry.id.starts_with(id)));
            let api = facts.journal.iter_mut().filter(|entry| entry.id.starts_with("control/apiserver@"));
            api.for_each(|entry| entry.digest = "older".to_owned());
        });
    }
    let first = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&first, &snapshot), []);
    assert!(first.continues, "another plan encrypts");
    let second: StepId = "control/apiserver@h2".parse().unwrap();
    assert!(step(&first, "control/apiserver@h3").needs.contains(&second), "one after the other");
    golden("encrypt-existing", &run_to_completion(&intent, &mut snapshot, 3));
}

#[test]
fn a_rerun_has_nothing_to_do() {
    let (intent, mut snapshot) = (intent(3, 2), bare_hosts(5));
    run_to_completion(&intent, &mut snapshot, 1);
    let again = plan(&intent, &snapshot).unwrap();
    assert_eq!((again.steps.len(), again.generation), (0, 1));
    golden("rerun", &describe(&again));
}

#[test]
fn an_interrupted_run_continues() {
    let (intent, mut snapshot) = (intent(1, 2), bare_hosts(3));
    let first = plan(&intent, &snapshot).unwrap();
    let half = first.steps.len() / 2;
    apply(&first, half, &mut snapshot);
    let rest = plan(&intent, &snapshot).unwrap();
    let recorded = |step: &&Step| step.journal;
    let ids = |steps: &[Step]| steps.iter().filter(recorded).map(|step| step.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&rest.steps), ids(&first.steps[half..]));
    golden("died-half-way", &describe(&rest));
}

#[test]
fn a_host_that_is_unreachable_is_named() {
    let mut snapshot = bare_hosts(3);
    snapshot.hosts.insert(
        address(2),
        Observation::Unknown { why: "no route to host".into(), failure: ObservationFailure::NoAnswer },
    );
    let mut desired = intent(1, 2);
    let mut log = refused(&plan(&desired, &snapshot).unwrap_err());
    desired.skip_hosts.push(address(2));
    let without = plan(&desired, &snapshot).unwrap();
    assert!(without.steps.iter().all(|step| step.host != address(2)));
    log.push_str(&describe(&without).lines().take(2).collect::<Vec<_>>().join("\n"));
    golden("unreachable", &log);
}

#[test]
fn a_master_cannot_be_left_out() {
    let mut snapshot = bare_hosts(2);
    snapshot.hosts.insert(
        address(0),
        Observation::Unknown { why: "no route to host".into(), failure: ObservationFailure::NoAnswer },
    );
    let mut desired = intent(1, 1);
    desired.skip_hosts.push(address(0));
    let error = plan(&desired, &snapshot).unwrap_err();
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
fn certificates_that_a_host_did_not_renew_are_renewed_past_five_sixths_of_their_life() {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    run_to_completion(&intent, &mut snapshot, 1);
    snapshot.taken_at = NOW + YEAR / 6 * 5 - 86_400;
    assert!(plan(&intent, &snapshot).unwrap().steps.is_empty());
    snapshot.taken_at += 2 * 86_400;
    golden("renewal", &run_to_completion(&intent, &mut snapshot, 3));
}

#[test]
fn nothing_expires_in_ten_years_without_a_run() {
    const WEEK: i64 = 7 * 86_400;
    let (intent, mut snapshot) = (intent(3, 2), bare_hosts(5));
    run_to_completion(&intent, &mut snapshot, 1);
    let mut renewals = 0;
    for week in 1..=10 * 53 {
        snapshot.taken_at = NOW + week * WEEK;
        for index in 0..5 {
            let before = snapshot.hosts.clone();
            renew(address(index), &mut snapshot);
            renewals += i32::from(before != snapshot.hosts);
            edit(&mut snapshot, index, |facts| {
                let earliest = facts.earliest_expiry().unwrap();
                assert!(earliest.expires_at > NOW + week * WEEK, "week {week}: {earliest:?}");
            });
        }
        let made = plan(&intent, &snapshot).unwrap();
        assert_eq!((made.steps.len(), made.generation), (0, 1), "week {week}: {}", describe(&made));
    }
    assert!(renewals >= 5 * 14, "each host renews about every eight months: {renewals}");
}

#[test]
fn a_bootstrap_certificate_that_was_not_used_in_time_is_renewed() {
    let (intent, mut snapshot) = (intent(1, 1), bare_hosts(2));
    let first = plan(&intent, &snapshot).unwrap();
    let keys: StepId = "join/keys@h2".parse().unwrap();
    let index = first.steps.iter().position(|step| step.id == keys).unwrap();
    apply(&first, index + 1, &mut snapshot);
    let renewed = |snapshot: &Snapshot| {
        let steps = plan(&intent, snapshot).unwrap().steps;
        steps.into_iter().find(|step| step.id == keys).map(|step| step.why)
    };
    snapshot.taken_at = NOW + 39 * 60;
    assert_eq!(renewed(&snapshot), None);
    snapshot.taken_at = NOW + 41 * 60;
    let bootstrap = "/var/lib/kubelet/bootstrap/client.crt is past two thirds of its life";
    assert_eq!(renewed(&snapshot), Some(format!("{bootstrap} (19 min left)")));
    snapshot.taken_at = NOW + 2 * 3600;
    assert_eq!(renewed(&snapshot), Some(format!("{bootstrap} (expired)")));
    run_to_completion(&intent, &mut snapshot, 1);
    // The kubelet now has its own certificate, so the expired bootstrap certificate does not matter.
    snapshot.taken_at += 30 * 86_400;
    assert_eq!(renewed(&snapshot), None);
    snapshot.taken_at += YEAR;
    edit(&mut snapshot, 1, |facts| facts.certificates.clear());
    assert_eq!(
        renewed(&snapshot),
        Some(format!("{bootstrap} (expired)")),
        "its own certificate expired, so it requests a new one"
    );
}

#[test]
fn existing_etcd_members_change_one_after_another() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
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
fn a_lost_quorum_is_repaired_in_parallel() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
    stop_etcd(&mut snapshot, &EtcdFact::Down);
    let repair = plan(&intent, &snapshot).unwrap();
    let members = repair.steps.iter().filter(|step| is_member(&step.id));
    assert_eq!(members.map(|step| step.needs.len()).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(lint(&repair, &snapshot), []);
}

/// Whether the step runs an etcd member.
fn is_member(id: &StepId) -> bool {
    (id.stage(), id.what()) == (StageName::new("etcd"), "member")
}

/// Marks the service of every member as stopped. Each master reports `etcd`.
fn stop_etcd(snapshot: &mut Snapshot, etcd: &EtcdFact) {
    for index in 0..3 {
        edit(snapshot, index, |facts| {
            facts.cluster = Some(ClusterFacts { etcd: etcd.clone(), ..ClusterFacts::default() });
            let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/member")).unwrap();
            entry.state = ResultState::Stopped("etcd.service is not running".into());
        });
    }
}

#[test]
fn members_with_unknown_health_change_one_after_another() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
    stop_etcd(&mut snapshot, &EtcdFact::Unknown);
    let mut repair = plan(&intent, &snapshot).unwrap();
    let members = repair.steps.iter().filter(|step| is_member(&step.id));
    let needs = |step: &Step| texts(step.needs.iter().filter(|need| is_member(need))).join(" ");
    let needs: Vec<_> = members.map(needs).collect();
    assert_eq!(needs, ["", "etcd/member@h1", "etcd/member@h1 etcd/member@h2"]);
    assert_eq!(lint(&repair, &snapshot), []);
    // A member that is up to date between two others does not bypass the rule.
    let mut between = snapshot.clone();
    edit(&mut between, 1, |facts| {
        facts.journal.iter_mut().for_each(|entry| entry.state = ResultState::UpToDate)
    });
    assert_eq!(lint(&plan(&intent, &between).unwrap(), &between), []);
    repair.steps.iter_mut().for_each(|step| step.needs.clear());
    let found = lint(&repair, &snapshot);
    let found = found.iter().filter(|finding| finding.rule == "quorum");
    assert_eq!(found.count(), 2, "unknown is not lost");
}

#[test]
fn unchecked_values_are_reported_as_notes() {
    let (intent, mut snapshot) = (intent(1, 2), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
    for index in 1..3 {
        edit(&mut snapshot, index, |facts| facts.unchecked = vec!["did not list its images".into()]);
    }
    edit(&mut snapshot, 0, |facts| {
        facts.unchecked = vec!["hangs".into()];
        facts.cluster = Some(ClusterFacts { api_ready: true, ..ClusterFacts::default() });
    });
    let again = plan(&intent, &snapshot).unwrap();
    assert!(again.steps.is_empty(), "no step is planned because of it: {:?}", again.steps[0].id);
    let mut slow = snapshot.clone();
    edit(&mut slow, 0, |facts| {
        facts.cluster = Some(ClusterFacts { api_unknown: true, ..ClusterFacts::default() });
    });
    let again = plan(&intent, &slow).unwrap();
    assert!(
        again.steps.is_empty(),
        "an API server that answers slowly may be ready: {:?}",
        again.steps[0].id
    );
    let again = plan(&intent, &snapshot).unwrap();
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
    assert_eq!(missed.steps[0].why, "the cluster does not know the node", "an empty list is a report");
}

#[test]
fn the_linter_finds_two_members_changed_at_once() {
    let (intent, mut snapshot) = (intent(3, 0), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            facts.cluster = Some(healthy_etcd());
            facts.journal.iter_mut().for_each(|entry| entry.state = ResultState::Drifted("gone".into()));
        });
    }
    let mut repair = plan(&intent, &snapshot).unwrap();
    for step in &mut repair.steps {
        step.needs.retain(|need| !is_member(need));
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
fn destroys_workers_before_masters_and_does_not_change_bare_hosts() {
    let (intent, mut snapshot) = (intent(1, 2), bare_hosts(3));
    run_to_completion(&intent, &mut snapshot, 1);
    snapshot.hosts.insert(address(2), Observation::Fresh(bare("h3")));
    let plan = destroy(&intent, &snapshot).unwrap();
    assert_eq!(lint(&plan, &snapshot), []);
    golden("destroy", &describe(&plan));
}

#[test]
fn destroys_without_an_unreachable_master() {
    let (mut desired, mut snapshot) = (intent(3, 1), bare_hosts(4));
    run_to_completion(&desired, &mut snapshot, 1);
    snapshot.hosts.insert(
        address(2),
        Observation::Unknown { why: "no route to host".into(), failure: ObservationFailure::NoAnswer },
    );
    let mut log = refused(&destroy(&desired, &snapshot).unwrap_err());
    desired.skip_hosts = vec![address(2)];
    let made = destroy(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(!made.hosts.contains_key(&address(2)));
    log.push_str(&describe(&made));
    golden("destroy-without-master", &log);
}

#[test]
fn a_skipped_host_is_not_changed_by_a_destroy_although_it_answers() {
    let (mut desired, mut snapshot) = (intent(1, 2), bare_hosts(3));
    run_to_completion(&desired, &mut snapshot, 1);
    desired.generation = 1;
    desired.skip_hosts = vec![address(1)];
    // The host now belongs to another cluster. This does not matter because it is skipped.
    edit(&mut snapshot, 1, |facts| facts.claim.as_mut().unwrap().uid = "other".into());
    let made = destroy(&desired, &snapshot).unwrap();
    assert_eq!(texts(made.steps.iter().map(|step| &step.id)), ["reset/host@h3", "reset/host@h1"]);
    let all = Intent { skip_hosts: (0..3).map(address).collect(), ..desired };
    let none = destroy(&all, &Snapshot { taken_at: NOW, ..Snapshot::default() }).unwrap();
    assert!(none.steps.is_empty() && none.hosts.is_empty());
    assert_eq!(none.notes.len(), 3);
    assert!(
        none.notes[0].text.contains("the etcd data") && none.notes[2].text.contains("reset --cluster demo"),
        "{none:?}"
    );
}

/// This happens when two clusters were declared on the host at the same time and the other one claimed it
/// first.
#[test]
fn a_host_of_another_cluster_is_not_changed_by_a_destroy() {
    let (mut desired, mut snapshot) = (intent(1, 2), bare_hosts(3));
    run_to_completion(&desired, &mut snapshot, 1);
    desired.generation = 1;
    edit(&mut snapshot, 0, |facts| facts.claim = Some(claim("other")));
    edit(&mut snapshot, 1, |facts| (facts.claim, facts.foreign) = (None, vec!["/etc/kubeedge".into()]));
    let made = destroy(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(texts(made.steps.iter().map(|step| &step.id)), ["reset/host@h3"]);
    assert_eq!(made.hosts.keys().collect::<Vec<_>>(), [&address(2)], "no other host is part of the plan");
    let notes: Vec<_> = made.notes.iter().map(|note| (note.host.unwrap(), note.text.as_str())).collect();
    let other = "belongs to cluster other (identity x) and is not changed";
    let kubeedge =
        "does not belong to demo, but to another cluster (found /etc/kubeedge), and is not changed";
    assert_eq!(notes, [(address(0), other), (address(1), kubeedge)]);
}

#[test]
fn a_cluster_without_changed_hosts_is_destroyed_without_observing_them() {
    let (desired, mut snapshot) = (intent(1, 2), bare_hosts(3));
    snapshot.hosts.insert(
        address(0),
        Observation::Unknown { why: "no route to host".into(), failure: ObservationFailure::NoAnswer },
    );
    edit(&mut snapshot, 1, |facts| facts.claim = Some(claim("other")));
    let made = destroy(&desired, &snapshot).unwrap();
    assert!(made.steps.is_empty());
    assert!(
        made.notes.iter().any(|note| note.text.contains("no host was ever written to")),
        "{:?}",
        made.notes
    );
    // Once one host belongs to the cluster, every host must be observed.
    edit(&mut snapshot, 1, |facts| facts.claim.as_mut().unwrap().uid = "uid-1".into());
    edit(&mut snapshot, 1, |facts| facts.claim.as_mut().unwrap().cluster = "demo".parse().unwrap());
    let refused = destroy(&desired, &snapshot).unwrap_err().refusals()[0].clone();
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
