//! How workers reach the masters: an external load balancer, which kubeon does not manage, or a Service of the cluster.

use std::process::{Command, Output};

fn create(home: &std::path::Path, mode: &str, more: &[&str]) -> Output {
    let base = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "-w", "127.0.2.2", "--lb-mode", mode];
    Command::new(env!("CARGO_BIN_EXE_kubeon"))
        .args([&base[..], more].concat())
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap()
}

#[test]
fn is_stored_with_its_address_and_port() {
    let home = tempfile::tempdir().unwrap();
    let made = create(home.path(), "external", &["--lb-ip", "10.0.0.100", "--lb-port", "7443"]);
    assert!(made.status.success(), "{made:?}");
    let text = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let wanted = serde_json::json!({ "external": { "address": "10.0.0.100", "port": 7443 } });
    assert_eq!(state["spec"]["loadBalancer"], wanted);
}

#[test]
fn needs_an_address() {
    let home = tempfile::tempdir().unwrap();
    let refused = create(home.path(), "external", &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--lb-ip"), "{refused:?}");
}

#[test]
fn case_13_the_service_of_the_api_servers_has_the_fifteenth_address() {
    let home = tempfile::tempdir().unwrap();
    let made = create(home.path(), "updater", &[]);
    assert!(made.status.success(), "{made:?}");
    let text = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(state["spec"]["loadBalancer"], "updater");
    assert_eq!(state["lbIP"], "10.64.0.15", "{text}");
    let other = tempfile::tempdir().unwrap();
    let refused = create(other.path(), "updater", &["--lb-ip", "10.0.0.100"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("fifteenth"), "{refused:?}");
}
