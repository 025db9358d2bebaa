//! Requests from flags, in cases without hosts.

use crate::home::Home;
use serde_json::{Value, json};

const CREATE: [&str; 5] = ["create", "t", "v1.36.3", "-m", "127.0.2.1"];

fn create(home: &Home, flags: &[&str]) -> crate::home::CommandOutput {
    home.kubeon(&[&CREATE[..], flags].concat())
}

#[test]
fn invalid_labels_are_refused_with_flag_label_and_rule() {
    let home = Home::new();
    for only_create in [&[][..], &["-C"]] {
        let flags = ["-w", "127.0.2.2", "--worker-labels", "disk=ssd,a b=c", "--master-labels", "k=v/w"];
        create(&home, &[&flags[..], only_create].concat()).refuses(&[
            "t cannot be planned, 2 reasons",
            "--worker-labels a b=c",
            "\"a b\" is not a label key",
            "--master-labels k=v/w",
            "\"v/w\" is not a label value: empty, or up to 63 letters, digits, '-', '_' and '.'",
        ]);
    }
    assert!(home.files().is_empty(), "{:?}", home.files());
    let home = Home::with_cluster("t");
    let read = || std::fs::read(home.path().join(".kubeon/t.json")).unwrap();
    let before = read();
    let added = home.kubeon(&["addon", "t", "-w", "127.0.2.3", "--worker-labels=-x=y"]);
    added.refuses(&["--worker-labels -x=y", "\"-x\" is not a label key"]);
    assert_eq!(read(), before, "the state is unchanged");
}

#[test]
fn port_0_is_refused_by_the_parser() {
    let home = Home::new();
    for flag in ["--default-port", "--default-master-port", "--master-port"] {
        create(&home, &["-C", flag, "0"]).refuses(&[flag, "1..=65535"]);
    }
    assert!(home.files().is_empty(), "{:?}", home.files());
}

#[test]
fn a_stored_request_is_printed_in_the_requested_format() {
    let home = Home::new();
    let written = |format: &str| {
        let output = create(&home, &["-w", "127.0.2.2,127.0.2.3", "-C", "-o", format]);
        assert_eq!(output.code, 0, "{output:?}");
        output.out
    };
    let wanted = json!({"cluster": "t", "version": "v1.36.3", "changed": false, "of": 3});
    assert_eq!(serde_json::from_str::<Value>(&written("json")).unwrap(), wanted);
    let yaml = written("yaml");
    for line in ["cluster: t", "changed: false", "of: 3"] {
        assert!(yaml.lines().any(|found| found == line), "{line:?} is missing in:\n{yaml}");
    }
    assert_eq!(written("name"), "t\n");
    assert_eq!(written("wide"), "t is stored; no host was contacted\n");
}

#[test]
fn leaving_workers_are_part_of_the_printed_request() {
    let home = Home::with_cluster("t");
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    let output = create(&home, &["--default-port", "1", "-C", "--yes", "-o", "json"]);
    assert_eq!(output.code, 0, "{output:?}");
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&result["of"], &result["leaving"]), (&json!(1), &json!(["127.0.2.2"])), "{result}");
    let back = ["--default-port", "1", "-w", "127.0.2.2", "-C", "--take-back", "-o", "json"];
    let result: Value = serde_json::from_str(&create(&home, &back).out).unwrap();
    assert_eq!((&result["of"], result.get("leaving")), (&json!(2), None), "the worker stays: {result}");
}

#[test]
fn a_leaving_worker_keeps_its_remembered_login() {
    let own = ["-m", "127.0.2.1", "-w", "127.0.2.2", "--worker-user", "own", "--worker-port", "2222"];
    let home = Home::with_cluster_of("t", &own);
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    let output = create(&home, &["--default-user", "admin", "--default-port", "1", "-C", "--yes"]);
    assert_eq!(output.code, 0, "{output:?}");
    let state = std::fs::read(home.path().join(".kubeon/t.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    let logins = &state["logins"];
    assert_eq!(logins["127.0.2.1"], json!({"user": "admin", "port": 1}), "{logins}");
    assert_eq!(logins["127.0.2.2"], json!({"user": "own", "port": 2222}), "{logins}");
}

#[test]
fn notes_are_printed_although_no_host_is_contacted() {
    let home = Home::new();
    let output = create(&home, &["-m", "127.0.2.2", "--max-pods", "300", "-C", "-o", "json"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(serde_json::from_str::<Value>(&output.out).is_ok(), "only data: {}", output.out);
    for words in [
        "warning: 2 masters tolerate no more failures than 1; use 1, 3 or 5",
        "warning: 300 pods per node are more than",
    ] {
        assert!(output.err.contains(words), "{words:?} is missing in:\n{}", output.err);
    }
}
