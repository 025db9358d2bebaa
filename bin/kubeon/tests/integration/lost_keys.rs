//! A cluster whose keys are missing on this machine, in cases without hosts.

use crate::home::Home;
use kubeon_pki::ClusterPki;

/// Commands that need the keys of a cluster.
const CHANGES: [&[&str]; 3] =
    [&["create", "t"], &["addon", "t", "-w", "127.0.2.3"], &["delon", "t", "@w*", "--yes"]];

/// Commands that show the plan of these changes.
const DRY_RUNS: [&[&str]; 4] = [
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
fn no_new_keys_are_created_for_a_running_cluster() {
    let home = running_cluster();
    let folder = home.path().join(".kubeon/secret/t");
    for change in CHANGES.iter().chain(&DRY_RUNS) {
        let shown = folder.display().to_string();
        home.kubeon(change).refuses(&["the keys that t was made with are missing", &shown, "backup"]);
        home.kubeon(change).refuses(&["kubeon destroy t"]);
    }
    let error = home.kubeon(&["create", "t"]).err;
    assert_eq!(home.kubeon(&["plan", "t"]).err, error, "plan reports the same error");
    assert!(!folder.exists() && !home.path().join(".kubeon/conf").exists(), "{:?}", home.files());
}

#[test]
fn a_single_key_that_is_missing_is_named() {
    let home = running_cluster();
    let folder = home.path().join(".kubeon/secret/t");
    ClusterPki::load_or_create(&folder, 1).unwrap();
    for change in CHANGES.iter().chain(&DRY_RUNS) {
        home.kubeon(change).refuses(&["there is no bundle for v1.36.3"]);
    }
    let etcd = folder.join("ca-etcd.pem");
    std::fs::remove_file(&etcd).unwrap();
    for change in CHANGES.iter().chain(&DRY_RUNS) {
        let output = home.kubeon(change);
        output.refuses(&["are missing", &etcd.display().to_string()]);
        assert!(!output.err.contains("ca-kubernetes.pem"), "{}", output.err);
    }
    assert!(!etcd.exists());
}

#[test]
fn a_cluster_without_written_hosts_needs_no_keys() {
    let home = Home::with_cluster("t");
    for command in ["create", "plan"] {
        home.kubeon(&[command, "t"]).refuses(&["there is no bundle for v1.36.3"]);
    }
    assert!(!home.path().join(".kubeon/secret").exists());
}
