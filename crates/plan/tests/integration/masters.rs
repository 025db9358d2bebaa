//! Golden stories of masters that join, leave and are replaced. Read the texts in `tests/stories/`.

use kubeon_plan::sim::{apply, describe, refused, run_to_completion};
use kubeon_plan::{HostSpec, Intent, Observation, Snapshot, lint, plan, validate};
use kubeon_wire::{ClusterFacts, EtcdFact, Op, ResultState};

use crate::support::{address, bare_hosts, created, edit, golden, intent, lose, named, step, texts};

const SERVES: Option<bool> = Some(true);

/// The hosts `h1`, `h2`, … with these indexes as masters, and those of `workers`.
fn with_masters(masters: &[usize], workers: &[usize]) -> Intent {
    let all = named(9, 0);
    let host = |index: &usize| all.spec.masters[*index].clone();
    let mut spec = (*intent(1, 0).spec).clone();
    spec.masters = masters.iter().map(host).collect();
    spec.workers = workers.iter().map(host).collect();
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..all }
}

fn joining(intent: Intent, masters: &[usize]) -> Intent {
    Intent { joining_masters: masters.iter().map(|index| address(*index)).collect(), ..intent }
}

fn leaving(mut intent: Intent, masters: &[usize]) -> Intent {
    for index in masters {
        let name = format!("h{}", index + 1).parse().ok();
        intent.leaving.push(HostSpec { name, ..HostSpec::at(address(*index)) });
        intent.leaving_masters.insert(address(*index));
    }
    intent
}

fn with_new_hosts(mut snapshot: Snapshot, hosts: std::ops::Range<usize>) -> Snapshot {
    let bare = bare_hosts(hosts.end).hosts;
    snapshot
        .hosts
        .extend(bare.into_iter().filter(|(at, _)| hosts.clone().any(|index| address(index) == *at)));
    snapshot
}

#[test]
fn masters_join_one_after_another() {
    // h1 is the master, h2 the worker.
    let mut snapshot = with_new_hosts(created(1, 1, &[SERVES]), 2..4);
    let desired = joining(with_masters(&[0, 2, 3], &[1]), &[2, 3]);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(texts(&step(&made, "etcd/join@h4").needs).contains(&"etcd/promote@h3".to_owned()));
    assert!(texts(&step(&made, "control/apiserver@h4").needs).contains(&"etcd/promote@h4".to_owned()));
    let restarts =
        made.steps.iter().filter(|step| step.host == address(0) && matches!(step.op, Op::Service { .. }));
    assert_eq!(restarts.count(), 0, "nothing restarts on the master that exists");
    golden("add-masters", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn a_master_leaves_when_the_others_can_do_without_it() {
    let mut snapshot = created(3, 1, &[SERVES; 3]);
    let desired = leaving(with_masters(&[1, 2], &[3]), &[0]);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let stop = step(&made, "leave/stop@h1");
    assert!(
        texts(&stop.needs).contains(&"join/haproxy-reload@h4".to_owned()),
        "workers use the other masters first"
    );
    golden("remove-master", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn the_last_master_that_a_silent_worker_knows_does_not_leave() {
    let mut snapshot = created(3, 1, &[SERVES; 3]);
    lose(&mut snapshot, 3);
    let mut desired = leaving(with_masters(&[1, 2], &[3]), &[0]);
    assert!(plan(&desired, &snapshot).is_ok(), "it knows the masters that stay");
    // The other masters joined while it was off.
    desired.known_masters.insert(address(3), [address(0)].into());
    let refused = plan(&desired, &snapshot).unwrap_err();
    let found: Vec<_> = refused.refusals().iter().map(|refusal| refusal.value.clone()).collect();
    assert_eq!(found, [address(3).to_string()]);
    desired.skip_hosts.push(address(3));
    assert!(plan(&desired, &snapshot).is_ok(), "the user goes on without it");
    // From then on it has nothing to lose.
    desired.skip_hosts.clear();
    desired.known_masters.insert(address(3), [].into());
    assert!(plan(&desired, &snapshot).is_ok());
}

#[test]
fn a_lost_master_is_replaced() {
    let mut snapshot = with_new_hosts(created(3, 1, &[SERVES, SERVES, Some(false)]), 4..5);
    lose(&mut snapshot, 2);
    let mut desired = leaving(joining(with_masters(&[0, 1, 4], &[3]), &[4]), &[2]);
    desired.lost_hosts.insert(address(2));
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let join = step(&made, "etcd/join@h5");
    assert!(texts(&join.needs).contains(&"etcd/remove-h3".to_owned()), "the lost member leaves first");
    golden("replace-master", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn a_dead_master_leaves_before_one_that_works() {
    let snapshot = created(5, 0, &[SERVES, SERVES, SERVES, SERVES, Some(false)]);
    let made = plan(&leaving(with_masters(&[0, 1, 2], &[]), &[3, 4]), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(texts(&step(&made, "leave/member-h4").needs).contains(&"etcd/remove-h5".to_owned()));
}

#[test]
fn a_plan_that_would_cost_the_quorum_is_refused() {
    let mut log = String::new();
    let mut refuse = |title: &str, desired: &Intent, snapshot: &Snapshot| {
        log.push_str(&format!("{title}: {}", refused(&plan(desired, snapshot).unwrap_err())));
    };
    let mut one_down = created(3, 0, &[SERVES, SERVES, Some(false)]);
    refuse(
        "a living one of three while another is down",
        &leaving(with_masters(&[1, 2], &[]), &[0]),
        &one_down,
    );
    refuse("a majority", &leaving(with_masters(&[0], &[]), &[1, 2]), &created(3, 0, &[SERVES; 3]));
    lose(&mut one_down, 2);
    let mut living = leaving(joining(with_masters(&[0, 2, 4], &[]), &[4]), &[1]);
    living.lost_hosts.insert(address(1));
    refuse("a master that is not lost", &living, &with_new_hosts(one_down.clone(), 4..5));
    let two_down = created(3, 0, &[Some(false); 3]);
    refuse(
        "without a quorum",
        &joining(with_masters(&[0, 1, 2, 3], &[]), &[3]),
        &with_new_hosts(two_down, 3..4),
    );
    let mut silent = with_new_hosts(created(1, 0, &[SERVES]), 1..2);
    edit(&mut silent, 0, |facts| facts.cluster = None);
    refuse("no member reports", &joining(with_masters(&[0, 1], &[]), &[1]), &silent);
    // h3 was removed while it was off, and comes back.
    let returned = created(3, 0, &[SERVES; 2]);
    refuse("a host with old data", &joining(with_masters(&[0, 1, 2], &[]), &[2]), &returned);
    golden("refused-masters", &log);
}

#[test]
fn a_master_that_others_do_not_reach_yet_executes_nothing_for_the_cluster() {
    let mut snapshot = created(3, 0, &[SERVES; 3]);
    let desired = with_masters(&[0, 1, 2], &[]);
    // The members know h1 at the address that it had before, and its API server answers still.
    for at in 0..3 {
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(at)) else {
            panic!("not observed")
        };
        let report = facts.cluster.as_mut().unwrap();
        report.api_ready = true;
        report.member_addresses.insert("h1".to_owned(), [192, 0, 2, 7].into());
    }
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(step(&made, "etcd/move-h1").host, address(1));
}

/// The index of the address that h1 has from now on.
const MOVED: usize = 8;

/// Three masters and a worker. h1 has another address, at which nothing of its control plane runs; the others know the one before.
fn readdressed() -> (Intent, Snapshot) {
    let mut snapshot = created(3, 1, &[Some(false), SERVES, SERVES]);
    for index in [1, 2] {
        edit(&mut snapshot, index, |facts| {
            let report = facts.cluster.as_mut().unwrap();
            report.nodes.as_mut().unwrap().get_mut("h1").unwrap().ready = false;
            let peers = (0..3).map(|member| (format!("h{}", member + 1), address(member).ip()));
            report.member_addresses = peers.collect();
        });
    }
    edit(&mut snapshot, 0, |facts| {
        facts.cluster = Some(ClusterFacts { etcd: EtcdFact::Down, ..ClusterFacts::default() });
        facts.cluster_steps = None;
        let member = facts.journal.iter_mut().find(|entry| entry.id.starts_with("etcd/member@")).unwrap();
        member.state = ResultState::Stopped("etcd.service is not running".to_owned());
    });
    let facts = snapshot.hosts.remove(&address(0)).unwrap();
    snapshot.hosts.insert(address(MOVED), facts);
    let mut desired = named(3, 1);
    let mut spec = (*desired.spec).clone();
    spec.masters[0] = HostSpec { name: "h1".parse().ok(), ..HostSpec::at(address(MOVED)) };
    let version = spec.version;
    desired.spec = validate(spec, &[version]).unwrap().0;
    desired.moved_hosts.insert(address(MOVED));
    (desired, snapshot)
}

#[test]
fn the_others_know_the_new_address_of_a_master_before_its_member_starts() {
    let (desired, mut snapshot) = readdressed();
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let told = step(&made, "etcd/move-h1");
    assert_ne!(told.host, address(MOVED), "the others do not reach its own member");
    assert!(texts(&step(&made, "etcd/member@h1").needs).contains(&"etcd/move-h1".to_owned()));
    let restarts = made.steps.iter().filter(|step| {
        step.host == address(1) && matches!(&step.op, Op::Service { name, .. } if name == "etcd.service")
    });
    assert_eq!(restarts.count(), 0, "no other member restarts");
    golden("readdress", &describe(&made));
    apply(&made, made.steps.len(), &mut snapshot);
    // The master serves again, as the others report it.
    let (mut report, mut steps) = (None, None);
    edit(&mut snapshot, 1, |facts| (report, steps) = (facts.cluster.clone(), facts.cluster_steps.clone()));
    let mut report = report.unwrap();
    report.nodes.as_mut().unwrap().get_mut("h1").unwrap().ready = true;
    report.etcd = EtcdFact::Members(["h1", "h2", "h3"].map(|name| (name.to_owned(), SERVES)).into());
    for at in [address(MOVED), address(1), address(2)] {
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&at) else { panic!("not observed") };
        (facts.cluster, facts.cluster_steps) = (Some(report.clone()), steps.clone());
    }
    assert_eq!(plan(&desired, &snapshot).unwrap().steps, []);
}
