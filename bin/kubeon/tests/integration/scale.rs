//! Hosts that join, leave and are replaced: what is stored and what is refused, without contact to a host.

use sha2::{Digest as _, Sha256};

use crate::home::Home;

/// Stores a cluster that was completed.
fn running_cluster() -> Home {
    completed(Home::with_cluster("t"))
}

/// Marks the stored cluster as completed.
fn completed(home: Home) -> Home {
    let path = home.path().join(".kubeon/t.json");
    let state = std::fs::read_to_string(&path).unwrap().replace("\"generation\": 0", "\"generation\": 3");
    let state =
        state.replace("\"version\": null", "\"version\": \"v1.36.3\"").replace("\"creating\"", "\"running\"");
    std::fs::write(&path, state).unwrap();
    home
}

#[test]
fn workers_are_added_and_removed() {
    let home = running_cluster();
    home.kubeon(&["addon", "t", "-w", "127.0.2.2"]).refuses(&["Cluster ip is duplicate"]);
    home.kubeon(&["add", "t", "-m", "127.0.2.2", "-w", "127.0.2.1"]).refuses(&[
        "2 reasons",
        "-m 127.0.2.2",
        "-w 127.0.2.1",
        "Cluster ip is duplicate",
    ]);
    home.kubeon(&["add", "t"]).refuses(&["no host is named", "-w ADDRESS"]);
    home.kubeon(&["add", "nosuch", "-w", "127.0.2.3"]).refuses(&["Cluster[nosuch] not exist"]);
    home.kubeon(&["delon", "t", "@cp*"]).refuses(&["Selector[t@cp*] no master exists after delete"]);
    home.kubeon(&["del", "t", "ip=127.0.2.77"]).refuses(&["t has no node 127.0.2.77"]);
    home.kubeon(&["rm", "nosuch", "@w*"]).refuses(&["Cluster[nosuch] not exist"]);
    home.kubeon(&["del", "t", "@w*", "--without", "127.0.2.99"]).refuses(&["is not a host of t"]);
    let fewer = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1"];
    home.kubeon(&fewer).refuses(&["127.0.2.2 would leave t: not confirmed", "--yes"]);
    let written = home.kubeon(&[&fewer[..], &["--yes"]].concat());
    assert_eq!(written.code, 0, "{written:?}");
    let text = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(state["leaving"], serde_json::json!({"127.0.2.2": null}), "{text}");
    assert!(state["logins"]["127.0.2.2"].is_object(), "its login is needed for the removal");
    let back = [&fewer[..], &["-w", "127.0.2.2"]].concat();
    home.kubeon(&back).refuses(&["-w 127.0.2.2", "is being removed from t", "kubeon create t"]);
    home.kubeon(&["addon", "t", "-w", "127.0.2.2"]).refuses(&["is being removed from t"]);
    let kept = home.kubeon(&[&back[..], &["--take-back"]].concat());
    assert_eq!(kept.code, 0, "{kept:?}");
    let text = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(state["spec"]["workers"][0]["address"], "127.0.2.2", "{text}");
    assert_eq!(state["leaving"], serde_json::json!({"127.0.2.2": null}), "until the removal is undone");
    let more = [&back[..], &["-w", "127.0.2.3"]].concat();
    assert_eq!(home.kubeon(&more).code, 0, "a worker that was taken back does not block other changes");
}

fn state(home: &Home) -> serde_json::Value {
    let text = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn masters_are_added_and_removed() {
    let home = running_cluster();
    let create =
        ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "-w", "127.0.2.2", "--default-port", "1"];
    let more = home.kubeon(&[&create[..], &["-m", "127.0.2.3"]].concat());
    assert_eq!(more.code, 0, "{more:?}");
    assert_eq!(state(&home)["joiningMasters"], serde_json::json!(["127.0.2.3"]));
    assert_eq!(state(&home)["schema"], 3, "older programs refuse it");
    let given_up = home.kubeon(&create);
    given_up.refuses(&["127.0.2.3 would leave t: not confirmed"]);
    let given_up = home.kubeon(&[&create[..], &["--yes"]].concat());
    assert_eq!(given_up.code, 0, "{given_up:?}");
    assert_eq!(state(&home)["leavingMasters"], serde_json::json!({"127.0.2.3": "127.0.2.3"}));
    assert_eq!(state(&home)["joiningMasters"], serde_json::Value::Null);
    home.kubeon(&["addon", "t", "-m", "127.0.2.3"]).refuses(&["is being removed from t"]);
    let other = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.8", "-w", "127.0.2.2", "--default-port", "1"];
    home.kubeon(&other).refuses(&["no master of t would stay", "no master exists after delete"]);
    let swapped = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1,127.0.2.2", "--default-port", "1"];
    home.kubeon(&swapped).refuses(&["is a worker of t: remove it first"]);
}

#[test]
fn a_replacement_names_one_master_and_a_new_host() {
    let home = running_cluster();
    home.kubeon(&["replace", "t", "127.0.2.2", "127.0.2.9"])
        .refuses(&["is not a master of t", "kubeon addon t -w NEW"]);
    home.kubeon(&["replace", "t", "h7", "127.0.2.9"]).refuses(&["Invalid node selector \"@h7\""]);
    home.kubeon(&["replace", "t", "127.0.2.1", "127.0.2.2"]).refuses(&["Cluster ip is duplicate"]);
    home.kubeon(&["replace", "t", "127.0.2.1", "127.0.2.9"]).refuses(&["no master of t would stay"]);
    assert_eq!(home.kubeon(&["replace", "t", "127.0.2.1", "nowhere"]).code, 2);
    assert!(state(&home)["leaving"].is_null());
}

/// Writes a declaration with these hosts of etcd. Returns the path of the file.
fn declaration(home: &Home, etcd: &str) -> String {
    let file = home.path().join("t.yaml");
    let text = format!(
        "apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata: {{name: t}}\nspec:\n  cluster:\n    \
         kubeVersion: v1.36.3\n    masterList: [{{ip: 127.0.2.1}}]\n    nodeList: [{{ip: 127.0.2.2}}]\n    \
         etcdList: [{etcd}]\n"
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn hosts_of_etcd_are_added_removed_and_replaced() {
    let home = Home::new();
    let file = declaration(&home, "{ip: 127.0.2.5}, {ip: 127.0.2.6}, {ip: 127.0.2.7}");
    let stored = home.kubeon(&["create", "-C", "-f", &file]);
    assert_eq!(stored.code, 0, "{stored:?}");
    let home = completed(home);
    home.kubeon(&["delon", "t", "@etcd*"]).refuses(&["no member of etcd exists after delete"]);
    home.kubeon(&["replace", "t", "@etcd*", "127.0.2.9"]).refuses(&["one host is replaced at a time"]);
    home.kubeon(&["replace", "t", "127.0.2.5", "127.0.2.2"]).refuses(&["Cluster ip is duplicate"]);
    home.kubeon(&["addon", "t", "--etcd", "127.0.2.6"]).refuses(&["is a host of t already"]);
    home.kubeon(&["readdress", "t", "127.0.2.5", "127.0.2.9"]).refuses(&["runs etcd alone"]);
    home.kubeon(&["exec", "t@nosuch", "ls"]).refuses(&["127.0.2.5 127.0.2.6 127.0.2.7"]);
    let fewer = declaration(&home, "{ip: 127.0.2.6}, {ip: 127.0.2.7}");
    home.kubeon(&["create", "-C", "-f", &fewer]).refuses(&["127.0.2.5 would leave t: not confirmed"]);
    let written = home.kubeon(&["create", "-C", "-f", &fewer, "--yes"]);
    assert_eq!(written.code, 0, "{written:?}");
    assert_eq!(state(&home)["leavingEtcdHosts"], serde_json::json!({"127.0.2.5": "127.0.2.5"}));
    home.kubeon(&["addon", "t", "--etcd", "127.0.2.5"]).refuses(&["is being removed from t"]);
    let stacked = running_cluster();
    stacked.kubeon(&["addon", "t", "--etcd", "127.0.2.9"]).refuses(&["etcd runs on the masters of t"]);
}

#[test]
fn a_cluster_whose_removal_began_is_not_changed() {
    let home = running_cluster();
    let path = home.path().join(".kubeon/t.json");
    let state = std::fs::read_to_string(&path).unwrap().replace("\"running\"", "\"destroying\"");
    std::fs::write(&path, state).unwrap();
    for command in
        [&["create", "t"][..], &["plan", "t"], &["addon", "t", "-w", "127.0.2.3"], &["resume", "t"]]
    {
        home.kubeon(command).refuses(&["t is being destroyed", "kubeon destroy t", "kubeon rollback t"]);
    }
}

/// A killed `kubeon rollback` must not choose a snapshot of an even older version when it is typed again.
#[test]
fn a_rollback_that_removed_the_cluster_goes_on_with_its_snapshot() {
    let home = running_cluster();
    let mut state = state(&home);
    state["status"] = "creating".into();
    state["version"] = serde_json::Value::Null;
    state["restoring"] = serde_json::json!({"digest": "a".repeat(64), "size": 1, "unpackedSize": 1});
    std::fs::write(home.path().join(".kubeon/t.json"), state.to_string()).unwrap();
    for command in [&["rollback", "t", "--yes"][..], &["rollback", "t", "--dry-run"]] {
        let answer = home.kubeon(command);
        assert!(answer.code != 0 && answer.err.contains("and that goes on"), "{answer:?}");
        assert!(!answer.err.contains("there is no snapshot"), "{answer:?}");
    }
}

#[test]
fn a_new_address_is_that_of_one_host_that_answers() {
    let home = running_cluster();
    home.kubeon(&["readdress", "t", "127.0.2.2", "127.0.2.1"])
        .refuses(&["127.0.2.1 is the address of 127.0.2.1 in t"]);
    home.kubeon(&["readdress", "t", "@all", "127.0.2.9"])
        .refuses(&["the address of one host changes at a time"]);
    home.kubeon(&["readdress", "t", "h7", "127.0.2.9"]).refuses(&["Invalid node selector \"@h7\""]);
    let before = state(&home);
    assert_eq!(home.kubeon(&["readdress", "t", "127.0.2.2", "127.0.2.9"]).code, 2);
    assert_eq!(state(&home), before, "a refused change stores nothing");
}

#[test]
fn an_upgrade_names_a_known_and_newer_version() {
    let home = running_cluster();
    home.kubeon(&["upgrade", "x", "1.2"]).refuses(&["Input version [1.2] error"]);
    home.kubeon(&["up", "nosuch", "v1.37.2"]).refuses(&["Cluster[nosuch] not exist"]);
    home.kubeon(&["upgrade", "t", "v1.35.0"]).refuses(&["a downgrade is not possible"]);
    home.kubeon(&["upgrade", "t", "v1.99.0"]).refuses(&["Input version[v1.99.0] not support"]);
    home.kubeon(&["upgrade", "t", "v1.37.2"])
        .refuses(&["no bundle for v1.37.2", "kubeon bundle build v1.37.2"]);
    // Every value of `--set-offline` is accepted, and none changes anything.
    for value in ["online", "false", "no", "offline", "true", "yes"] {
        let same = home.kubeon(&["upgrade", "t", "v1.36.3", "--set-offline", value]);
        assert_eq!((same.code, same.out.as_str()), (0, "t: nothing to do, it has v1.36.3\n"), "{value}");
    }
    assert_eq!(home.kubeon(&["upgrade", "t", "v1.36.3", "--set-offline", "maybe"]).code, 2);
    let same = home.kubeon(&["upgrade", "t", "v1.36.3"]);
    assert_eq!((same.code, same.out.as_str()), (0, "t: nothing to do, it has v1.36.3\n"));
}

#[test]
fn only_an_open_change_can_be_stopped_continued_or_taken_back() {
    let home = running_cluster();
    home.kubeon(&["abort", "t"]).refuses(&["t has no upgrade to abort"]);
    home.kubeon(&["pause", "t"]).refuses(&["no command changes t now"]);
    let resumed = home.kubeon(&["resume", "t"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (0, "t: nothing to resume\n"));
    home.kubeon(&["rollback", "t"])
        .refuses(&["there is no snapshot of t from before an upgrade", "--snapshot"]);
    let file = home.path().join("foreign.db");
    std::fs::write(&file, empty_snapshot()).unwrap();
    let file = file.to_str().unwrap();
    home.kubeon(&["rollback", "t", "--snapshot", file]).refuses(&["is not known as a snapshot of t"]);
    for command in ["abort", "pause", "resume", "rollback"] {
        home.kubeon(&[command, "nosuch"]).refuses(&["Cluster[nosuch] not exist"]);
    }
    home.kubeon(&["etcd", "save", "t", file, "--keep", "3"]).refuses(&["--keep needs a folder"]);
    assert_eq!(home.kubeon(&["etcd", "save", "t", file, "--keep", "0"]).code, 2);
    assert_eq!(state(&home)["status"], "running", "nothing was changed");
}

#[test]
fn nodes_go_back_alone_to_a_version_that_works_with_the_control_plane() {
    let home = running_cluster();
    let nodes = |version: &str| home.kubeon(&["rollback", "t", "--nodes", version]);
    home.kubeon(&["rollback", "t", "--nodes"]).refuses(&[
        "the version that t had before v1.36.3 is not known",
        "kubeon rollback t --nodes VERSION",
    ]);
    nodes("1.2").refuses(&["Input version [1.2] error"]);
    home.kubeon(&["rollback", "--nodes", "t"]).refuses(&["a cluster is named before --nodes"]);
    nodes("v1.36.3").refuses(&["is the version of the control plane", "kubeon upgrade t v1.36.3"]);
    nodes("v1.37.2").refuses(&["is newer than the control plane", "kubeon upgrade t v1.37.2"]);
    nodes("v1.32.0").refuses(&["a kubelet may be at most 3 minor versions older", "possible"]);
    nodes("v1.35.99").refuses(&["is not in the catalogue", "v1.35."]);
    home.kubeon(&["rollback", "nosuch", "--nodes"]).refuses(&["Cluster[nosuch] not exist"]);
    assert_eq!(home.kubeon(&["rollback", "t", "--nodes", "--snapshot", "demo.db"]).code, 2);
    assert_eq!(home.kubeon(&["rollback", "t", "--nodes", "--key", "snapshot.key"]).code, 2);
    assert_eq!(home.kubeon(&["rollback", "t", "--skip-evict"]).code, 2, "nothing is drained without --nodes");
    assert_eq!(state(&home)["status"], "running", "nothing was changed");
}

#[test]
fn the_commands_on_etcd_refuse_bad_input() {
    let home = running_cluster();
    assert_eq!(home.kubeon(&["etcd", "t"]).code, 2, "etcdctl needs arguments");
    home.kubeon(&["etcd", "nosuch", "member", "list"]).refuses(&["Cluster[nosuch] not exist"]);
    home.kubeon(&["etcd", "health", "nosuch"]).refuses(&["Cluster[nosuch] not exist"]);
    let file = home.path().join("cut.db");
    std::fs::write(&file, [0_u8; 700]).unwrap();
    let file = file.to_str().unwrap();
    let damaged = ["is not a complete snapshot of etcd", "700 bytes"];
    home.kubeon(&["etcd", "check", "t", file]).refuses(&damaged);
    home.kubeon(&["etcd", "restore", "t", file]).refuses(&damaged);
    home.kubeon(&["etcd", "restore", "t", file, "-w", "127.0.2.2"]).refuses(&["needs masters"]);
    std::fs::write(file, empty_snapshot()).unwrap();
    home.kubeon(&["etcd", "restore", "t", file]).refuses(&["is not known as a snapshot of t", "sha256"]);
    home.kubeon(&["etcd", "restore", "other", file]).refuses(&["Cluster[other] not exist", "cut.db.state"]);
    assert_eq!(state(&home)["status"], "running", "nothing was changed");
}

/// One page of zeros and its SHA-256, as etcdctl would write it.
fn empty_snapshot() -> Vec<u8> {
    let page = vec![0_u8; 512];
    let checksum = Sha256::digest(&page);
    [page.as_slice(), &checksum].concat()
}
