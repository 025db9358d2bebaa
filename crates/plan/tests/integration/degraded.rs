//! Golden stories of clusters with hosts that do not answer. Read the texts in `tests/stories/`.

use crate::support::{address, bare_hosts, created, edit, golden, lose, named, step, texts};
use kubeon_plan::sim::{describe, refused, run_to_completion};
use kubeon_plan::{EtcdQuorum, Intent, Plan, Snapshot, StepId, lint, plan};
use kubeon_wire::{ClusterFacts, EtcdFact, NodeFact, ResultState};

/// Marks the selected version of etcd as changed on every observed master.
fn change_etcd(snapshot: &mut Snapshot, masters: &[usize]) {
    for index in masters {
        edit(snapshot, *index, |facts| {
            let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/choose")).unwrap();
            entry.state = ResultState::Drifted("/var/lib/kubeon/current/etcd points elsewhere".into());
        });
    }
}

const HEALTHY: [Option<bool>; 3] = [Some(true), Some(true), Some(true)];

fn members(made: &Plan) -> Vec<StepId> {
    made.steps.iter().filter(|step| step.id.what() == "member").map(|step| step.id.clone()).collect()
}

#[test]
fn a_worker_joins_while_a_master_is_dead() {
    for (dead, name) in [(0, "add-worker-first-master-dead"), (1, "add-worker-second-master-dead")] {
        let mut health = HEALTHY;
        health[dead] = None;
        let mut snapshot = created(3, 1, &health);
        lose(&mut snapshot, dead);
        snapshot.hosts.extend(bare_hosts(5).hosts.split_off(&address(4)));
        let made = plan(&named(3, 2), &snapshot).unwrap();
        assert_eq!(lint(&made, &snapshot), []);
        let executor = if dead == 0 { address(1) } else { address(0) };
        assert_eq!(step(&made, "join/ready-h5").host, executor);
        golden(name, &run_to_completion(&named(3, 2), &mut snapshot, 3));
    }
}

#[test]
fn the_death_of_the_first_master_loses_no_record() {
    let mut snapshot = created(3, 1, &[None, Some(true), Some(true)]);
    lose(&mut snapshot, 0);
    let made = plan(&named(3, 1), &snapshot).unwrap();
    assert_eq!(made.steps, []);
    assert_eq!(made.unreachable[0].name.as_str(), "h1");
    assert_eq!(made.quorum, Some(EtcdQuorum { serving: 2, total: 3 }));
}

#[test]
fn a_quorum_that_no_member_proves_is_not_shown() {
    let mut snapshot = created(3, 1, &[None, None, None]);
    lose(&mut snapshot, 0);
    assert_eq!(plan(&named(3, 1), &snapshot).unwrap().quorum, None);
    assert_eq!(plan(&named(3, 1), &created(3, 1, &HEALTHY)).unwrap().quorum, None, "every host answers");
}

#[test]
fn members_that_serve_wait_for_a_dead_master() {
    let mut snapshot = created(3, 0, &[None, Some(true), Some(true)]);
    change_etcd(&mut snapshot, &[1, 2]);
    lose(&mut snapshot, 0);
    let made = plan(&named(3, 0), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(members(&made), []);
    golden("etcd-waits-for-a-dead-master", &describe(&made));
}

#[test]
fn a_stopped_member_is_repaired_while_a_master_is_dead() {
    let mut snapshot = created(3, 0, &[None, Some(false), Some(false)]);
    lose(&mut snapshot, 0);
    edit(&mut snapshot, 2, |facts| {
        facts.cluster = Some(ClusterFacts { etcd: EtcdFact::Down, ..ClusterFacts::default() });
        let entry = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/member")).unwrap();
        entry.state = ResultState::Stopped("etcd.service is not running".into());
    });
    let made = plan(&named(3, 0), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(texts(&members(&made)), ["etcd/member@h3"]);
}

#[test]
fn a_master_that_refuses_logins_and_serves_delays_no_member() {
    let mut snapshot = created(3, 0, &HEALTHY);
    change_etcd(&mut snapshot, &[1, 2]);
    lose(&mut snapshot, 0);
    let made = plan(&named(3, 0), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(texts(&members(&made)), ["etcd/member@h2", "etcd/member@h3"]);
}

#[test]
fn the_linter_finds_a_member_that_restarts_without_a_quorum() {
    let mut snapshot = created(3, 0, &HEALTHY);
    change_etcd(&mut snapshot, &[1, 2]);
    lose(&mut snapshot, 0);
    let made = plan(&named(3, 0), &snapshot).unwrap();
    let healthy = EtcdFact::Members(
        [("h1", None), ("h2", Some(true)), ("h3", Some(true))]
            .map(|(name, health)| (name.to_owned(), health))
            .into(),
    );
    for index in [1, 2] {
        edit(&mut snapshot, index, |facts| facts.cluster.as_mut().unwrap().etcd = healthy.clone());
    }
    let found = lint(&made, &snapshot);
    assert_eq!(found.len(), 2);
    assert!(found[0].text.contains("while only 2 of 3 can serve"), "{found:?}");
}

#[test]
fn two_dead_masters_of_three_are_refused_with_the_reason() {
    let mut snapshot = created(3, 1, &[None, None, Some(false)]);
    lose(&mut snapshot, 0);
    lose(&mut snapshot, 1);
    golden("two-masters-dead", &refused(&plan(&named(3, 1), &snapshot).unwrap_err()));
}

#[test]
fn a_known_worker_waits_and_an_unknown_one_is_refused() {
    let mut snapshot = created(1, 2, &[Some(true)]);
    lose(&mut snapshot, 2);
    let made = plan(&named(1, 2), &snapshot).unwrap();
    assert_eq!((made.steps.len(), made.unreachable.len()), (0, 1));
    lose(&mut snapshot, 3);
    let refusals = plan(&named(1, 3), &snapshot).unwrap_err();
    let hosts: Vec<_> = refusals.refusals().iter().map(|refusal| refusal.value.clone()).collect();
    assert_eq!(hosts, [address(3).to_string()], "only the host that the change concerns");
}

#[test]
fn masters_stay_tainted_while_the_only_worker_is_skipped() {
    let mut snapshot = created(1, 1, &[Some(true)]);
    lose(&mut snapshot, 1);
    let skipping = Intent { skip_hosts: vec![address(1)], ..named(1, 1) };
    assert_eq!(plan(&skipping, &snapshot).unwrap().steps, []);
    assert_eq!(plan(&named(1, 1), &snapshot).unwrap().steps, []);
}

#[test]
fn a_change_of_the_members_restarts_no_member() {
    let mut snapshot = created(1, 0, &[Some(true)]);
    snapshot.hosts.extend(bare_hosts(2).hosts.split_off(&address(1)));
    let made = plan(&named(2, 0), &snapshot).unwrap();
    let first = made.steps.iter().filter(|step| step.id.host().is_some_and(|host| host.as_str() == "h1"));
    let etcd = first.filter(|step| step.stage == kubeon_plan::StageName::new("etcd"));
    assert_eq!(texts(etcd.map(|step| &step.id)), ["etcd/initial-members@h1"]);
}

/// A cluster that was made without the encryption of Secrets.
fn made_without_encryption() -> Snapshot {
    let mut snapshot = created(3, 0, &HEALTHY);
    for index in 0..3 {
        edit(&mut snapshot, index, |facts| {
            let newer =
                |id: &str| id.starts_with("control/encryption@") || id.starts_with("control/decrypts@");
            facts.journal.retain(|entry| !newer(&entry.id));
        });
    }
    snapshot
}

#[test]
fn secrets_are_not_encrypted_before_every_master_was_observed() {
    let mut snapshot = made_without_encryption();
    let complete = snapshot.clone();
    lose(&mut snapshot, 0);
    run_to_completion(&named(3, 0), &mut snapshot, 1);
    let made = plan(&named(3, 0), &snapshot).unwrap();
    assert_eq!((made.steps.len(), made.continues), (0, false), "the other masters have the key");
    assert!(made.notes.iter().any(|note| note.text.contains("waits for the masters that do not answer")));
    snapshot.hosts.insert(address(0), complete.hosts[&address(0)].clone());
    let returned = plan(&named(3, 0), &snapshot).unwrap();
    assert!(returned.continues);
    let keys = returned.steps.iter().filter(|step| step.id.what() == "encryption");
    assert_eq!(texts(keys.map(|step| &step.id)), ["control/encryption@h1"], "it gets the key first");
}

#[test]
fn a_cluster_that_encrypts_secrets_goes_on_while_a_master_is_dead() {
    let mut snapshot = created(3, 0, &HEALTHY);
    lose(&mut snapshot, 0);
    let made = plan(&named(3, 0), &snapshot).unwrap();
    assert_eq!((made.steps, made.continues), (vec![], false));
}

#[test]
fn coredns_stays_while_a_host_with_another_resolver_does_not_answer() {
    let mut snapshot = bare_hosts(3);
    edit(&mut snapshot, 2, |facts| {
        let files = [("/etc/resolv.conf", "127.0.0.53"), ("/run/systemd/resolve/resolv.conf", "10.0.0.2")];
        let files = files.map(|(file, server)| (file.to_owned(), vec![server.to_owned()]));
        facts.name_servers = files.into();
    });
    run_to_completion(&named(1, 2), &mut snapshot, 1);
    let ready = || NodeFact { ready: true, ..NodeFact::default() };
    let nodes = ["h1", "h2", "h3"].map(|name| (name.to_owned(), ready())).into();
    let report = ClusterFacts { api_ready: true, nodes: Some(nodes), ..ClusterFacts::default() };
    edit(&mut snapshot, 0, |facts| facts.cluster = Some(report));
    assert_eq!(plan(&named(1, 2), &snapshot).unwrap().steps, []);
    lose(&mut snapshot, 2);
    assert_eq!(plan(&named(1, 2), &snapshot).unwrap().steps, []);
    let mut limited = named(1, 2);
    limited.limit_to(&[address(1)].into());
    assert_eq!(plan(&limited, &snapshot).unwrap().steps, []);
}
