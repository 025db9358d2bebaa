//! Logins that differ by role, in cases without hosts.

use crate::home::Home;
use serde_json::{Value, json};

/// A missing secret: a command that needs it refuses before it connects to a host.
const SECRET: &str = "@/nonexistent/secret";

fn logins(home: &Home, cluster: &str) -> Value {
    let state = std::fs::read(home.path().join(format!(".kubeon/{cluster}.json"))).unwrap();
    serde_json::from_slice::<Value>(&state).unwrap()["logins"].clone()
}

#[test]
fn commands_on_a_cluster_use_the_password_of_each_role() {
    let home = Home::with_cluster("t");
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    for (command, roles) in [
        (&["destroy", "t", "--yes"][..], &["master", "worker"][..]),
        (&["destroy", "t", "--dry-run"], &["master", "worker"]),
        (&["precheck", "t"], &["master", "worker"]),
        (&["exec", "t@all", "true"], &["master", "worker"]),
        (&["exec", "t@w*", "true"], &["worker"]),
        (&["copy", "t@cp*", "/etc/hosts", "/x"], &["master"]),
        (&["display", "t"], &["master"]),
    ] {
        for role in roles {
            let flag = format!("--default-{role}-passwd");
            let output = home.kubeon(&[command, &[flag.as_str(), SECRET]].concat());
            output.refuses(&["cannot read the secret in /nonexistent/secret"]);
        }
    }
}

#[test]
fn flags_of_a_role_apply_only_to_its_hosts() {
    let home = Home::with_cluster("t");
    let flags = ["--default-user", "ops", "--default-master-user", "boss", "--default-worker-port", "2222"];
    let output = home.kubeon(&[&["create", "t", "-C"], &flags[..]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    let wanted =
        json!({"127.0.2.1": {"user": "boss", "port": 1}, "127.0.2.2": {"user": "ops", "port": 2222}});
    assert_eq!(logins(&home, "t"), wanted);
}

#[test]
fn a_role_without_hosts_has_no_login() {
    let home = Home::with_cluster_of("t", &["-m", "127.0.2.1", "--default-port", "1"]);
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    for command in [
        &["destroy", "t", "--yes"][..],
        &["create", "t", "-C"],
        &["precheck", "t"],
        &["exec", "t@all", "true"],
        &["display", "t"],
        &["create", "u", "v1.36.3", "-C", "-m", "127.0.2.1"],
    ] {
        let output = home.kubeon(&[command, &["--default-worker-passwd", SECRET]].concat());
        output.refuses(&["--default-worker-passwd", "there is no worker"]);
    }
    assert!(!home.files().contains(&"u.json".to_owned()), "{:?}", home.files());
}

#[test]
fn a_list_needs_its_hosts() {
    let home = Home::with_cluster("t");
    let file = home.path().join("demo.yaml");
    std::fs::write(&file, FILE).unwrap();
    let file = file.to_str().unwrap();
    for command in [&["create", "t", "-C"][..], &["precheck", "t"], &["create", "-C", "-f", file]] {
        let output = home.kubeon(&[command, &["--worker-passwd", SECRET]].concat());
        output.refuses(&["--worker-passwd", "given, but no -w", "--default-worker-passwd is for every"]);
    }
}

const FILE: &str = "\
apiVersion: ecs.yun.com/v1
kind: KubernetesCluster
metadata: {name: demo}
spec:
  cluster:
    kubeVersion: v1.36.3
    masterList: [{ip: 127.0.2.1, port: 2200}]
    nodeList: [{ip: 127.0.2.2, port: 2222}, {ip: 127.0.2.3}]
";

#[test]
fn flags_of_a_role_complete_a_file_and_are_refused_if_unused() {
    let home = Home::new();
    let file = home.path().join("demo.yaml");
    std::fs::write(&file, FILE).unwrap();
    let create =
        |flags: &[&str]| home.kubeon(&[&["create", "-C", "-f", file.to_str().unwrap()], flags].concat());
    let output = create(&["--default-worker-port", "2201", "--default-worker-user", "ops"]);
    assert_eq!(output.code, 0, "{output:?}");
    let wanted = json!({
        "127.0.2.1": {"user": "root", "port": 2200},
        "127.0.2.2": {"user": "ops", "port": 2222},
        "127.0.2.3": {"user": "ops", "port": 2201},
    });
    assert_eq!(logins(&home, "demo"), wanted);
    create(&["--default-master-port", "2201"])
        .refuses(&["--default-master-port", "a more specific setting replaces it on every master"]);
    create(&["--default-worker-passwd", SECRET]).refuses(&["cannot read the secret"]);
}
