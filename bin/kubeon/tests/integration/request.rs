//! What flags request, without any host: refused before anything is stored, or shown as stored.

use crate::home::Home;
use serde_json::{Value, json};

const CREATE: [&str; 5] = ["create", "t", "v1.36.3", "-m", "127.0.2.1"];

fn create(home: &Home, flags: &[&str]) -> crate::home::Said {
    home.kubeon(&[&CREATE[..], flags].concat())
}

#[test]
fn labels_that_no_api_server_takes_are_refused_with_flag_label_and_rule() {
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
    assert_eq!(read(), before, "nothing of it is written down");
}

#[test]
fn port_0_is_refused_as_it_is_read() {
    let home = Home::new();
    for flag in ["--default-port", "--default-master-port", "--master-port"] {
        create(&home, &["-C", flag, "0"]).refuses(&[flag, "1..=65535"]);
    }
    assert!(home.files().is_empty(), "{:?}", home.files());
}

#[test]
fn what_is_only_written_down_is_told_in_the_form_that_was_asked_for() {
    let home = Home::new();
    let written = |format: &str| {
        let said = create(&home, &["-w", "127.0.2.2,127.0.2.3", "-C", "-o", format]);
        assert_eq!(said.code, 0, "{said:?}");
        said.out
    };
    let wanted = json!({"cluster": "t", "version": "v1.36.3", "changed": false, "of": 3});
    assert_eq!(serde_json::from_str::<Value>(&written("json")).unwrap(), wanted);
    let yaml = written("yaml");
    for line in ["cluster: t", "changed: false", "of: 3"] {
        assert!(yaml.lines().any(|one| one == line), "{line:?} is missing in:\n{yaml}");
    }
    assert_eq!(written("name"), "t\n");
    assert_eq!(written("wide"), "t is written down; no host was touched\n");
}

#[test]
fn workers_that_are_to_leave_are_told_with_what_is_written_down() {
    let home = Home::with_cluster("t");
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    let said = create(&home, &["--default-port", "1", "-C", "--yes", "-o", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&told["of"], &told["leaving"]), (&json!(1), &json!(["127.0.2.2"])), "{told}");
    let back = ["--default-port", "1", "-w", "127.0.2.2", "-C", "--take-back", "-o", "json"];
    let told: Value = serde_json::from_str(&create(&home, &back).out).unwrap();
    assert_eq!((&told["of"], told.get("leaving")), (&json!(2), None), "it stays: {told}");
}

#[test]
fn a_worker_that_is_to_leave_is_logged_in_to_with_its_own_account() {
    let own = ["-m", "127.0.2.1", "-w", "127.0.2.2", "--worker-user", "own", "--worker-port", "2222"];
    let home = Home::with_cluster_of("t", &own);
    home.rewrite("t", "\"generation\": 0", "\"generation\": 3");
    let said = create(&home, &["--default-user", "admin", "--default-port", "1", "-C", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    let state = std::fs::read(home.path().join(".kubeon/t.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    let logins = &state["logins"];
    assert_eq!(logins["127.0.2.1"], json!({"user": "admin", "port": 1}), "{logins}");
    assert_eq!(logins["127.0.2.2"], json!({"user": "own", "port": 2222}), "{logins}");
}

#[test]
fn what_a_person_should_know_is_told_though_no_host_is_touched() {
    let home = Home::new();
    let said = create(&home, &["-m", "127.0.2.2", "--max-pods", "300", "-C", "-o", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(serde_json::from_str::<Value>(&said.out).is_ok(), "data and nothing else: {}", said.out);
    for words in [
        "warning: 2 masters survive no failure that 1 does not; use 1, 3 or 5",
        "warning: 300 pods per node are more than",
    ] {
        assert!(said.err.contains(words), "{words:?} is missing in:\n{}", said.err);
    }
}
