//! Changes of masters and of the version.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, list, object, phase, running, saved, wanted, world};
use crate::settings::Callback;
use crate::testing::World;
use crate::write::ObjectKind;

const APPLIED: &str = "app.kubernetes.io/spec";

fn declare(world: &mut World, cluster: &Value) {
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    let patch = json!({"spec": {"cluster": cluster}, "metadata": {"generation": generation}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

fn request(world: &mut World, word: &str) {
    let patch = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

/// A list of the applied cluster.
fn applied(world: &World, field: &str) -> Value {
    let text = object(world)["metadata"]["annotations"][APPLIED].as_str().unwrap();
    serde_json::from_str::<Value>(text).unwrap()["cluster"][field].clone()
}

fn operation(world: &World) -> (String, String) {
    let job = job(world);
    (env(&job, "OPERATION"), env(&job, "NODE_HOSTS"))
}

fn texts(operation: &str, hosts: &str) -> (String, String) {
    (operation.to_owned(), hosts.to_owned())
}

/// The version of the bundle of the running Job.
fn bundle(world: &World) -> String {
    let text = job(world).to_string();
    let (_, rest) = text.split_once("kubeon/kubeon-bundle:").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn a_master_is_replaced_by_one_operation() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"masterList": list(&["10.0.0.9", "10.0.0.1"])}));
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.9,10.0.0.3"));
    assert_eq!(applied(&world, "masterList"), list(&["10.0.0.1", "10.0.0.3"]));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "scale-up-finished".into()));
    assert_eq!(
        applied(&world, "masterList"),
        list(&["10.0.0.1", "10.0.0.9"]),
        "the order of the others stays"
    );
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_master_that_leaves_is_removed_after_workers_were_added() {
    let mut world = running(&["10.0.0.2"]);
    let change = json!({"masterList": list(&["10.0.0.1"]), "nodeList": list(&["10.0.0.2", "10.0.0.4"])});
    declare(&mut world, &change);
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.4"));
    ends(&mut world, "Complete");
    assert_eq!(applied(&world, "masterList"), list(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(operation(&world), texts("scaling-down", "10.0.0.3"));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), applied(&world, "masterList")), ("Running".into(), list(&["10.0.0.1"])));
    assert_eq!(world.settle(), 0);
}

/// A cluster that runs with five hosts of etcd and one worker: of three none can leave alone, and two are a majority.
fn with_etcd_hosts() -> World {
    let mut world = world(&["10.0.0.2"]);
    let etcd = list(&["10.0.0.20", "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24"]);
    let patch = json!({"spec": {"cluster": {"etcdList": etcd}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
    saved(&mut world);
    ends(&mut world, "Complete");
    world
}

#[test]
fn hosts_of_etcd_are_added_replaced_and_removed() {
    let mut world = with_etcd_hosts();
    let replaced = ["10.0.0.25", "10.0.0.20", "10.0.0.21", "10.0.0.22", "10.0.0.23"];
    declare(&mut world, &json!({"etcdList": list(&replaced)}));
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.25,10.0.0.24"));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "scale-up-finished".into()));
    let order = ["10.0.0.20", "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.25"];
    assert_eq!(applied(&world, "etcdList"), list(&order));
    let fewer = list(&["10.0.0.20", "10.0.0.21", "10.0.0.22"]);
    declare(&mut world, &json!({"etcdList": fewer}));
    assert_eq!(operation(&world), texts("scaling-down", "10.0.0.23,10.0.0.25"));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), applied(&world, "etcdList")), ("Running".into(), fewer));
    assert_eq!(applied(&world, "masterList"), list(&["10.0.0.1", "10.0.0.3"]));
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_host_of_etcd_leaves_after_workers_were_added() {
    let mut world = with_etcd_hosts();
    let fewer = list(&["10.0.0.20", "10.0.0.21", "10.0.0.22"]);
    let change = json!({"etcdList": fewer, "nodeList": list(&["10.0.0.2", "10.0.0.4"])});
    declare(&mut world, &change);
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.4"));
    ends(&mut world, "Complete");
    let all = ["10.0.0.20", "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24"];
    assert_eq!(applied(&world, "etcdList"), list(&all));
    assert_eq!(operation(&world), texts("scaling-down", "10.0.0.23,10.0.0.24"));
}

#[test]
fn changes_of_hosts_of_etcd_that_no_operation_makes_are_refused_by_name() {
    for (change, said) in [
        (json!({"etcdList": null}), "cannot be changed yet: spec.cluster.etcdList"),
        (json!({"etcdList": list(&["10.0.0.29"])}), "spec.cluster.etcdList: one host of etcd must stay"),
        (
            json!({"etcdList": list(&["10.0.0.20", "10.0.0.22", "10.0.0.23"]), "nodeList": list(&["10.0.0.2", "10.0.0.21"])}),
            "10.0.0.21 has another role",
        ),
    ] {
        let mut world = with_etcd_hosts();
        let jobs = world.jobs().len();
        declare(&mut world, &change);
        assert_eq!((phase(&world), world.jobs().len()), ("Running".into(), jobs), "{change}");
        let reason = object(&world)["status"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(said), "{reason}");
    }
}

#[test]
fn an_upgrade_visits_each_minor_version() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"kubeVersion": "v1.38.1"}));
    for version in ["v1.37.2", "v1.38.1"] {
        assert_eq!((operation(&world), bundle(&world)), (texts("updating", ""), version.into()));
        let before = if version == "v1.37.2" { "v1.36.3" } else { "v1.37.2" };
        assert!(
            job(&world).to_string().contains(&format!("kubeon/kubeon-bundle:{before}")),
            "both are needed"
        );
        let later = job(&world).to_string().contains(r#""name":"LATER_VERSIONS","value":"1""#);
        assert_eq!(later, version == "v1.37.2", "the disks need space for the whole way");
        ends(&mut world, "Complete");
        assert_eq!(applied(&world, "kubeVersion"), version);
        assert_eq!(object(&world)["status"]["version"], version);
    }
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "update-finished".into()));
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_failed_upgrade_is_continued_before_hosts_change() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"kubeVersion": "v1.36.4"}));
    ends(&mut world, "Failed");
    assert_eq!((phase(&world), wanted(&world)), ("Failed".into(), "update-failed".into()));
    assert_eq!(world.settle(), 0, "a person decides");
    declare(&mut world, &json!({"nodeList": list(&["10.0.0.2", "10.0.0.4"])}));
    assert_eq!(operation(&world), texts("updating", ""));
    ends(&mut world, "Failed");
    request(&mut world, "updating");
    assert_eq!(operation(&world), texts("updating", ""));
    ends(&mut world, "Complete");
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.4"));
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
    assert_eq!(applied(&world, "kubeVersion"), "v1.36.4");
}

#[test]
fn an_upgrade_that_is_taken_back_is_repaired() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"kubeVersion": "v1.36.4"}));
    ends(&mut world, "Failed");
    declare(&mut world, &json!({"kubeVersion": null}));
    assert_eq!(operation(&world), texts("repairing", ""));
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
    request(&mut world, "updating");
    assert_eq!(wanted(&world), "update-finished", "nothing is left to do");
}

/// Whether the Job has the bundle of this version.
fn has_bundle(world: &World, version: &str) -> bool {
    job(world).to_string().contains(&format!("kubeon/kubeon-bundle:{version}\""))
}

/// An upgrade waits for a master that is lost. The engine goes back, or on with the version that it cannot leave any more, and
/// replaces the master.
#[test]
fn a_lost_master_is_replaced_with_the_old_version_declared_again() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"kubeVersion": "v1.37.2"}));
    ends(&mut world, "Failed");
    let reason = object(&world)["status"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("declare spec.cluster.kubeVersion v1.36.3 again"), "{reason}");
    let masters = list(&["10.0.0.1", "10.0.0.9"]);
    declare(&mut world, &json!({"masterList": masters}));
    assert_eq!(operation(&world), texts("updating", ""), "the upgrade comes first");
    ends(&mut world, "Failed");
    declare(&mut world, &json!({"kubeVersion": "v1.36.3"}));
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.9,10.0.0.3"));
    assert!(has_bundle(&world, "v1.36.3") && has_bundle(&world, "v1.37.2"), "it may go on or back");
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), applied(&world, "masterList")), ("Running".into(), masters));
    assert_eq!(object(&world)["status"]["reason"], Value::Null);
    declare(&mut world, &json!({"kubeVersion": "v1.37.2"}));
    assert_eq!(operation(&world), texts("updating", ""));
    ends(&mut world, "Complete");
    declare(&mut world, &json!({"nodeList": list(&["10.0.0.2", "10.0.0.4"])}));
    assert!(has_bundle(&world, "v1.37.2") && !has_bundle(&world, "v1.36.3"), "no upgrade is open");
}

/// The old version first, alone: the way back waits for the lost master, and the change of masters follows.
#[test]
fn a_lost_master_is_replaced_after_the_old_version_was_declared_again() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"kubeVersion": "v1.37.2"}));
    ends(&mut world, "Failed");
    declare(&mut world, &json!({"kubeVersion": "v1.36.3"}));
    assert_eq!(operation(&world), texts("repairing", ""));
    ends(&mut world, "Failed");
    declare(&mut world, &json!({"masterList": list(&["10.0.0.1", "10.0.0.9"])}));
    assert_eq!(operation(&world), texts("scaling-up", "10.0.0.9,10.0.0.3"));
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
}

#[test]
fn settings_and_labels_change_after_the_version() {
    let mut world = running(&["10.0.0.2"]);
    let labelled = json!([{"ip": "10.0.0.2", "labels": {"disk": "ssd"},
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}]);
    declare(
        &mut world,
        &json!({"kubeVersion": "v1.37.2", "nodeList": labelled, "extraArgs": {"kubelet": {"v": "4"}},
            "kernelParameters": {"vm.max_map_count": "262144"}, "featureGates": "AllAlpha=false",
            "network": {"mtu": 1400}}),
    );
    assert_eq!((operation(&world), bundle(&world)), (texts("updating", ""), "v1.37.2".into()));
    ends(&mut world, "Complete");
    assert_eq!(applied(&world, "extraArgs"), Value::Null, "the version is a change of its own");
    assert_eq!((operation(&world), bundle(&world)), (texts("updating", ""), "v1.37.2".into()));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "update-finished".into()));
    assert_eq!(applied(&world, "extraArgs"), json!({"kubelet": {"v": "4"}}));
    assert_eq!(applied(&world, "kernelParameters"), json!({"vm.max_map_count": "262144"}));
    assert_eq!(applied(&world, "nodeList"), labelled);
    assert_eq!(world.settle(), 0);
}

#[test]
fn contract_b_has_no_callback_for_an_upgrade() {
    let mut world = running(&["10.0.0.2"]);
    let url = "https://gateway.example:8443".parse().unwrap();
    world.settings.callback = Some(Callback { url, authorities: None });
    declare(&mut world, &json!({"kubeVersion": "v1.36.4"}));
    assert!(!job(&world).to_string().contains("--callback-url"));
    ends(&mut world, "Complete");
    declare(&mut world, &json!({"nodeList": list(&["10.0.0.2", "10.0.0.4"])}));
    assert!(job(&world).to_string().contains("--callback-url"));
}
