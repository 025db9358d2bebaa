//! Clusters whose etcd has hosts of its own: h1 is a master, h2 a worker, and h3, h4 and h5 run etcd.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_plan::sim::{refused, run_to_completion};
use kubeon_plan::{HostSpec, Intent, Snapshot, destroy, lint, plan, precheck, validate};
use kubeon_wire::{ClusterFacts, EtcdFact, NodeFact, Op};

use crate::support::{address, bare_hosts, edit, golden, intent, lose, named, step, texts};

const MEMBERS: [usize; 3] = [2, 3, 4];

/// The cluster with etcd on the hosts with these indexes.
fn with_etcd(etcd: &[usize]) -> Intent {
    let all = named(9, 0);
    let host = |index: usize| all.spec.masters[index].clone();
    let mut spec = (*intent(1, 0).spec).clone();
    (spec.masters, spec.workers) = (vec![host(0)], vec![host(1)]);
    spec.etcd_hosts = etcd.iter().map(|index| host(*index)).collect();
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..all }
}

/// The created cluster, whose members have this health.
fn created(health: [bool; 3]) -> Snapshot {
    let mut snapshot = bare_hosts(5);
    run_to_completion(&with_etcd(&MEMBERS), &mut snapshot, 2);
    let node = || NodeFact { ready: true, ..NodeFact::default() };
    let nodes = BTreeMap::from([("h1".to_owned(), node()), ("h2".to_owned(), node())]);
    let master = ClusterFacts { api_ready: true, nodes: Some(nodes), ..ClusterFacts::default() };
    edit(&mut snapshot, 0, |facts| facts.cluster = Some(master));
    let members = MEMBERS.iter().zip(health).map(|(index, health)| (format!("h{}", index + 1), Some(health)));
    let etcd = EtcdFact::Members(members.collect());
    for index in MEMBERS {
        edit(&mut snapshot, index, |facts| {
            facts.cluster = Some(ClusterFacts { etcd: etcd.clone(), ..ClusterFacts::default() });
        });
    }
    snapshot
}

/// The unit of the API server that the plan starts.
fn api_server(plan: &kubeon_plan::Plan) -> &str {
    match &step(plan, "control/apiserver@h1").op {
        Op::Service { unit, .. } => unit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn etcd_has_hosts_of_its_own() {
    let mut snapshot = bare_hosts(5);
    let desired = with_etcd(&MEMBERS);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let unit = api_server(&made);
    let members = MEMBERS.map(|index| format!("https://{}:2379", address(index))).join(",");
    assert!(unit.contains(&format!("--etcd-servers={members}")), "{unit}");
    let needs = texts(&step(&made, "control/apiserver@h1").needs);
    for name in ["h3", "h4", "h5"] {
        assert!(needs.contains(&format!("etcd/member@{name}")), "{needs:?}");
    }
    // A host of etcd gets nothing of a node, and the key of no other authority.
    let on_member = made.steps.iter().filter(|step| step.host == address(2));
    let ids: Vec<String> = on_member.map(|step| step.id.to_string()).collect();
    assert!(
        ids.iter().all(|id| ["artifacts/etcd@", "etcd/", "certificates/"]
            .iter()
            .any(|stage| id.starts_with(stage))),
        "{ids:?}"
    );
    assert!(
        !made
            .steps
            .iter()
            .any(|step| step.host == address(0) && step.id.to_string().starts_with("etcd/member"))
    );
    golden("external-etcd", &run_to_completion(&desired, &mut snapshot, 3));
    assert_eq!(plan(&desired, &created([true; 3])).unwrap().steps, []);
}

#[test]
fn checks_of_a_host_of_etcd_are_those_of_etcd() {
    let mut snapshot = bare_hosts(5);
    edit(&mut snapshot, 2, |facts| {
        facts.own_services = vec!["containerd".to_owned()];
        facts.busy_ports = vec![10250];
    });
    edit(&mut snapshot, 3, |facts| {
        facts.own_services = vec!["etcd".to_owned()];
        facts.busy_ports = vec![2379];
    });
    let report = precheck(&with_etcd(&MEMBERS), &snapshot);
    let failed = |index: usize| -> Vec<String> {
        let host = report.hosts.iter().find(|host| host.host == address(index)).unwrap();
        host.checks.iter().filter(|check| !check.ok).map(|check| check.check.clone()).collect()
    };
    assert_eq!(failed(2), Vec::<String>::new());
    assert_eq!(failed(3), ["own-services", "ports"]);
}

#[test]
fn a_member_joins_and_the_api_servers_use_it_afterwards() {
    let mut snapshot = created([true; 3]);
    snapshot.hosts.extend(bare_hosts(6).hosts.into_iter().filter(|(host, _)| *host == address(5)));
    let mut desired = with_etcd(&[2, 3, 4, 5]);
    desired.joining_etcd_hosts.insert(address(5));
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(texts(&step(&made, "control/apiserver@h1").needs).contains(&"etcd/promote@h6".to_owned()));
    assert!(api_server(&made).contains(&format!("https://{}:2379", address(5))));
    golden("external-etcd-grows", &run_to_completion(&desired, &mut snapshot, 3));
}

/// The intent in which a host of etcd leaves.
fn leaving(etcd: &[usize], left: &[usize]) -> Intent {
    let mut desired = with_etcd(etcd);
    for index in left {
        let name = format!("h{}", index + 1).parse().ok();
        desired.leaving.push(HostSpec { name, ..HostSpec::at(address(*index)) });
        desired.leaving_etcd_hosts.insert(address(*index));
    }
    desired
}

#[test]
fn a_member_leaves_after_the_api_servers_do_without_it() {
    let mut snapshot = created([true; 3]);
    let desired = leaving(&[2, 3], &[4]);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let member = step(&made, "leave/member-h5");
    assert!(texts(&member.needs).contains(&"control/apiserver@h1".to_owned()), "{member:?}");
    assert!(member.host == address(2) || member.host == address(3), "a member that stays removes it");
    assert!(!made.steps.iter().any(|step| matches!(step.op, Op::Drain { .. } | Op::RemoveNode { .. })));
    assert!(texts(&step(&made, "leave/reset@h5").needs).contains(&"leave/member-h5".to_owned()));
    golden("external-etcd-shrinks", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn a_member_leaves_without_contact_to_the_workers() {
    let mut snapshot = created([true; 3]);
    snapshot.hosts.retain(|host, _| *host != address(1));
    let mut desired = leaving(&[2, 3], &[4]);
    desired.limit_to(&BTreeSet::new());
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(texts(&step(&made, "leave/reset@h5").needs).contains(&"leave/member-h5".to_owned()));
}

#[test]
fn a_lost_member_is_replaced_and_one_that_answers_is_not() {
    let mut snapshot = created([true, true, false]);
    snapshot.hosts.extend(bare_hosts(6).hosts.into_iter().filter(|(host, _)| *host == address(5)));
    let mut desired = leaving(&[2, 3, 5], &[4]);
    desired.joining_etcd_hosts.insert(address(5));
    desired.lost_hosts.insert(address(4));
    let refusal = plan(&desired, &snapshot).unwrap_err();
    assert!(refused(&refusal).contains("is not lost: its host answers"), "{}", refused(&refusal));
    lose(&mut snapshot, 4);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let join = step(&made, "etcd/join@h6");
    assert!(texts(&join.needs).contains(&"etcd/remove-h5".to_owned()), "the lost member leaves first");
    golden("external-etcd-replace", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn the_quorum_of_external_etcd_is_guarded() {
    let two_leave = plan(&leaving(&[2], &[3, 4]), &created([true; 3])).unwrap_err();
    assert!(refused(&two_leave).contains("that is a majority"), "{}", refused(&two_leave));
    let while_one_is_down = plan(&leaving(&[2, 4], &[3]), &created([true, true, false])).unwrap_err();
    assert!(refused(&while_one_is_down).contains("that is no quorum"), "{}", refused(&while_one_is_down));

    // One of three may be off, and waits.
    let mut one_off = created([true, true, false]);
    lose(&mut one_off, 4);
    let made = plan(&with_etcd(&MEMBERS), &one_off).unwrap();
    assert_eq!(made.unreachable.iter().map(|host| host.address).collect::<Vec<_>>(), [address(4)]);
    let mut two_off = created([true, false, false]);
    lose(&mut two_off, 3);
    lose(&mut two_off, 4);
    let refusal = plan(&with_etcd(&MEMBERS), &two_off).unwrap_err();
    assert!(refused(&refusal).contains("etcd has no quorum without it"), "{}", refused(&refusal));
}

#[test]
fn a_host_of_etcd_runs_no_node() {
    let mut spec = (*with_etcd(&MEMBERS).spec).clone();
    spec.etcd_hosts[0] = spec.workers[0].clone();
    let version = spec.version;
    let refusals = validate(spec, &[version]).unwrap_err().refusals;
    assert!(refusals.iter().any(|refusal| refusal.reason.contains("runs a node already")), "{refusals:?}");
}

#[test]
fn hosts_of_etcd_are_reset_after_the_masters() {
    let made = destroy(&with_etcd(&MEMBERS), &created([true; 3])).unwrap();
    assert_eq!(made.steps.len(), 5);
    assert_eq!(texts(&step(&made, "reset/host@h3").needs), ["reset/host@h1"]);
}
