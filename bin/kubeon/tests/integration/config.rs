//! `kubeon config`: what it shows and refuses, without contact to a host.

use crate::home::{CommandOutput, Home, PROGRAM};

/// Stores a cluster that was completed.
fn running_cluster() -> Home {
    let home = Home::with_cluster_of("t", &["-m", "127.0.2.1", "--max-pods", "100", "--default-port", "1"]);
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    home.rewrite("t", "\"version\": null", "\"version\": \"v1.36.3\"");
    home.rewrite("t", "\"creating\"", "\"running\"");
    home
}

/// `kubeon config edit` with an editor.
fn edit(home: &Home, editor: &str) -> CommandOutput {
    let mut command = home.command_in_home(PROGRAM);
    CommandOutput::from(command.env("EDITOR", editor).args(["config", "edit", "t"]).output().unwrap())
}

#[test]
fn settings_are_shown() {
    let home = running_cluster();
    let all = home.kubeon(&["config", "get", "t"]);
    assert!(all.out.contains("podCIDR: 10.96.0.0/12") && all.out.contains("  maxPods: 100\n"), "{all:?}");
    assert_eq!(home.kubeon(&["config", "get", "t", "network.maxPods"]).out, "100\n");
    assert_eq!(home.kubeon(&["config", "get", "t", "network.dnsDomain"]).out, "cluster.local\n");
    let json = home.kubeon(&["config", "get", "t", "network", "-o", "json"]).out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["maxPods"], 100);
    assert_eq!(home.kubeon(&["config", "get", "t", "extraArgs"]).out, "", "the default");
    home.kubeon(&["config", "get", "nosuch"]).refuses(&["Cluster[nosuch] not exist"]);
}

#[test]
fn settings_that_cannot_change_are_refused_with_their_reasons() {
    let home = running_cluster();
    let before = std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap();
    for (assignments, words) in [
        (&["podCIDR=10.128.0.0/12"][..], &["podCIDR", "every pod has an address of it"][..]),
        (&["network.maxPod=90"], &["network.maxPod", "maxPods"]),
        (&["network.maxPods=many"], &["network.maxPods"]),
        (&["network.maxPods"], &["is not FIELD=VALUE"]),
        (&["nodeList=[]", "kubeVersion=v1.37.2"], &["kubeon addon", "kubeon upgrade"]),
        (&["extraArgs.kubelet.config=/x"], &["config"]),
        (&["network.nodePortRange=10000-30000"], &["covers ports 10248", "30000-32767"]),
    ] {
        home.kubeon(&[&["config", "set", "t"], assignments].concat()).refuses(words);
    }
    let fixed = ["create", "t", "v1.36.3", "-m", "127.0.2.1", "--pod-cidr", "10.128.0.0/12"];
    home.kubeon(&fixed).refuses(&["podCIDR", "cannot change: every pod has an address of it"]);
    assert_eq!(std::fs::read_to_string(home.path().join(".kubeon/t.json")).unwrap(), before);
}

#[test]
fn an_editor_changes_nothing_by_accident() {
    let home = running_cluster();
    let same = edit(&home, "true");
    assert_eq!((same.code, same.out.as_str()), (0, "t: nothing was changed\n"), "{same:?}");
    edit(&home, "false").refuses(&["false ended with", "nothing was changed"]);
    edit(&home, "sed -i s/10.96.0.0/10.128.0.0/").refuses(&["every pod has an address of it"]);
    edit(&home, "sh -c 'echo \": {\" > $0'").refuses(&["the settings are no YAML"]);
    assert_eq!(home.files().iter().filter(|file| file.ends_with(".yaml")).count(), 0, "{:?}", home.files());
}

/// Flags that are not given keep what was changed.
#[test]
fn a_repeated_create_keeps_settings_that_it_does_not_name() {
    let home = running_cluster();
    let again = home.kubeon(&["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(home.kubeon(&["config", "get", "t", "network.maxPods"]).out, "100\n");
    let other =
        ["create", "t", "v1.36.3", "-C", "-m", "127.0.2.1", "--default-port", "1", "--max-pods", "90"];
    assert_eq!(home.kubeon(&other).code, 0);
    assert_eq!(home.kubeon(&["config", "get", "t", "network.maxPods"]).out, "90\n");
}
