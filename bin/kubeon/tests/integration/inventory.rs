//! A kubespray inventory instead of flags, in cases without hosts.

use std::fs;
use std::path::Path;
use std::process::Command;

const HOSTS: &str = "\
all:
  hosts:
    master01: {ansible_host: 127.0.2.1, ansible_user: admin, ansible_password: hunter2}
    worker01: {ansible_host: 127.0.2.2, ansible_port: 2222}
    worker02: {ansible_host: 127.0.2.3}
  children:
    kube_control_plane: {hosts: {master01: }}
    kube_node: {hosts: {worker01: , worker02: }}
    etcd: {hosts: {master01: }}
";
const VARIABLES: &str = "kube_version: v1.36.3\nkube_pods_subnet: 10.233.64.0/18\nfavourite_colour: blue\n";

/// Runs `kubeon` with the two files in its folder. Returns the exit code and all output.
fn kubeon(home: &Path, hosts: &str, variables: &str, words: &[&str]) -> (i32, String) {
    fs::write(home.join("hosts.yml"), hosts).unwrap();
    fs::write(home.join("group_vars.yml"), variables).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kubeon"))
        .args(words)
        .args(["--inventory", "hosts.yml", "--vars", "group_vars.yml"])
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .current_dir(home)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn an_inventory_is_stored_as_a_cluster_without_its_secrets() {
    let home = tempfile::tempdir().unwrap();
    let (code, output) = kubeon(home.path(), HOSTS, VARIABLES, &["create", "demo", "--only-create"]);
    assert_eq!(code, 0, "{output}");
    let state = fs::read_to_string(home.path().join(".kubeon/demo.json")).unwrap();
    for part in ["127.0.2.3", "worker01", "10.233.64.0/18", "v1.36.3", "2222", "admin"] {
        assert!(state.contains(part), "{part} is not in {state}");
    }
    assert!(!state.contains("hunter2") && !output.contains("hunter2"));
}

#[test]
fn mistakes_are_reported_with_file_and_line_and_exit_code_2() {
    let home = tempfile::tempdir().unwrap();
    let hosts = HOSTS.replace("worker01", "x;rm -rf /");
    let (code, output) = kubeon(home.path(), &hosts, "kube_network_plugin: calico\n", &["create", "demo"]);
    assert_eq!(code, 2, "{output}");
    for part in ["hosts.yml line 4", "x;rm -rf /", "group_vars.yml line 1", "cni[calico]", "use flannel"] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    assert!(!home.path().join(".kubeon/demo.json").exists());
}

#[test]
fn an_inventory_declares_everything_except_the_name() {
    let home = tempfile::tempdir().unwrap();
    for words in [&["create", "demo", "v1.36.3"][..], &["create", "demo", "-m", "127.0.2.1"], &["create"]] {
        let (code, output) = kubeon(home.path(), HOSTS, VARIABLES, words);
        assert_eq!(code, 2, "{words:?}: {output}");
    }
}

#[test]
fn a_limit_needs_a_cluster_and_names_hosts_of_the_inventory() {
    let home = tempfile::tempdir().unwrap();
    let limited = |limit: &str| {
        kubeon(home.path(), HOSTS, VARIABLES, &["create", "demo", "--limit", limit, "--only-create"])
    };
    let (code, output) = limited("worker01");
    assert!(code == 2 && output.contains("Cluster[demo] not exist"), "{output}");
    let one = HOSTS
        .replace("worker01: , worker02: ", "worker01: ")
        .replace("    worker02: {ansible_host: 127.0.2.3}\n", "");
    let (code, output) = kubeon(home.path(), &one, VARIABLES, &["create", "demo", "--only-create"]);
    assert_eq!(code, 0, "{output}");
    let (code, output) = limited("worker09");
    assert!(code == 2 && output.contains("--limit worker09"), "{output}");
    let (code, output) = limited("master01");
    assert_eq!(code, 0, "{output}");
    let state = || fs::read_to_string(home.path().join(".kubeon/demo.json")).unwrap();
    assert!(state().contains("127.0.2.2") && !state().contains("127.0.2.3"), "{}", state());
    let (code, output) = limited("worker02");
    assert_eq!(code, 0, "{output}");
    assert!(state().contains("127.0.2.3"));
}
