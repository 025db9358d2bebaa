//! A declared cluster returns to the snapshot that its upgrade wrote to an object store. The runner is killed on the way.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{NEXT, VERSION};
use kubeon_envtest::TestObjectStore;
use serde_json::json;

use super::declared_cluster::{NAME, declared, kill_runner, kubeconfig, wait_nodes_ready, wait_up_to_date};
use super::environment::MetaCluster;
use super::masters_and_versions::{declare, load_next_bundle};
use super::print_time;
use super::snapshots::{FOLDER, SECRET, objects, secret};

#[test]
#[ignore = "builds a second version of Kubernetes and an object store: ./test long"]
fn soak_a_declared_cluster_returns_to_the_snapshot_of_its_upgrade() -> Result<()> {
    let meta = MetaCluster::create_in("e2e-meta-rollback", 3)?;
    load_next_bundle(&meta)?;
    let store = TestObjectStore::start("backups", meta.lab.machine()?.parse()?)?;
    meta.apply(&declared(NAME, VERSION, meta.address("h2")?, &[meta.address("h3")?]))?;
    wait_up_to_date(&meta, "create-finished")?;
    let key = meta.lab.file("snapshot.key").display().to_string();
    meta.lab.must(&["etcd", "new-key", &key])?;
    secret(&meta, &store, store.secret_key(), &key)?;
    let snapshots =
        json!({"folder": FOLDER, "endpoint": store.endpoint(), "credentialsRef": {"name": SECRET}});
    meta.patch(&["ecs", NAME], &json!({"spec": {"snapshots": snapshots}}))?;
    create(&meta, "before")?;

    declare(&meta, &json!({"kubeVersion": NEXT}))?;
    wait_up_to_date(&meta, "update-finished")?;
    create(&meta, "after")?;
    let names = objects(&store)?;
    let snapshot = names.iter().find(|name| name.ends_with(&format!("-{VERSION}.db")));
    let snapshot = format!("{FOLDER}{}", snapshot.with_context(|| format!("no snapshot: {names:?}"))?);

    refuses_an_incomplete_request(&meta)?;
    let start = Instant::now();
    let back = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "rollbacking"}},
        "spec": {"cluster": {"kubeVersion": VERSION}, "snapshots": {"restoreFrom": snapshot}}});
    meta.patch(&["ecs", NAME], &back)?;
    kill_runner(&meta, "rollback-", "h3")?;
    meta.request_operation(NAME, "rollbacking")?;
    wait_up_to_date(&meta, "rollback-finished")?;
    print_time("a rollback of 1 + 1 with a killed runner", start);
    is_as_before(&meta)?;
    meta.kubectl(&["delete", "ecs", NAME, "--timeout=180s"]).map(drop)
}

fn create(meta: &MetaCluster, name: &str) -> Result<()> {
    let create = ["create", "configmap", name, "--from-literal=word=kept"];
    meta.kubectl_with(&kubeconfig(meta)?, &create).map(drop)
}

/// The word alone, and the older version alone.
fn refuses_an_incomplete_request(meta: &MetaCluster) -> Result<()> {
    let word = meta.request_operation(NAME, "rollbacking").err().map(|error| error.to_string());
    ensure!(word.as_ref().is_some_and(|text| text.contains("spec.snapshots.restoreFrom")), "{word:?}");
    let version = declare(meta, &json!({"kubeVersion": VERSION})).err().map(|error| error.to_string());
    ensure!(version.as_ref().is_some_and(|text| text.contains("downgrade")), "{version:?}");
    Ok(())
}

/// The nodes have the older version, and the API what the snapshot has.
fn is_as_before(meta: &MetaCluster) -> Result<()> {
    let kubeconfig = kubeconfig(meta)?;
    wait_nodes_ready(meta, &kubeconfig, 2)?;
    let versions = "jsonpath={.items[*].status.nodeInfo.kubeletVersion}";
    let versions = meta.kubectl_with(&kubeconfig, &["get", "nodes", "-o", versions])?;
    ensure!(versions.split(' ').count() == 2 && versions.split(' ').all(|one| one == VERSION), "{versions}");
    let maps = meta.kubectl_with(&kubeconfig, &["get", "configmaps", "-o", "name"])?;
    ensure!(maps.contains("configmap/before") && !maps.contains("configmap/after"), "{maps}");
    let status = meta.get(&["ecs", NAME])?["status"].clone();
    ensure!(status["version"] == VERSION, "{status:#}");
    Ok(())
}
