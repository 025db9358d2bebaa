use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kubeon_api::ClusterName;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Spec {
    masters: Vec<String>,
}

type State = ClusterState<Spec>;

fn name(text: &str) -> ClusterName {
    text.parse().unwrap()
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("home"));
    (folder, store)
}

fn saved(store: &Store, cluster: &str) -> State {
    let lock = store.lock(&name(cluster), "kubeon create").unwrap();
    let mut state = ClusterState::new(name(cluster), Spec { masters: vec!["172.30.0.11".into()] });
    state.logins.insert(
        "172.30.0.11".parse().unwrap(),
        HostLogin { user: "root".into(), port: 22, key_files: vec!["/k".into()], jump: None },
    );
    store.save(&lock, &mut state).unwrap();
    state
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn finds_its_folder_from_the_environment() {
    let os = |text: &str| Some(text.into());
    assert_eq!(base_folder(os("/k"), os("/home/a")).unwrap(), Path::new("/k"));
    assert_eq!(base_folder(None, os("/home/a")).unwrap(), Path::new("/home/a/.kubeon"));
    assert_eq!(base_folder(os(""), os("/home/a")).unwrap(), Path::new("/home/a/.kubeon"));
    assert!(matches!(base_folder(None, os("")), Err(StoreError::NoHome)));
}

#[test]
fn a_saved_state_is_read_back_and_listed() {
    let (_folder, store) = store();
    assert!(store.list().unwrap().is_empty());
    let b = saved(&store, "b");
    let a = saved(&store, "a");
    assert_eq!(store.load::<Spec>(&name("a")).unwrap(), a);
    assert_eq!(store.load::<Spec>(&name("b")).unwrap(), b);
    fs::write(store.base().join("Not A Cluster.json"), "{}").unwrap();
    assert_eq!(store.list().unwrap(), [name("a"), name("b")]);
    assert_ne!(a.uid, b.uid);
}

#[test]
fn a_file_of_another_program_is_no_cluster_and_a_damaged_state_is_one() {
    let (_folder, store) = store();
    saved(&store, "demo");
    let file = |name: &str| store.base().join(name);
    for (name, text) in
        [("index.json", r#"{"manifests": []}"#), ("list.json", "[]"), ("cut.json", r#"{"sche"#)]
    {
        fs::write(file(name), text).unwrap();
    }
    let clusters = vec![name("cut"), name("demo")];
    let others = vec![file("index.json"), file("list.json")];
    assert_eq!(store.contents().unwrap(), StoreContents { clusters, others });
    assert_eq!(store.list().unwrap(), [name("cut"), name("demo")]);
}

#[test]
fn a_cluster_is_on_no_host_before_its_first_generation() {
    let new = ClusterState::new(name("demo"), Spec { masters: Vec::new() });
    assert!(!new.may_be_on_hosts());
    assert!(State { generation: 1, ..new.clone() }.may_be_on_hosts());
    assert!(State { status: Status::Running, ..new }.may_be_on_hosts());
}

#[test]
fn all_files_and_folders_are_private() {
    let (_folder, store) = store();
    saved(&store, "demo");
    saved_again(&store);
    let lock = store.lock(&name("demo"), "kubeon use").unwrap();
    let kubeconfig = store.save_kubeconfig(&lock, "kind: Config").unwrap();
    let hosts = store.save_known_hosts(&lock, "").unwrap();
    store.set_current(&name("demo")).unwrap();
    for file in [&kubeconfig, &hosts, &store.state_path(&name("demo")), &store.backup_path(&name("demo"))] {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    for folder in ["", "conf", "conf/cluster", "known_hosts", "lock"] {
        assert_eq!(mode(&store.base().join(folder)), 0o700, "{folder}");
    }
}

/// Another process has the open file too, such as a child process between fork and exec.
#[test]
fn a_dropped_lock_is_free_while_its_file_is_open_elsewhere() {
    let (_folder, store) = store();
    saved(&store, "demo");
    let lock = store.lock(&name("demo"), "kubeon add").unwrap();
    let second_handle = lock.second_handle();
    assert!(store.lock(&name("demo"), "kubeon use").is_err());
    drop(lock);
    store.lock(&name("demo"), "kubeon use").unwrap();
    drop(second_handle);
}

fn saved_again(store: &Store) {
    let lock = store.lock(&name("demo"), "kubeon add").unwrap();
    let mut state: State = store.load(&name("demo")).unwrap();
    state.generation += 1;
    state.status = Status::Running;
    store.save(&lock, &mut state).unwrap();
}

#[test]
fn a_truncated_state_is_refused_with_a_remedy() {
    let (_folder, store) = store();
    saved(&store, "demo");
    saved_again(&store);
    let path = store.state_path(&name("demo"));
    let complete = fs::read(&path).unwrap();
    fs::write(&path, &complete[..complete.len() / 2]).unwrap();
    let error = store.load::<Spec>(&name("demo")).unwrap_err();
    assert!(error.to_string().contains("is damaged: EOF"), "{error}");
    let Some(StoreRemedy::RestorePrevious { backup, path: damaged, .. }) = error.remedy() else {
        panic!("there is a previous state: {error:?}")
    };
    assert_eq!(*damaged, path);

    fs::copy(backup, damaged).unwrap();
    assert_eq!(store.load::<Spec>(&name("demo")).unwrap().generation, 0);
}

#[test]
fn a_damaged_state_never_becomes_the_backup() {
    let (_folder, store) = store();
    let mut state = saved(&store, "demo");
    saved_again(&store);
    let good = fs::read(store.backup_path(&name("demo"))).unwrap();
    fs::write(store.state_path(&name("demo")), "{\"schema\":1,").unwrap();
    let lock = store.lock(&name("demo"), "kubeon create").unwrap();
    store.save(&lock, &mut state).unwrap();
    assert_eq!(fs::read(store.backup_path(&name("demo"))).unwrap(), good);
}

#[test]
fn reports_a_damaged_state_without_a_backup() {
    let (_folder, store) = store();
    saved(&store, "demo");
    fs::write(store.state_path(&name("demo")), "").unwrap();
    let error = store.load::<Spec>(&name("demo")).unwrap_err();
    assert_eq!(error.remedy(), Some(&StoreRemedy::RestoreFile), "{error}");
}

#[test]
fn refuses_newer_foreign_and_misnamed_files() {
    let (_folder, store) = store();
    saved(&store, "demo");
    let path = store.state_path(&name("demo"));
    let complete = fs::read_to_string(&path).unwrap();
    let read = |text: &str| {
        fs::write(&path, text).unwrap();
        store.load::<Spec>(&name("demo")).unwrap_err()
    };
    let newer = read(&complete.replace("\"schema\": 1", "\"schema\": 7"));
    assert!(matches!(newer, StoreError::Newer { found: 7, .. }), "{newer}");
    let foreign = read(r#"{"name":"demo","apiIP":"10.64.0.1","controlPlanes":[],"status":"running"}"#);
    assert!(foreign.to_string().contains("made by another kubeon"), "{foreign}");
    let renamed = read(&complete.replace("\"name\": \"demo\"", "\"name\": \"prod\""));
    assert!(renamed.to_string().contains("it is the state of prod"), "{renamed}");
    let unknown = read(&complete.replace("\"creating\"", "\"dancing\""));
    assert!(unknown.to_string().contains("dancing"), "{unknown}");
}

#[test]
fn older_programs_refuse_a_cluster_with_older_nodes() {
    let (_folder, store) = store();
    let mut state = saved(&store, "demo");
    let saved_text = |state: &mut State| {
        let lock = store.lock(&state.name, "kubeon rollback").unwrap();
        store.save(&lock, state).unwrap();
        fs::read_to_string(store.state_path(&state.name)).unwrap()
    };
    assert!(!saved_text(&mut state).contains("nodesAt"), "other clusters do not have the field");
    state.set_nodes_at("v1.35.7".parse().ok());
    state.status = Status::ChangingNodes;
    let text = saved_text(&mut state);
    assert!(text.contains("\"schema\": 6") && text.contains("changingNodes"), "{text}");
    assert_eq!(store.load::<Spec>(&name("demo")).unwrap(), state);
    state.set_nodes_at(None);
    assert_eq!(state.schema, 6, "an older program may not know what the nodes had");
}

#[test]
fn a_missing_cluster_is_named() {
    let (_folder, store) = store();
    let error = store.load::<Spec>(&name("nosuch")).unwrap_err().to_string();
    assert_eq!(error, "Cluster[nosuch] not exist, please create");
    assert!(store.set_current(&name("nosuch")).is_err());
}

#[test]
fn a_second_holder_sees_the_first_one() {
    let (_folder, store) = store();
    let lock = store.lock(&name("demo"), "kubeon create").unwrap();
    let error = store.lock(&name("demo"), "kubeon add").unwrap_err().to_string();
    let start = format!("demo is locked by \"kubeon create\" (pid {} on ", std::process::id());
    assert!(error.starts_with(&start), "{error}");
    let time = error.split("since ").nth(1).unwrap();
    assert_eq!(time.len(), "14:02:11)".len(), "{error}");
    assert!(store.lock(&name("other"), "kubeon add").is_ok());
    drop(lock);
    assert!(store.lock(&name("demo"), "kubeon add").is_ok());
}

#[test]
fn a_state_that_was_saved_since_it_was_read_is_not_overwritten() {
    let (_folder, store) = store();
    let demo = name("demo");
    let none: Option<&State> = None;
    let changed =
        |read: Option<&State>| matches!(store.lock_as_read(&demo, "x", read), Err(StoreError::Changed(_)));
    assert!(store.lock_as_read(&demo, "kubeon create", none).is_ok(), "no state was read, and none exists");
    saved(&store, "demo");
    assert!(changed(none), "another command created it meanwhile");
    let read: State = store.load(&demo).unwrap();
    assert!(store.lock_as_read(&demo, "kubeon create", Some(&read)).is_ok());
    saved_again(&store);
    assert!(changed(Some(&read)), "another command saved it meanwhile");
    let read: State = store.load(&demo).unwrap();
    let lock = store.lock_as_read(&demo, "kubeon destroy", Some(&read)).unwrap();
    let second = store.lock_as_read(&demo, "kubeon create", Some(&read)).unwrap_err();
    assert!(second.to_string().starts_with("demo is locked by \"kubeon destroy\""), "{second}");
    store.remove(&lock, &demo).unwrap();
    drop(lock);
    assert!(changed(Some(&read)), "another command removed it meanwhile");
    saved(&store, "demo");
    assert!(changed(Some(&read)), "this is another cluster of the same name");
}

#[test]
fn a_killed_holder_leaves_the_lock_free() {
    let (_folder, store) = store();
    drop(store.lock(&name("demo"), "kubeon create").unwrap());
    let path = store.base().join("lock/demo");
    let mut holder = Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .args(["sleep", "60"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let free = || store.lock(&name("demo"), "kubeon add").is_ok();
    let until = |wanted: bool| {
        let start = Instant::now();
        while free() != wanted && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        free() == wanted
    };
    assert!(until(false), "the other process has the lock");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(until(true), "the lock is free");
}

#[test]
fn a_lock_covers_its_own_cluster_only() {
    let (_folder, store) = store();
    let mut state = saved(&store, "demo");
    let lock = store.lock(&name("prod"), "kubeon create").unwrap();
    assert!(matches!(store.save(&lock, &mut state), Err(StoreError::WrongLock { .. })));
    assert!(matches!(store.remove(&lock, &name("demo")), Err(StoreError::WrongLock { .. })));
}

#[test]
fn removing_a_cluster_removes_all_its_files_and_no_others() {
    let (_folder, store) = store();
    saved(&store, "demo");
    saved(&store, "demo-2");
    saved_again(&store);
    let (demo, other) = (name("demo"), name("demo-2"));
    let lock = store.lock(&demo, "kubeon destroy").unwrap();
    fs::create_dir_all(store.secret_folder(&demo)).unwrap();
    fs::write(store.secret_folder(&demo).join("sa.pem"), "x").unwrap();
    store.save_kubeconfig(&lock, "x").unwrap();
    store.save_known_hosts(&lock, "x").unwrap();
    store.set_current(&demo).unwrap();
    store.remove(&lock, &demo).unwrap();
    store.remove(&lock, &demo).unwrap();
    assert_eq!(store.list().unwrap(), std::slice::from_ref(&other));
    assert_eq!(store.current().unwrap(), None);
    let left = Command::new("find").arg(store.base()).args(["-type", "f"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    let mut left: Vec<_> = left.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(
        left,
        ["demo", "demo-2", "demo-2.json"],
        "the state of the other cluster and the two lock files"
    );
}

#[test]
fn a_login_has_no_field_for_a_password() {
    let text = r#"{"user":"root","port":22,"password":"x"}"#;
    assert!(serde_json::from_str::<HostLogin>(text).is_err());
}

#[test]
fn the_chosen_cluster_is_remembered() {
    let (_folder, store) = store();
    saved(&store, "demo");
    assert_eq!(store.current().unwrap(), None);
    store.set_current(&name("demo")).unwrap();
    assert_eq!(store.current().unwrap(), Some(name("demo")));
    fs::write(store.base().join("current"), "Not a name\n").unwrap();
    assert_eq!(store.current().unwrap_err().remedy(), Some(&StoreRemedy::ChooseCluster));
}
