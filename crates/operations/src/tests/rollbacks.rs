//! The way back to a snapshot of an older version.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, saved, wanted};
use super::snapshots::declared;
use crate::testing::World;
use crate::write::ObjectKind;

const SNAPSHOT: &str = "s3://backups/shop/20260131T120000Z-v1.36.3.db";

fn change(world: &mut World, word: Option<&str>, spec: &Value) {
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    let mut patch = json!({"spec": spec, "metadata": {"generation": generation}});
    if let Some(word) = word {
        patch["metadata"]["annotations"] = json!({"app.kubernetes.io/operation": word});
    }
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

/// A cluster that was upgraded from v1.36.3 to v1.37.2.
fn upgraded() -> World {
    let mut world = declared(&json!({}));
    change(&mut world, None, &json!({"cluster": {"kubeVersion": "v1.37.2"}}));
    let upgrade = job(&world);
    assert_eq!(env(&upgrade, "OPERATION"), "updating");
    assert_eq!(env(&upgrade, "SNAPSHOT_FOLDER"), "s3://backups/shop/", "a snapshot comes before the upgrade");
    ends(&mut world, "Complete");
    assert_eq!(object(&world)["status"]["version"], "v1.37.2");
    world
}

fn asked() -> World {
    let mut world = upgraded();
    let back = json!({"cluster": {"kubeVersion": "v1.36.3"}, "snapshots": {"restoreFrom": SNAPSHOT}});
    change(&mut world, Some("rollbacking"), &back);
    world
}

#[test]
fn a_cluster_returns_to_a_snapshot_of_an_older_version() {
    let mut world = asked();
    let back = job(&world);
    assert!(back["metadata"]["name"].as_str().unwrap().starts_with("rollback-"), "{back:#}");
    assert_eq!(
        (env(&back, "OPERATION").as_str(), env(&back, "SNAPSHOT_RESTORE").as_str()),
        ("rollbacking", SNAPSHOT)
    );
    assert!(back.to_string().contains("kubeon-bundle:v1.36.3"), "{back:#}");
    assert_eq!(phase(&world), "Updating");
    let why = back["metadata"]["annotations"]["kubeon.io/why"].to_string();
    assert!(why.contains("v1.37.2 returns to v1.36.3") && why.contains(SNAPSHOT), "{why}");
    saved(&mut world);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "rollback-finished"));
    assert_eq!(object(&world)["status"]["version"], "v1.36.3");
    assert_eq!(world.settle(), 0);
    change(&mut world, None, &json!({"cluster": {"kubeVersion": "v1.37.2"}}));
    assert_eq!(env(&job(&world), "OPERATION"), "updating", "and it can be upgraded again");
}

#[test]
fn a_rollback_that_failed_is_continued_on_request() {
    let mut world = asked();
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Failed", "rollback-failed"));
    assert_eq!(world.settle(), 0, "only on request");
    change(&mut world, Some("rollbacking"), &json!({}));
    assert_eq!(env(&job(&world), "OPERATION"), "rollbacking");
    ends(&mut world, "Complete");
    assert_eq!(wanted(&world), "rollback-finished");
}

#[test]
fn a_rollback_that_failed_before_its_first_change_can_be_given_up() {
    let mut world = asked();
    ends(&mut world, "Failed");
    change(&mut world, None, &json!({"cluster": {"kubeVersion": "v1.37.2"}}));
    assert_eq!(env(&job(&world), "OPERATION"), "repairing");
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "repair-finished"));
}

#[test]
fn a_rollback_without_a_snapshot_or_with_other_changes_is_refused() {
    let mut world = upgraded();
    change(&mut world, Some("rollbacking"), &json!({"cluster": {"kubeVersion": "v1.36.3"}}));
    assert_eq!(phase(&world), "Failed");
    let reason = object(&world)["status"]["reason"].to_string();
    assert!(reason.contains("spec.snapshots.restoreFrom names no snapshot"), "{reason}");

    let mut world = upgraded();
    let more = json!({"cluster": {"kubeVersion": "v1.36.3", "nodeList": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.8"}]},
        "snapshots": {"restoreFrom": SNAPSHOT}});
    change(&mut world, Some("rollbacking"), &more);
    let status = object(&world)["status"].to_string();
    assert!(status.contains("rollbacking changes spec.cluster.kubeVersion alone"), "{status}");
}

#[test]
fn an_upgrade_without_a_place_for_snapshots_and_a_change_of_settings_need_no_store() {
    let mut world = declared(&json!({}));
    change(&mut world, None, &json!({"cluster": {"network": {"nodePortRange": "30000-31000"}}}));
    let variables = job(&world)["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
    assert!(variables.contains("updating") && !variables.contains("SNAPSHOT_FOLDER"), "{variables}");
    let mut world = super::kubernetes_cluster::running(&["10.0.0.2"]);
    change(&mut world, None, &json!({"cluster": {"kubeVersion": "v1.37.2"}}));
    let variables = job(&world)["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
    assert!(variables.contains("updating") && !variables.contains("SNAPSHOT_FOLDER"), "{variables}");
}
