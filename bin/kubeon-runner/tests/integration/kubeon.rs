//! The action `kubeon`, with a script in place of the program kubeon.

use std::process::Command;

use crate::support::{Done, Place, Running};
use rustix::process::Signal;

/// Records its arguments, keeps its state in files, and writes progress events.
const PROGRAM: &str = r#"#!/bin/bash
echo "$*" >>calls; stat -c '%a' "$KUBEON_HOME" >>modes
say() { echo "$1" >&2; }
case "$1 $2" in
"state import") cat >imported ;;
"state export") echo "state of $3" ;;
precheck*) source ./precheck ;;
*)
    [ "$1" = destroy ] || source ./precheck
    mkdir -p "$KUBEON_HOME/conf/cluster"; echo '{}' >"$KUBEON_HOME/demo.json"
    echo "kubeconfig of demo" >"$KUBEON_HOME/conf/cluster/demo.yaml"
    source ./work ;;
esac
"#;

const PASSED: &str =
    r#"say '{"event":"precheck","report":{"cluster":"demo","ok":true,"errors":0,"warnings":0,"hosts":[]}}'"#;
const SUCCEEDS: &str = r#"
say '{"event":"plan","steps":2,"standing":1}'
say '{"event":"saved"}'
read -r line; echo "received: $line"
say '{"event":"started","host":"10.0.0.4","name":"h4","stage":"etcd","step":"start etcd","why":"it is missing"}'
say '{"event":"finished","host":"10.0.0.4","step":"start etcd","changed":true,"milliseconds":7}'
say 'not a line of progress'
say '{"event":"end","ok":true}'
"#;

fn place(precheck: &str, work: &str) -> Place {
    let place = Place::new();
    place.program("kubeon", PROGRAM);
    place.write("precheck", precheck);
    place.write("work", work);
    place.write("conf/cluster.json", r#"{"metadata":{"name":"demo"},"spec":{"cluster":{"region":"north"}}}"#);
    place
}

fn command(place: &Place, operation: &str) -> Command {
    let mut command = place.command(&["--action", "kubeon"]);
    command.env("OPERATION", operation).env("CLUSTER_NAME", "demo").env("CLUSTER_NAMESPACE", "team");
    command
}

fn run(place: &Place, operation: &str) -> Done {
    Running::start(&mut command(place, operation)).end()
}

#[test]
fn create_prechecks_saves_continues_and_reports_progress() {
    let place = place(PASSED, SUCCEEDS);
    for (name, content) in [
        ("auth/ssh-privatekey", "a key"),
        ("auth/passphrase", "a passphrase"),
        ("auth/username", "admin\n"),
        ("auth/password", "a password"),
        ("auth/sudo-password", "a sudo password"),
        ("state", "an old state"),
    ] {
        place.write(name, content);
    }
    let done = run(&place, "creating");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, ["received: go"]);
    let output: Vec<&str> = done.stderr.iter().map(String::as_str).collect();
    for line in [
        "plan: 2 steps to do, 1 up to date",
        "[1/3] h4 · start etcd: it is missing",
        "[2/3] h4 · start etcd done (7 ms)",
        "not a line of progress",
        "everything is up to date",
    ] {
        assert!(output.contains(&line), "{line} is missing in {output:#?}");
    }
    assert_eq!(place.read("imported"), "an old state");
    let calls = place.read("calls");
    let first: Vec<&str> = calls.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(first, ["state", "create"], "{calls}");
    for word in [
        "--default-user=admin",
        "--hold",
        "--yes",
        "--progress json",
        "auth/ssh-privatekey",
        "@",
        "--accept-new",
    ] {
        assert!(calls.contains(word), "{word} is missing in {calls}");
    }
    assert!(!calls.contains("a password") && !calls.contains("a passphrase"), "{calls}");
    assert!(place.read("modes").lines().all(|mode| mode == "700"));
}

#[test]
fn pinned_host_keys_accept_no_new_host() {
    for (mode, accepts) in [("pinned", false), ("firstContact", true)] {
        let place = place(PASSED, SUCCEEDS);
        let declared = serde_json::json!({"metadata": {"name": "demo"},
            "spec": {"cluster": {"authConfig": {"hostKeys": mode}}}});
        place.write("conf/cluster.json", &declared.to_string());
        assert_eq!(run(&place, "creating").code, Some(0));
        assert_eq!(place.read("calls").contains("--accept-new"), accepts, "{mode}");
    }
}

/// Contract B, case 40.
#[test]
fn a_missing_or_unknown_operation_is_refused_with_the_texts_of_kubernetes_operator() {
    let place = place(PASSED, SUCCEEDS);
    let done = Running::start(&mut place.command(&["--action", "kubeon"])).end();
    assert_eq!(done.code, Some(1));
    assert!(done.contains("the OPERATION env not found,exit"), "{done:?}");
    assert!(run(&place, "dancing").contains("\"dancing\" is none of creating"));
    std::fs::remove_file(place.file("conf/cluster.json")).unwrap();
    let done = run(&place, "creating");
    assert_eq!(done.code, Some(1));
    assert!(done.contains("config is not found,exit."), "{done:?}");
    assert_eq!(place.read("calls"), "", "no program was run");
}

/// Contract B, cases 33 and 35.
#[test]
fn failed_prechecks_end_the_work_before_a_host_is_changed() {
    let check = r#"{"check":"kernel","severity":"error","ok":false,"found":"3.9","wanted":"3.10","message":"kernel version is minor < 3.10"}"#;
    let host = format!(r#"{{"host":"10.0.0.2","role":"worker","ok":false,"checks":[{check}]}}"#);
    let report = format!(r#"{{"cluster":"demo","ok":false,"errors":1,"warnings":0,"hosts":[{host}]}}"#);
    let precheck = &format!("say '{{\"event\":\"precheck\",\"report\":{report}}}'; exit 2");
    let place = place(precheck, SUCCEEDS);
    let done = run(&place, "creating");
    assert_eq!(done.code, Some(2));
    let log = place.read("termination-log");
    assert!(
        log.starts_with("[precheck] failed with:\n 10.0.0.2 : kernel version is minor < 3.10\n"),
        "{log}"
    );
    assert!(!done.contains("received:"));
}

#[test]
fn passes_ignored_checks_to_the_command_but_no_other_arguments() {
    let place = place(PASSED, SUCCEEDS);
    let mut ignoring = command(&place, "creating");
    assert_eq!(Running::start(ignoring.env("IGNORE_CHECKS", " swap, dns ")).end().code, Some(0));
    assert!(place.read("calls").contains(" --ignore=swap,dns "), "{}", place.read("calls"));
    let done = Running::start(ignoring.env("IGNORE_CHECKS", "swap,--yes")).end();
    assert!(done.code == Some(1) && done.contains("\"--yes\" is not the name of a check"), "{done:?}");
}

/// Only the state knows a worker that leaves, also by the name of its node.
#[test]
fn workers_to_skip_are_passed_to_the_program_by_address() {
    let state = r#"{"generation":3,"spec":{"masters":[],"workers":[{"address":"10.0.0.2","name":"h2"}]},"leaving":{"10.0.0.4":"h4"}}"#;
    for (operation, command_line) in
        [("scaling-down", "create --take-back --only-changed-workers "), ("terminating", "destroy demo")]
    {
        let place = place(PASSED, SUCCEEDS);
        let import =
            format!("\"state import\") cat >imported; echo '{state}' >\"$KUBEON_HOME/demo.json\" ;;");
        place.program("kubeon", &PROGRAM.replace("\"state import\") cat >imported ;;", &import));
        place.write("state", "an old state");
        let mut skipping = command(&place, operation);
        let done = Running::start(skipping.env("WITHOUT", " h4, 10.0.0.2,10.9.9.9")).end();
        assert_eq!(done.code, Some(0), "{done:?}");
        let calls = place.read("calls");
        let call =
            calls.lines().find(|call| call.starts_with(command_line)).unwrap_or_else(|| panic!("{calls}"));
        assert!(call.contains(" --without=10.0.0.4 --without=10.0.0.2 "), "{call}");
        assert!(!call.contains("10.9.9.9"), "an unknown host is ignored: {call}");
        assert!(
            done.contains("kubeon.io/without names hosts that are not in the cluster: 10.9.9.9"),
            "{done:?}"
        );
    }
    let place = place(PASSED, "exit 1");
    let done = Running::start(command(&place, "creating").env("WITHOUT", "h9")).end();
    assert!(place.read("termination-log").contains("hosts that are not in the cluster: h9"), "{done:?}");
    let done = Running::start(command(&place, "creating").env("WITHOUT", "--yes")).end();
    assert!(
        done.code == Some(1) && done.contains("\"--yes\" is neither an address nor the name"),
        "{done:?}"
    );
}

#[test]
fn a_job_without_a_token_changes_no_host_because_it_cannot_save_the_state() {
    let place = place(PASSED, SUCCEEDS);
    place.write("state", "an old state");
    for operation in ["creating", "scaling-up", "terminating"] {
        let mut named = command(&place, operation);
        let mut in_a_pod = command(&place, operation);
        named.args(["--operation", "shop-1"]);
        in_a_pod.env("KUBERNETES_SERVICE_HOST", "10.64.0.1");
        for mut command in [named, in_a_pod] {
            let done = Running::start(&mut command).end();
            assert_eq!(done.code, Some(1), "{done:?}");
            assert_eq!(place.read("calls"), "", "no program was run");
            let log = place.read("termination-log");
            assert!(
                log.contains("token is mounted at /var/run/secrets") && log.contains("no host was changed"),
                "{log}"
            );
        }
    }
    let mut prechecks = command(&place, "prechecking");
    assert_eq!(
        Running::start(prechecks.args(["--operation", "shop-1"])).end().code,
        Some(0),
        "a precheck changes no host"
    );
}

#[test]
fn prechecking_alone_changes_nothing() {
    let place = place(PASSED, SUCCEEDS);
    assert_eq!(run(&place, "prechecking").code, Some(0));
    assert_eq!(place.read("calls").lines().count(), 1);
}

#[test]
fn destroying_needs_neither_a_precheck_nor_a_confirmation() {
    let place = place(PASSED, SUCCEEDS);
    assert_eq!(run(&place, "terminating").code, Some(0));
    let calls = place.read("calls");
    assert!(calls.starts_with("destroy demo --yes") && calls.lines().count() == 1, "{calls}");
}

/// The state has the logins of the last run; the inventory has the current ones.
#[test]
fn destroying_gets_the_current_logins() {
    let place = place(PASSED, SUCCEEDS);
    place.write("conf/hosts.yml", "all: {}\n");
    assert_eq!(run(&place, "terminating").code, Some(0));
    let calls = place.read("calls");
    assert!(calls.starts_with("destroy demo --inventory "), "{calls}");
    assert!(calls.contains("conf/hosts.yml --yes "), "{calls}");
    assert_eq!(run(&place, "creating").code, Some(0));
    let calls = place.read("calls");
    assert!(calls.matches("--inventory").count() == 1, "create needs only the declaration: {calls}");
}

#[test]
fn a_failure_names_step_host_and_cause() {
    let work = r#"
        say '{"event":"started","host":"10.0.0.4","name":"h4","stage":"etcd","step":"start etcd","why":"it is missing"}'
        say '{"event":"failed","host":"10.0.0.4","step":"start etcd","cause":"port 2379 is taken","log":["bind: in use"],"again":false}'
        echo last line >&2; exit 1"#;
    let place = place(PASSED, work);
    let done = run(&place, "creating");
    assert_eq!(done.code, Some(1));
    let log = place.read("termination-log");
    let first = log.lines().next().unwrap();
    assert_eq!(first, "start etcd on h4: port 2379 is taken (kubeon create ended with exit code 1)");
    assert!(log.contains("bind: in use") && log.contains("last line"), "{log}");
}

#[test]
fn a_signal_lets_the_program_end_itself() {
    let place =
        place(PASSED, "trap 'echo stopping; exit 130' TERM; echo ready; while :; do sleep 0.05; done");
    let running = Running::start(&mut command(&place, "creating"));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.line(), "stopping");
    assert_eq!(running.end().code, Some(143));
    assert!(place.read("termination-log").starts_with("terminated"));
}

#[test]
fn a_state_that_cannot_be_restored_ends_the_work_at_once() {
    let place = place(PASSED, SUCCEEDS);
    place.write("state", "damaged");
    place.program("kubeon", "#!/bin/bash\necho \"$*\" >>calls; echo 'this is not a state' >&2; exit 2\n");
    let done = run(&place, "creating");
    assert_eq!(done.code, Some(1));
    assert!(done.contains("this is not a state") && done.contains("cannot restore the state"), "{done:?}");
    assert_eq!(place.read("calls").lines().count(), 1);
}

#[test]
fn the_folder_of_the_state_is_removed_at_the_end() {
    let place = place(PASSED, SUCCEEDS);
    std::fs::create_dir(place.file("scratch")).unwrap();
    let done = Running::start(command(&place, "creating").args(["--scratch", "scratch"])).end();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(std::fs::read_dir(place.file("scratch")).unwrap().count(), 0);
}
