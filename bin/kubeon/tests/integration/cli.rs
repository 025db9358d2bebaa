//! The program as a user runs it, in cases without hosts.

use std::process::Command;

use crate::home::{CommandOutput, Home};

const MASTER: &str = "127.0.2.1";

#[test]
fn case_1_prints_its_version_in_two_ways() {
    let home = Home::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(home.kubeon(&["version"]).out, format!("kubeon version: {version}\n"));
    assert_eq!(home.kubeon(&["--version"]).out, format!("kubeon version {version}\n"));
    let json: serde_json::Value = serde_json::from_str(&home.kubeon(&["version", "-o", "json"]).out).unwrap();
    assert_eq!(json["version"], version);
}

#[test]
fn case_2_lists_supported_versions_one_range_per_line() {
    let output = Home::new().kubeon(&["view", "support"]);
    assert_eq!(output.code, 0);
    assert!(output.out.lines().any(|line| line == "v1.36.3"), "{}", output.out);
    assert!(output.out.lines().all(|line| line.starts_with('v') && !line.contains(' ')));
    assert_eq!(Home::new().kubeon(&["v", "sp"]).out, output.out);
}

#[test]
fn case_3_an_unknown_version_has_no_components() {
    Home::new().kubeon(&["view", "component", "v9.9.9"]).refuses(&["input version v9.9.9 is not support"]);
    let known = Home::new().kubeon(&["view", "component", "v1.36.3"]);
    assert!(known.out.contains("etcd"), "{known:?}");
}

#[test]
fn case_4_an_unknown_cluster_is_named() {
    let home = Home::new();
    let words = ["Cluster[nosuch] not exist, please create"];
    for command in ["display", "cluster-info", "d", "use", "destroy", "rmr", "plan"] {
        home.kubeon(&[command, "nosuch"]).refuses(&words);
    }
    home.kubeon(&["exec", "nosuch@all", "ls"]).refuses(&words);
    home.kubeon(&["copy", "nosuch@all", "/etc/hosts", "/tmp/x"]).refuses(&words);
    assert!(home.files().is_empty(), "{:?}", home.files());
}

#[test]
fn case_5_create_needs_name_and_version() {
    let home = Home::new();
    home.kubeon(&["create", "a"]).refuses(&["accepts 2 arg(s), received 1", "nothing to continue"]);
    home.kubeon(&["create"]).refuses(&["accepts 2 arg(s), received 0"]);
    home.kubeon(&["create", "a", "-m", MASTER]).refuses(&["accepts 2 arg(s), received 1"]);
}

#[test]
fn case_6_versions_are_checked() {
    let home = Home::new();
    home.kubeon(&["upgrade", "x", "1.2"]).refuses(&["Input version [1.2] error"]);
    home.kubeon(&["create", "x", "1.2", "-m", MASTER]).refuses(&["Input version [1.2] error"]);
    home.kubeon(&["create", "x", "v1.29.9", "-m", MASTER])
        .refuses(&["[check] Input version[v1.29.9] not support"]);
    for command in [&["bundle", "build", "v1.29.9"][..], &["download", "v1.29.9"]] {
        home.kubeon(command).refuses(&["[check] Input version[v1.29.9] not support"]);
    }
}

#[test]
fn case_7_parts_that_no_bundle_carries_are_refused_by_name() {
    let home = Home::new();
    for (flag, value, noun) in [
        ("--cni", "calico", "cni"),
        ("--cni", "cilium", "cni"),
        ("--cni", "weave", "cni"),
        ("--cri", "crio", "cri"),
        ("--cri", "docker", "cri"),
        ("--ic", "nginx", "ingress"),
        ("--ic", "istio", "ingress"),
        ("--proxy", "none", "proxy mode"),
        ("--proxy", "ipvs", "proxy mode"),
        ("--proxy", "cilium", "proxy mode"),
        ("--lb-mode", "keepalived", "lb mode"),
        ("--deploy-mode", "pods", "deploy mode"),
    ] {
        let output = home.kubeon(&["create", "x", "v1.36.3", "-m", MASTER, flag, value]);
        output.refuses(&[&format!("[check] Input {noun}[{value}] not support"), &format!("{flag} {value}")]);
    }
    assert!(home.files().is_empty());
}

#[test]
fn case_8_and_10_hosts_are_checked() {
    let home = Home::new();
    home.kubeon(&["create", "x", "v1.36.3"]).refuses(&["Cluster must has one node"]);
    home.kubeon(&["create", "x", "v1.36.3", "-m", MASTER, "-m", MASTER])
        .refuses(&["Cluster master is duplicate"]);
    home.kubeon(&["create", "x", "v1.36.3", "-m", MASTER, "-w", MASTER])
        .refuses(&["Cluster ip is duplicate"]);
    assert!(home.files().is_empty());
}

#[test]
fn case_9_names_are_counted_and_distinct() {
    let home = Home::new();
    let two = ["create", "x", "v1.36.3", "-m", "127.0.2.1,127.0.2.2"];
    home.kubeon(&[&two[..], &["-M", "a,a"]].concat()).refuses(&["[master] hostnames is duplicate"]);
    home.kubeon(&[&two[..], &["-M", "a"]].concat()).refuses(&["--master-name", "1 given for 2 hosts"]);
    home.kubeon(&[&two[..], &["--master-port", "22"]].concat())
        .refuses(&["--master-port", "1 given for 2 hosts"]);
}

#[test]
fn case_13_only_create_contacts_no_host() {
    let home = Home::with_cluster("t");
    let state = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["status"], "creating");
    assert_eq!(state["generation"], 0);
    assert_eq!((&state["apiIP"], &state["dnsIP"]), (&"10.64.0.1".into(), &"10.64.0.10".into()));
    assert_eq!(state["lbIP"], "127.0.0.1");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(home.path().join(".kubeon/t.json")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn case_20_a_cluster_without_a_network_plugin() {
    let home = Home::new();
    let create = ["create", "x", "v1.36.3", "-C", "-m", MASTER];
    let made = home.kubeon(&[&create[..], &["--cni", "bpf"]].concat());
    assert_eq!(made.code, 0, "{}", made.err);
    let state = std::fs::read_to_string(home.path().join(".kubeon/x.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let spec = &state["spec"];
    assert_eq!((&spec["cni"], &spec["proxyMode"]), (&"none".into(), &"bpf".into()));
    let other = Home::new();
    other
        .kubeon(&[&create[..], &["--cni", "bpf", "--proxy", "iptables"]].concat())
        .refuses(&["--proxy iptables", "--cni bpf is a cluster without it"]);
    other
        .kubeon(&[&create[..], &["--proxy", "bpf"]].concat())
        .refuses(&["spec.cluster.network.proxyMode", "use bpf with network.cni none"]);
    other
        .kubeon(&[&create[..], &["--cni", "none", "--mtu", "1400"]].concat())
        .refuses(&["spec.cluster.network.mtu"]);
    assert!(other.files().is_empty(), "{:?}", other.files());
}

#[test]
fn case_26_selectors_are_checked() {
    let home = Home::with_cluster("t");
    home.kubeon(&["exec", "all", "ls"]).refuses(&["selector format error"]);
    home.kubeon(&["exec", "@all", "ls"]).refuses(&["selector format error"]);
    home.kubeon(&["exec", "t@bad", "ls"]).refuses(&["Invalid node selector \"@bad\"", "127.0.2.1"]);
    home.kubeon(&["exec", "t@foo=bar", "ls"]).refuses(&["Use one of [ip=ipv4, name=hostname]"]);
    home.kubeon(&["exec", "t@name=nosuch", "ls"]).refuses(&["t has no node nosuch"]);
    let hosts = ["-m", "127.0.2.1", "-M", "h1", "-w", "127.0.2.2", "-W", "h2", "--default-port", "1"];
    let home = Home::with_cluster_of("t", &hosts);
    home.kubeon(&["exec", "t@name=h1,127.0.2.2", "ls"]).refuses(&["127.0.2.2 is the address of h2"]);
    home.kubeon(&["copy", "t@ip=127.0.2.1,h2", "/etc/hosts", "/x"]).refuses(&["h2 is the name of 127.0.2.2"]);
}

#[test]
fn reports_all_reasons_at_once() {
    let output = Home::new().kubeon(&[
        "create",
        "demo",
        "v1.36.3",
        "-m",
        "172.30.0.11",
        "-m",
        "172.30.0.12",
        "-w",
        "172.30.0.11",
        "--pod-cidr",
        "10.64.0.0/12",
        "--cilium-enable-dsr",
        "--with-nvidia",
        "--max-pods",
        "1",
    ]);
    output.refuses(&[
        "demo cannot be planned, 5 reasons",
        "-w 172.30.0.11",
        "is a master already: a host has one role",
        "--pod-cidr 10.64.0.0/12",
        "overlaps the service range 10.64.0.0/12 (--svc-cidr)",
        "--cilium-enable-dsr",
        "--with-nvidia",
        "--max-pods 1",
        "warning: 2 masters tolerate no more failures than 1; use 1, 3 or 5",
    ]);
}

#[test]
fn a_flag_with_a_harmless_value_is_accepted() {
    let home = Home::new();
    let output = home.kubeon(&[
        "create",
        "x",
        "v1.36.3",
        "-C",
        "-m",
        MASTER,
        "--with-nvidia=false",
        "--calico-mtu",
        "0",
        "--offline",
        "--cni",
        "flannel",
        "--ic",
        "none",
        "--cri",
        "containerd",
    ]);
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn a_file_declares_the_whole_cluster() {
    let home = Home::new();
    let file = home.path().join("demo.yaml");
    let shown = file.to_str().unwrap();
    let text = "apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata: {name: demo}\nspec:\n  cluster:\n    kubeVersion: v1.36.3\n    masterList: [{ip: 127.0.2.1}]\n    nodeList: [{ip: 127.0.2.2}]\n";
    std::fs::write(&file, text).unwrap();
    let output = home.kubeon(&["create", "-C", "-f", shown]);
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "demo is stored; no host was contacted\n"),
        "{output:?}"
    );
    home.kubeon(&["create", "-f", shown, "--cni", "flannel"]).refuses(&["-f declares the whole cluster"]);
    std::fs::write(&file, text.replace("nodeList", "nodelist")).unwrap();
    home.kubeon(&["create", "-f", shown]).refuses(&["1 mistake", "nodelist"]);
    std::fs::write(&file, text.replace("kubeVersion", "network: {proxyMode: ipvs}\n    kubeVersion"))
        .unwrap();
    home.kubeon(&["create", "-f", shown]).refuses(&["spec.cluster.network.proxyMode"]);
    home.kubeon(&["create", "-f", "/nonexistent.yaml"]).refuses(&["cannot read /nonexistent.yaml"]);
}

#[test]
fn another_request_under_a_stored_name_needs_destroy_once_hosts_were_written() {
    let home = Home::with_cluster("t");
    let again = ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1"];
    assert_eq!(home.kubeon(&again).code, 0, "nothing was written to a host yet");
    let path = home.path().join(".kubeon/t.json");
    let state = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, state.replace("\"generation\": 0", "\"generation\": 3")).unwrap();
    assert_eq!(home.kubeon(&again).code, 0, "the same request is accepted");
    let other = home.kubeon(&["create", "t", "v1.36.3", "-m", "127.0.2.9", "-w", "127.0.2.2"]);
    other.refuses(&[
        "the masters of t cannot change yet",
        "its creation is not complete",
        "kubeon destroy t",
    ]);
    let other = home.kubeon(&[&again[..], &["--svc-cidr", "10.9.0.0/16"]].concat());
    other.refuses(&["Input cluster[t] exist", "serviceCidr", "10.9.0.0/16", "kubeon destroy t"]);
    let newer = ["create", "t", "v1.37.2", "-C", "-m", "127.0.2.1", "--default-port", "1"];
    home.kubeon(&newer).refuses(&["Input cluster[t] exist", "kubeon upgrade t v1.37.2"]);
}

#[test]
fn rare_commands_are_not_in_the_short_help() {
    let home = Home::new();
    home.kubeon(&["view", "config", "t", "kubelet"]).refuses(&["Cluster[t] not exist"]);
    let help = home.kubeon(&["--help"]).out;
    for command in ["redo", "download"] {
        assert!(!help.lines().any(|line| line.trim_start().starts_with(command)), "{command} is in the help");
    }
}

/// Contract C, case 45.
#[test]
fn routes_of_a_cloud_need_a_provider_and_keys() {
    let home = Home::with_cluster("t");
    let none = home.kubeon(&["cloud", "modify-router", "t"]);
    assert!(none.code == 0 && none.err.contains("t has no routes"), "{none:?}");
    home.kubeon(&["cl", "mr", "t", "--provider", "aws"]).refuses(&[
        "--provider aws",
        "--endpoint",
        "--router-table-id",
    ]);
    let tables = ["--provider", "alibaba", "--endpoint", "cn-hangzhou", "--router-table-id", "vtb-1"];
    home.kubeon(&[&["cloud", "modify-router", "t"], &tables[..]].concat())
        .refuses(&["keys of the cloud provider", "CLOUD_SECRET_ID"]);
    home.kubeon(&["cloud", "modify-router", "other"]).refuses(&["Cluster[other] not exist"]);
    let deleted = home.kubeon(&["cloud", "delete-router", "t"]);
    assert!(deleted.code == 0 && deleted.err.contains("nothing to do"), "{deleted:?}");
    let create = ["create", "u", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1"];
    let cloud = [
        "--cloud-provider",
        "tencent",
        "--cloud-endpoint",
        "ap-guangzhou",
        "--cloud-router-table-id",
        "rtb-1",
    ];
    assert_eq!(home.kubeon(&[&create[..], &cloud].concat()).code, 0);
    let moved = [&create[..], &cloud[..5], &["rtb-2"]].concat();
    home.kubeon(&moved).refuses(&["u has routes in other route tables", "kubeon cloud modify-router u"]);
    home.kubeon(&[&create[..], &cloud[..2]].concat()).refuses(&["--cloud-endpoint", "is missing"]);
}

#[test]
fn modules_that_cannot_be_installed_are_refused_before_a_host_is_contacted() {
    let home = Home::with_cluster("t");
    home.kubeon(&["module", "install", "t@all", "agent"])
        .refuses(&["cannot read the module", "dist/agent.tar"]);
    home.kubeon(&["module", "install", "t@all", "containerd"]).refuses(&["is a part of every bundle"]);
    home.kubeon(&["module", "uninstall", "t@all", "$(id)"]).refuses(&["is not the name of a module"]);
    home.kubeon(&["module", "uninstall", "t@bad", "agent"]).refuses(&["Invalid node selector"]);
}

#[test]
fn commands_without_a_subcommand_print_help() {
    let home = Home::new();
    for path in [&[][..], &["lab"], &["bundle"], &["view"], &["image"]] {
        let output = home.kubeon(path);
        assert_eq!(output.code, 0);
        assert!(output.out.contains("Usage: kubeon"), "{path:?}: {}", output.out);
    }
    let unknown = home.kubeon(&["frobnicate"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
}

#[test]
fn without_a_name_the_chosen_cluster_is_used() {
    let home = Home::with_cluster("t");
    home.kubeon(&["display"]).refuses(&["no cluster is named", "kubeon use NAME"]);
    home.kubeon(&["use", "t"]).refuses(&["t has no kubeconfig yet", "kubeon create t"]);
}

#[test]
fn a_list_contains_only_the_requested_output() {
    let home = Home::new();
    let empty = home.kubeon(&["ls", "-o", "json"]);
    assert_eq!((empty.code, empty.out.as_str()), (0, "[]\n"), "{empty:?}");
    assert_eq!(home.kubeon(&["ls", "--quiet"]).err, "");
    assert_eq!(home.kubeon(&["ls", "-o", "xml"]).code, 2);
}

#[test]
fn a_file_that_is_no_state_is_not_listed() {
    let home = Home::with_cluster("t");
    std::fs::write(home.path().join(".kubeon/notes.json"), r#"{"remember": "milk"}"#).unwrap();
    for format in ["name", "json"] {
        let output = home.kubeon(&["ls", "-o", format]);
        assert_eq!(output.code, 0, "{output:?}");
        assert!(!output.out.contains("notes"), "{}", output.out);
        assert!(output.err.contains(".kubeon/notes.json is no state of a cluster"), "{}", output.err);
    }
}

#[test]
fn a_cluster_without_answer_is_listed_within_seconds() {
    // Accepts connections and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.2.1:0").unwrap();
    let home = Home::with_cluster_at("t", silent.local_addr().unwrap().port());
    let begin = std::time::Instant::now();
    let output = home.kubeon(&["ls", "-o", "name"]);
    assert_eq!((output.code, output.out.as_str()), (0, "t\n"));
    let row: serde_json::Value = serde_json::from_str(&home.kubeon(&["ls", "-o", "json"]).out).unwrap();
    assert_eq!((&row[0]["state"], &row[0]["masters"]["all"]), (&"Creating".into(), &1.into()));
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn a_slow_cluster_is_not_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.2.1:0").unwrap();
    let home = Home::with_cluster_at("t", listener.local_addr().unwrap().port());
    home.rewrite("t", "\"creating\"", "\"running\"");
    let listed = || -> serde_json::Value {
        let output = home.kubeon(&["ls", "-o", "json"]);
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    let slow = listed();
    assert_eq!(slow[0]["state"], "Unknown", "it accepts connections: {slow}");
    assert!(slow[0]["note"].as_str().unwrap().contains("no master answered completely"), "{slow}");
    drop(listener);
    let unreachable = listed();
    assert_eq!(unreachable[0]["state"], "Unreachable", "no program listens: {unreachable}");
}

#[test]
fn destroy_needs_confirmation() {
    let home = Home::with_cluster("t");
    // The notes of the plan are printed before the question.
    let output = home.kubeon(&["destroy", "t"]);
    assert_eq!((output.code, output.out.as_str()), (2, ""), "{output:?}");
    for words in ["no host was ever written to", "not confirmed", "kubeon destroy t --yes"] {
        assert!(output.err.contains(words), "{words:?} is missing in:\n{}", output.err);
    }
    home.kubeon(&["destroy", "t", "--yes", "--without", "127.0.2.77"]).refuses(&["is not a host of t"]);
}

#[test]
fn secrets_come_from_files_and_literals_cause_a_warning() {
    let home = Home::new();
    let base = ["create", "t", "v1.36.3", "-C", "-m", MASTER];
    home.kubeon(&[&base[..], &["--default-passwd", "@/nonexistent"]].concat())
        .refuses(&["cannot read the secret"]);
    home.kubeon(&[&base[..], &["--default-passwd", "-"]].concat())
        .refuses(&["there is no terminal", "@FILE"]);
    let literal = home.kubeon(&[&base[..], &["--default-passwd", "hunter2"]].concat());
    assert_eq!(literal.code, 0, "{literal:?}");
    assert!(literal.err.contains("warning: a password as an argument"), "{}", literal.err);
    let state = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    assert!(!state.contains("hunter2") && !literal.err.contains("hunter2"));
}

#[test]
fn completion_is_written_for_four_shells() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = home.kubeon(&["completion", shell]);
        assert_eq!(output.code, 0);
        assert!(output.out.contains("kubeon") && output.out.len() > 1000, "{shell}");
    }
}

#[test]
fn a_missing_bundle_is_reported_with_the_build_command() {
    let home = Home::new();
    let output = home.kubeon(&["plan", "x", "v1.36.3", "-m", MASTER]);
    output.refuses(&["there is no bundle for v1.36.3", "kubeon bundle build v1.36.3"]);
    assert!(home.files().is_empty(), "a plan writes nothing");
    assert!(home.kubeon(&["bundle", "ls"]).err.contains("kubeon bundle build"));
}

/// Refused before the first effect, for any damaged file.
#[test]
fn a_bundle_that_cannot_be_read_is_refused() {
    let home = Home::new();
    let folder = home.path().join(".cache/kubeon/bundles/v1.36.3-amd64");
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in
        [("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#), ("index.json", "{\"manifests\":")]
    {
        std::fs::write(folder.join(file), text).unwrap();
        for command in ["plan", "create"] {
            let output = home.kubeon(&[command, "x", "v1.36.3", "-m", MASTER]);
            output.refuses(&[
                "the bundle of v1.36.3 for amd64 is damaged",
                "index.json",
                "kubeon bundle build v1.36.3",
            ]);
        }
    }
    assert_eq!(
        home.kubeon(&["bundle", "verify", "v1.36.3"]).code,
        1,
        "verify reports the damage as a failure"
    );
    assert!(home.files().is_empty());
}

#[test]
fn the_dry_run_of_bundle_build_supports_json() {
    let output = Home::new().kubeon(&["bundle", "build", "v1.36.3", "--dry-run", "-o", "json"]);
    let components: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert!(
        components.as_array().unwrap().iter().any(|component| component["component"] == "etcd"),
        "{components}"
    );
}

#[test]
fn a_missing_lab_is_named() {
    let home = Home::new();
    home.kubeon(&["lab", "kill", "h1"]).refuses(&["there is no lab default", "kubeon lab up"]);
    home.kubeon(&["lab", "up", "--hosts", "0"]).refuses(&["0 hosts"]);
    assert_eq!(home.kubeon(&["lab", "ls", "-o", "json"]).out, "[]\n");
}

#[test]
fn flags_of_virtual_machines_that_make_no_sense_are_refused() {
    let home = Home::new();
    let up = |flags: &[&str]| home.kubeon(&[&["lab", "up"], flags].concat());
    up(&["--kind", "vm", "--profile", "ufw,firewalld"]).refuses(&["firewalld and ufw exclude each other"]);
    up(&["--kind", "vm", "--profile", "none"]).refuses(&["none", "two-nics"]);
    up(&["--kind", "vm", "--os", "debian-10"]).refuses(&["debian-10", "debian-13"]);
    up(&["--kind", "namespaces", "--os", "debian-13"]).refuses(&["--kind vm"]);
    up(&["--profile", "nat"]).refuses(&["--kind"]);
    assert!(home.files().is_empty());
}

#[test]
fn json_progress_contains_only_lines_of_json() {
    let home = Home::new();
    let lines = |output: &CommandOutput| -> Vec<serde_json::Value> {
        output.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let hosts = ["-m", "127.0.2.1,127.0.2.2"];
    let output = home.kubeon(&[&["create", "t", "v1.36.3", "-C", "--progress", "json"], &hosts[..]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    let events = lines(&output);
    assert_eq!(events.last().unwrap(), &serde_json::json!({"event": "end", "ok": true}));
    let refused = home.kubeon(&["--progress", "json", "create", "x", "v1.29.9", "-m", MASTER]);
    assert_eq!(refused.code, 2);
    let end = lines(&refused).pop().unwrap();
    assert_eq!((&end["event"], &end["ok"]), (&"end".into(), &false.into()));
    let reason = end["reason"].as_str().unwrap();
    assert!(reason.starts_with("x cannot be planned, 1 reason") && reason.contains("v1.29.9"), "{reason}");
    let next = lines(&home.kubeon(&["destroy", "nosuch", "--yes", "--progress", "json"])).pop().unwrap();
    assert!(next["reason"].as_str().unwrap().contains("Cluster[nosuch] not exist"), "{next}");
}

#[test]
fn a_state_can_be_exported_and_imported() {
    let (home, other) = (Home::with_cluster("t"), Home::new());
    let kubeon = |home: &Home, args: &[&str], input: &[u8]| {
        use std::io::Write as _;
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubeon"))
            .args(args)
            .env_clear()
            .env("HOME", home.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    };
    let exported = kubeon(&home, &["state", "export", "t"], b"");
    assert!(exported.status.success() && !exported.stdout.is_empty(), "{exported:?}");
    let imported = kubeon(&other, &["state", "import", "t"], &exported.stdout);
    assert!(imported.status.success(), "{imported:?}");
    let read = |home: &Home| std::fs::read(home.path().join(".kubeon/t.json")).unwrap();
    assert_eq!(read(&home), read(&other));
    let again = kubeon(&other, &["state", "import", "t"], &exported.stdout);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is already up to date"), "{again:?}");
    for (args, input, words) in [
        (&["state", "import", "t"][..], &b"nonsense"[..], "not an archive"),
        (&["state", "import", "other"], &exported.stdout, "it belongs to t, not to other"),
        (&["state", "export", "nosuch"], b"", "Cluster[nosuch] not exist"),
        (&["state", "export", "../t"], b"", ""),
    ] {
        let refused = kubeon(&other, args, input);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {refused:?}");
        assert!(refused.stdout.is_empty());
        assert!(String::from_utf8_lossy(&refused.stderr).contains(words), "{refused:?}");
    }
    assert!(other.kubeon(&["--help"]).out.contains("\n  state "));
}
