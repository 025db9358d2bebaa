//! A cluster returns to a snapshot: which command of the program kubeon continues it.

use std::process::Command;

use crate::support::{Done, Place, Running};

const SNAPSHOT: &str = "s3://backups/demo/20260131T120000Z-v1.36.3.db";

/// Records its arguments and the variables of the store.
const PROGRAM: &str = r#"#!/bin/bash
case "$1 $2" in
"state import") cat >/dev/null; cp state.json "$KUBEON_HOME/demo.json" ;;
"state export") echo "state of $3" ;;
*) echo "$*" >>calls; echo "$AWS_ENDPOINT_URL $AWS_SHARED_CREDENTIALS_FILE" >>store ;;
esac
"#;

/// A Job of the operation on a cluster with this state.
fn run(state: &str, operation: &str, variables: &[(&str, &str)]) -> (Place, Done) {
    let place = Place::new();
    place.program("kubeon", PROGRAM);
    place.write("state.json", state);
    place.write("state", "packed");
    place.write(
        "conf/cluster.json",
        r#"{"metadata":{"name":"demo"},"spec":{"cluster":{"kubeVersion":"v1.36.3"}}}"#,
    );
    std::fs::create_dir(place.file("snapshots")).unwrap();
    place.write("snapshots/credentials", "[default]");
    place.write("snapshots/snapshot.key", "a key");
    let folder = place.file("snapshots");
    let mut command: Command =
        place.command(&["--action", "kubeon", "--snapshots", folder.to_str().unwrap()]);
    command.env("OPERATION", operation).env("CLUSTER_NAME", "demo").env("CLUSTER_NAMESPACE", "team");
    command.env("SNAPSHOT_ENDPOINT", "https://s3.example.org").envs(variables.iter().copied());
    let done = Running::start(&mut command).end();
    (place, done)
}

/// The last command, and its arguments.
fn last_call(place: &Place) -> String {
    place.read("calls").lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_state_says_how_far_a_rollback_came() {
    let snapshot = ("SNAPSHOT_RESTORE", SNAPSHOT);
    for (state, command) in [
        (r#"{"version":"v1.37.2"}"#, format!("rollback demo --snapshot {SNAPSHOT} --key ")),
        (r#"{"version":null,"restoring":{"digest":"x"}}"#, format!("etcd restore demo {SNAPSHOT} --key ")),
        (r#"{"version":"v1.36.3"}"#, "create --take-back -f ".to_owned()),
    ] {
        let (place, done) = run(state, "rollbacking", &[snapshot]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let call = last_call(&place);
        assert!(call.starts_with(&command) && call.contains("--hold"), "{state}: {call}");
        assert!(!place.read("store").contains("a key"));
    }
    let (place, _) = run(r#"{"version":"v1.37.2"}"#, "rollbacking", &[snapshot]);
    let store = place.read("store");
    assert!(
        store.starts_with("https://s3.example.org /") && store.contains("snapshots/credentials"),
        "{store}"
    );
}

/// The hosts may be empty: a repair would make an empty cluster and call it repaired.
#[test]
fn a_rollback_that_has_begun_is_completed_before_other_changes() {
    for state in [r#"{"version":"v1.37.2","status":"destroying"}"#, r#"{"restoring":{"digest":"x"}}"#] {
        for operation in ["repairing", "updating", "scaling-up"] {
            let (place, done) = run(state, operation, &[]);
            assert_eq!(done.code, Some(1));
            assert!(done.contains("request rollbacking"), "{done:?}");
            assert!(!place.file("calls").exists(), "{operation}");
        }
    }
}

#[test]
fn a_rollback_without_a_snapshot_changes_nothing() {
    let (place, done) = run(r#"{"version":"v1.37.2"}"#, "rollbacking", &[]);
    assert_eq!(done.code, Some(1));
    assert!(done.contains("spec.snapshots.restoreFrom names no snapshot"), "{done:?}");
    assert!(!place.file("calls").exists());
}

#[test]
fn an_upgrade_writes_its_snapshot_to_the_store_and_a_change_of_settings_writes_none() {
    let folder = ("SNAPSHOT_FOLDER", "s3://backups/demo/");
    let (place, done) = run(r#"{"version":"v1.35.8"}"#, "updating", &[folder]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let call = last_call(&place);
    assert!(call.starts_with("upgrade demo v1.36.3 --snapshot-on-master "), "{call}");
    assert!(call.contains("--snapshot s3://backups/demo/ --key "), "{call}");
    assert!(!call.contains("--later-versions"), "{call}");
    let (place, _) = run(r#"{"version":"v1.35.8"}"#, "updating", &[("LATER_VERSIONS", "2")]);
    assert!(last_call(&place).contains(" --later-versions=2 "), "{}", last_call(&place));
    for (state, variables) in [(r#"{"version":"v1.36.3"}"#, &[folder][..]), (r#"{"version":"v1.35.8"}"#, &[])]
    {
        let (place, done) = run(state, "updating", variables);
        assert_eq!(done.code, Some(0), "{done:?}");
        let call = last_call(&place);
        assert!(!call.contains("--snapshot s3"), "{call}");
    }
}
