//! A cluster whose keys are no longer on this machine, in all cases that need no host.

use crate::home::Home;
use kubeon_pki::ClusterPki;

/// What asks for the keys of a cluster.
const CHANGES: [&[&str]; 3] =
    [&["create", "t"], &["addon", "t", "-w", "127.0.2.3"], &["delon", "t", "@w*", "--yes"]];

/// What shows what these would do, and changes nothing.
const LOOKS: [&[&str]; 4] = [
    &["plan", "t"],
    &["create", "t", "--dry-run"],
    &["addon", "t", "-w", "127.0.2.3", "--dry-run"],
    &["delon", "t", "@w*", "--dry-run"],
];

/// A cluster whose hosts were written to.
fn running_cluster() -> Home {
    let home = Home::with_cluster("t");
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    home
}

#[test]
fn no_new_keys_are_made_for_a_cluster_that_stands() {
    let home = running_cluster();
    let folder = home.path().join(".kubeon/secret/t");
    for change in CHANGES.iter().chain(&LOOKS) {
        let shown = folder.display().to_string();
        home.kubeon(change).refuses(&["the keys that t was made with are missing", &shown, "backup"]);
        home.kubeon(change).refuses(&["kubeon destroy t"]);
    }
    let told = home.kubeon(&["create", "t"]).err;
    assert_eq!(home.kubeon(&["plan", "t"]).err, told, "the same is told");
    assert!(!folder.exists() && !home.path().join(".kubeon/conf").exists(), "{:?}", home.files());
}

#[test]
fn a_single_key_that_is_missing_is_named() {
    let home = running_cluster();
    let folder = home.path().join(".kubeon/secret/t");
    ClusterPki::load_or_create(&folder, 1).unwrap();
    for change in CHANGES.iter().chain(&LOOKS) {
        home.kubeon(change).refuses(&["there is no bundle for v1.36.3"]);
    }
    let etcd = folder.join("ca-etcd.pem");
    std::fs::remove_file(&etcd).unwrap();
    for change in CHANGES.iter().chain(&LOOKS) {
        let said = home.kubeon(change);
        said.refuses(&["are missing", &etcd.display().to_string()]);
        assert!(!said.err.contains("ca-kubernetes.pem"), "{}", said.err);
    }
    assert!(!etcd.exists());
}

#[test]
fn a_cluster_that_is_on_no_host_needs_no_keys_yet() {
    let home = Home::with_cluster("t");
    for command in ["create", "plan"] {
        home.kubeon(&[command, "t"]).refuses(&["there is no bundle for v1.36.3"]);
    }
    assert!(!home.path().join(".kubeon/secret").exists());
}
