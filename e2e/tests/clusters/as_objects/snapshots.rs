//! The operator writes snapshots of a declared cluster to an object store: by its schedule and on request. The cluster is deleted,
//! and made again out of its newest snapshot: from the command line, and by an object.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use kubeon_envtest::TestObjectStore;
use serde_json::{Value, json};

use super::declared_cluster::{NAME, NAMESPACE, declared, kubeconfig, wait_up_to_date};
use super::environment::{MetaCluster, condition};
use super::{MINUTE, print_time};

pub(super) const SECRET: &str = "store";
pub(super) const FOLDER: &str = "s3://backups/shop/";

#[test]
#[ignore = "compiles an object store: ./test long"]
fn soak_snapshots_of_a_declared_cluster_are_taken_and_restored() -> Result<()> {
    let meta = MetaCluster::create_in("e2e-meta-snapshots", 2)?;
    let store = TestObjectStore::start("backups", meta.lab.machine()?.parse()?)?;
    meta.apply(&declared(NAME, VERSION, meta.address("h2")?, &[]))?;
    wait_up_to_date(&meta, "create-finished")?;
    let sealed = ["create", "secret", "generic", "sealed", "--from-literal=word=kept"];
    meta.kubectl_with(&kubeconfig(&meta)?, &sealed)?;

    let refused = meta.request_operation(NAME, "snapshotting").err().map(|error| error.to_string());
    ensure!(refused.as_ref().is_some_and(|text| text.contains("spec.snapshots")), "{refused:?}");
    let key = meta.lab.file("snapshot.key").display().to_string();
    meta.lab.must(&["etcd", "new-key", &key])?;
    secret(&meta, &store, store.secret_key(), &key)?;
    let snapshots = json!({"folder": FOLDER, "endpoint": store.endpoint(), "everyHours": 24, "keep": 1,
        "credentialsRef": {"name": SECRET}});
    meta.patch(&["ecs", NAME], &json!({"spec": {"snapshots": snapshots}}))?;
    let first = taken(&meta, &Value::Null)?;

    fails_with_other_credentials(&meta, &store, &key)?;
    secret(&meta, &store, store.secret_key(), &key)?;
    meta.request_operation(NAME, "snapshotting")?;
    taken(&meta, &first)?;
    let names = objects(&store)?;
    ensure!(names.len() == 2, "one snapshot stays: {names:?}");
    let snapshot = format!("{FOLDER}{}", names[0]);
    restored(&meta, &store, &snapshot, &key)?;
    restored_by_object(&meta, &store, &snapshot)
}

/// The Secret of the store.
pub(super) fn secret(meta: &MetaCluster, store: &TestObjectStore, secret_key: &str, key: &str) -> Result<()> {
    let credentials = format!(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {secret_key}\n",
        TestObjectStore::ACCESS_KEY
    );
    meta.apply(&json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "stringData": {"credentials": credentials, "snapshot.key": fs::read_to_string(key)?,
            "ca.crt": fs::read_to_string(store.authority())?}}))
}

/// Waits for a newer snapshot than `before`, and returns its time.
fn taken(meta: &MetaCluster, before: &Value) -> Result<Value> {
    let start = std::time::Instant::now();
    let status = meta.eventually("a snapshot is taken", MINUTE * 3, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let time = &status["snapshots"]["lastSuccessTime"];
        ensure!(time.is_string() && time != before && status["phase"] == "Running", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    print_time("a snapshot", start);
    let found = condition(&status, "SnapshotTaken").context("no condition SnapshotTaken")?;
    ensure!(found["status"] == "True" && found["message"] == format!("in {FOLDER}"), "{found:#}");
    Ok(status["snapshots"]["lastSuccessTime"].clone())
}

/// A snapshot that the store refuses is reported, and the cluster stays as it is.
fn fails_with_other_credentials(meta: &MetaCluster, store: &TestObjectStore, key: &str) -> Result<()> {
    secret(meta, store, "wrong", key)?;
    meta.request_operation(NAME, "snapshotting")?;
    let status = meta.eventually("the failure is reported", MINUTE * 3, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let found = condition(&status, "SnapshotTaken").context("no condition SnapshotTaken")?;
        ensure!(found["status"] == "False", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    let message = condition(&status, "SnapshotTaken").context("no condition")?["message"].to_string();
    ensure!(message.contains("refuses s3://backups/shop/"), "{message}");
    let ready = condition(&status, "Ready").context("no condition Ready")?;
    ensure!(status["phase"] == "Running" && ready["status"] == "True", "{status:#}");
    Ok(())
}

/// A new object names the snapshot.
fn restored_by_object(meta: &MetaCluster, store: &TestObjectStore, snapshot: &str) -> Result<()> {
    let start = std::time::Instant::now();
    let mut object = declared(NAME, VERSION, meta.address("h2")?, &[]);
    object["spec"]["snapshots"] = json!({"folder": FOLDER, "endpoint": store.endpoint(), "restoreFrom": snapshot,
        "credentialsRef": {"name": SECRET}});
    meta.apply(&object)?;
    wait_up_to_date(meta, "create-finished")?;
    print_time("the restore by an object", start);
    let word = ["get", "secret", "sealed", "-o", "jsonpath={.data.word}"];
    let word = meta.kubectl_with(&kubeconfig(meta)?, &word)?;
    ensure!(word == "a2VwdA==", "the Secret can be read: {word}");
    meta.kubectl(&["delete", "ecs", NAME, "--timeout=180s"]).map(drop)
}

/// The names of the objects in the folder of the snapshots, sorted.
pub(super) fn objects(store: &TestObjectStore) -> Result<Vec<String>> {
    let entries = fs::read_dir(store.data().join("backups/shop"))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

fn restored(meta: &MetaCluster, store: &TestObjectStore, snapshot: &str, key: &str) -> Result<()> {
    meta.kubectl(&["delete", "ecs", NAME, "--timeout=180s"])?;
    let environment = store.environment();
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let start = std::time::Instant::now();
    // The state names the login of the Job, which this machine does not have.
    let login = meta.lab.key().display().to_string();
    let restore = ["etcd", "restore", NAME, snapshot, "--key", key, "--default-pk-file", &login];
    let answer = meta.lab.kubeon_with(&restore, &environment)?;
    ensure!(answer.code == 0, "{answer:?}");
    print_time("the restore from the command line", start);
    let word = ["get", "secret", "sealed", "-o", "jsonpath={.data.word}"];
    meta.lab.must(&["use", NAME])?;
    let word = meta.lab.kubectl(NAME, &word)?;
    ensure!(word == "a2VwdA==", "the Secret can be read: {word}");
    meta.lab.must(&["destroy", NAME, "--yes"]).map(drop)
}
