//! Every rule must detect its violation: plans that the planner would never make.

use crate::support::{address, balanced_by, bare_hosts, behind_load_balancer, intent};
use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_plan::{
    LintFinding, Observation, ObservationFailure, Plan, Severity, Snapshot, destroy, lint, plan, sim,
};
use kubeon_wire::{ApiObject, Content, File, HostsEntry, Op};
use serde_json::{Value, json};

fn made() -> (Plan, Snapshot) {
    let snapshot = bare_hosts(3);
    (plan(&intent(1, 2), &snapshot).unwrap(), snapshot)
}

/// The rules that a plan violates if its first step has this effect.
fn broken_by(op: Op) -> Vec<String> {
    let (mut plan, snapshot) = made();
    plan.steps[0].op = op;
    lint(&plan, &snapshot).into_iter().map(|finding| finding.rule).collect()
}

fn file(text: &str) -> Op {
    let content = Content::Text(text.to_owned());
    Op::Files { files: vec![File { path: "/etc/x".to_owned(), mode: 0o600, content }] }
}

fn object(body: Value) -> Op {
    Op::Objects { objects: vec![ApiObject { path: "/api/v1/x".to_owned(), body }] }
}

fn unit(unit: &str) -> Op {
    Op::Service { name: "x.service".to_owned(), unit: unit.to_owned(), watches: vec![], ready: vec![] }
}

fn names(at: usize, name: &str) -> Op {
    Op::Hosts { entries: vec![HostsEntry { address: address(at).ip(), names: vec![name.to_owned()] }] }
}

#[test]
fn secrets_are_found_in_every_kind_of_step() {
    for op in [
        file("-----BEGIN EC PRIVATE KEY-----\nMH"),
        file("users:\n- user:\n    client-key-data: LS0t\n"),
        file(r#"{"users":[{"user":{"token":"abc.def"}}]}"#),
        file("password=hunter2\n"),
        object(json!({"kind": "Secret", "data": {"x": "eA=="}})),
        object(json!({"kind": "ConfigMap", "data": {"kubeconfig": "user:\n  token: abc"}})),
        object(json!({"kind": "ConfigMap", "data": {"password": "hunter2"}})),
        unit("[Service]\nExecStart=/bin/x \\\n  --token=abc\n"),
        names(0, "-----BEGIN PRIVATE KEY-----"),
    ] {
        assert_eq!(broken_by(op.clone()), ["secret"], "{op:?}");
    }
}

#[test]
fn texts_that_resemble_secrets_are_accepted() {
    for op in [
        file("tokens: 3\ntoken:\n"),
        file("authentication-token-webhook: true\n"),
        unit("[Service]\nExecStart=/bin/etcd --initial-cluster-token=uid-1 --token-ttl=3\n"),
        object(json!({"rules": [{"resources": ["serviceaccounts/token", "tokenreviews"]}]})),
    ] {
        assert_eq!(broken_by(op.clone()), Vec::<String>::new(), "{op:?}");
    }
    // The rule accepts the steps of real plans.
    let updater = balanced_by(LoadBalancer::Updater, intent(3, 2));
    for desired in [intent(3, 2), behind_load_balancer(3, 2), updater] {
        let snapshot = bare_hosts(5);
        assert_eq!(lint(&plan(&desired, &snapshot).unwrap(), &snapshot), []);
    }
}

#[test]
fn a_key_that_others_may_read_is_found() {
    let secret = Content::Secret(kubeon_wire::SecretRef::ServiceAccountKey);
    let op = Op::Files { files: vec![File { path: "/etc/x".to_owned(), mode: 0o640, content: secret }] };
    assert_eq!(broken_by(op), ["secret"]);
}

#[test]
fn an_address_belongs_to_one_host() {
    assert_eq!(broken_by(names(0, "h2")), ["address"]);
    assert_eq!(broken_by(names(1, "h2")), Vec::<String>::new());
    assert_eq!(broken_by(names(0, "apiserver.cluster.local")), Vec::<String>::new());
    let (plan, mut snapshot) = made();
    let Some(kubeon_plan::Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(0)) else {
        panic!("not observed")
    };
    facts.addresses = vec![address(0).ip(), address(2).ip()];
    let found = lint(&plan, &snapshot);
    assert_eq!(found[0].rule, "address");
    assert_eq!(found[0].text, "172.30.0.11 and 172.30.0.13 are addresses of one host");
}

#[test]
fn no_destructive_step_runs_on_a_host_that_was_not_observed() {
    let (desired, mut snapshot) = (intent(1, 2), bare_hosts(3));
    let made = plan(&desired, &snapshot).unwrap();
    sim::apply(&made, made.steps.len(), &mut snapshot);
    let end = destroy(&desired, &snapshot).unwrap();
    assert_eq!(end.steps.len(), 3, "every host is reset");
    assert_eq!(lint(&end, &snapshot), []);
    // The host answered when the plan was made. The plan is checked again right before it is applied.
    let unreachable =
        Observation::Unknown { why: "no route to host".to_owned(), failure: ObservationFailure::NoAnswer };
    for observation in [Some(unreachable), None] {
        let mut later = snapshot.clone();
        later.hosts.remove(&address(1));
        later.hosts.extend(observation.map(|observation| (address(1), observation)));
        let found = lint(&end, &later);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].rule.as_str(), found[0].severity), ("unknown", Severity::Fatal));
        assert_eq!(found[0].text, "reset/host@h2 runs on 172.30.0.12, which was not observed");
    }
}

#[test]
fn names_belong_to_one_host() {
    let (mut plan, snapshot) = made();
    let name = plan.hosts[&address(0)].name.clone();
    plan.hosts.get_mut(&address(1)).unwrap().name = name;
    let found = lint(&plan, &snapshot);
    assert!(found.iter().any(|finding| finding.rule == "duplicate-name"), "{found:?}");
}

#[test]
fn steps_are_ordered_unique_and_on_hosts_of_the_plan() {
    let broken = |change: fn(&mut Plan)| {
        let (mut plan, snapshot) = made();
        change(&mut plan);
        let found = lint(&plan, &snapshot);
        // A step on a host outside of the plan is also on a host that was not observed.
        let expected = |finding: &LintFinding| ["order", "unknown"].contains(&finding.rule.as_str());
        assert!(found.iter().all(expected), "{found:?}");
        found.into_iter().map(|finding| finding.text).collect::<Vec<_>>().join("\n")
    };
    assert!(
        broken(|plan| plan.steps[0].needs.push("join/nowhere@h1".parse().unwrap()))
            .contains("does not come before")
    );
    assert!(broken(|plan| plan.steps.push(plan.steps[0].clone())).contains("in the plan twice"));
    assert!(broken(|plan| plan.steps[0].host = address(9)).contains("not in the plan"));
}
