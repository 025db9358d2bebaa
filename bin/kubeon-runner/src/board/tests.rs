use super::*;

fn host(text: &str) -> HostAddress {
    text.parse().unwrap()
}

fn started(address: &str, name: &str, stage: &str) -> Progress {
    let (step, why) = (format!("start {stage}"), "it is missing".to_owned());
    Progress::Started { host: host(address), name: name.to_owned(), stage: stage.to_owned(), step, why }
}

fn finished(address: &str, step: &str) -> Progress {
    Progress::Finished { host: host(address), step: step.to_owned(), changed: true, milliseconds: 12 }
}

#[test]
fn counts_steps_and_names_the_one_it_is_at() {
    let mut board = Board::default();
    assert_eq!(
        board.take(&Progress::Plan { steps: 24, standing: 3 }),
        "plan: 24 steps to do, 3 stand already"
    );
    assert_eq!(board.take(&started("10.0.0.4", "h4", "etcd")), "[3/27] h4 · start etcd: it is missing");
    board.take(&started("10.0.0.5", "h5", "containerd"));
    assert_eq!(board.current().unwrap(), "containerd on h5");
    assert_eq!(
        board.take(&finished("10.0.0.5", "start containerd")),
        "[4/27] h5 · start containerd done (12 ms)"
    );
    let steps = board.steps();
    assert_eq!((steps.done, steps.total, &*steps.text), (4, 27, "4/27"));
    assert_eq!(steps.current.unwrap(), "etcd on h4");
}

#[test]
fn remembers_what_failed_for_good_only() {
    let mut board = Board::default();
    board.take(&started("10.0.0.4", "h4", "etcd"));
    let failed = |again| Progress::Failed {
        host: host("10.0.0.4"),
        step: "etcd".to_owned(),
        cause: "port 2379 is taken".to_owned(),
        log: vec!["bind: address in use".to_owned()],
        again,
    };
    assert!(board.take(&failed(true)).contains("(it is tried again)\n    bind: address in use"));
    assert!(board.failures().is_empty());
    board.take(&failed(false));
    assert_eq!(board.failures()[0].name.as_deref(), Some("h4"));
    board.take(&failed(false));
    let conditions = board.status()["conditions"].clone();
    let told = conditions.as_array().unwrap().iter().find(|one| one["type"] == "StepFailed").unwrap();
    let line = "h4: etcd: port 2379 is taken";
    assert_eq!(told["message"], format!("{line}; it is tried again\n{line}"), "one line for each outcome");
    assert_eq!(told["reason"], "Failed");
}

#[test]
fn counts_the_tasks_of_a_script_of_which_nobody_knows_how_many_come() {
    let mut board = Board::default();
    board.stage("Running", "");
    assert_eq!(board.steps().text, "0/1");
    board.heading("TASK [ping]");
    board.heading("TASK [pong]");
    assert_eq!(board.steps().text, "1/…");
    assert_eq!(board.steps().current.unwrap(), "TASK [pong]");
    board.ended("Succeeded", "");
    assert_eq!(board.steps().text, "2/2");
}

#[test]
fn says_when_every_step_stood_already() {
    let said = |plans: &[u32]| {
        let mut board = Board::default();
        for steps in plans {
            board.take(&Progress::Plan { steps: *steps, standing: 186 });
        }
        board.ended("Succeeded", "all of it was done");
        let condition = board.status()["conditions"][0].clone();
        [&condition["reason"], &condition["message"]].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(said(&[0]), ["NothingToDo", "kubeon found all of its steps done already: 186"]);
    for plans in [&[][..], &[3], &[3, 0], &[0, 3]] {
        assert_eq!(said(plans), ["Succeeded", "all of it was done"], "{plans:?}");
    }
}

fn report(ok: bool) -> Progress {
    let check = |name: &str, severity: &str, message: &str| json!({"check": name, "severity": severity, "ok": ok, "found": "3.9", "wanted": "3.10", "message": message});
    let checks =
        [check("kernel", "error", "kernel version is minor < 3.10"), check("swap", "warning", "swap is on")];
    let host = json!({"host": "10.0.0.2", "role": "worker", "ok": ok, "checks": checks});
    let report = json!({"cluster": "demo", "ok": ok, "errors": 1, "warnings": 1, "hosts": [host]});
    serde_json::from_value(json!({"event": "precheck", "report": report})).unwrap()
}

#[test]
fn a_precheck_becomes_a_condition_and_lines_and_lets_the_next_stage_begin() {
    let mut board = Board::default();
    board.precheck(Some(("Creating", "makes the cluster")));
    assert_eq!(board.status()["conditions"][1]["status"], "Unknown");
    let told = board.take(&report(false));
    assert!(told.contains("1 hosts, 1 errors") && told.contains("warning 10.0.0.2 : swap is on"), "{told}");
    assert_eq!(board.unfit(), Some("10.0.0.2 : kernel version is minor < 3.10"));
    let found = json!([
        {"host": "10.0.0.2", "check": "kernel", "severity": "error", "message": "kernel version is minor < 3.10"},
        {"host": "10.0.0.2", "check": "swap", "severity": "warning", "message": "swap is on"},
    ]);
    assert_eq!(board.status()["findings"], found);
    assert_eq!(board.status()["conditions"][0]["reason"], "Prechecking");
    assert_eq!(board.status()["conditions"][1]["message"], "10.0.0.2 : kernel version is minor < 3.10");
    board.take(&report(true));
    assert_eq!(board.unfit(), None);
    assert_eq!(board.status()["conditions"][0]["reason"], "Creating");
    assert_eq!(board.status()["conditions"][1]["status"], "True");
}

#[test]
fn new_keys_are_counted_and_as_many_shown_as_an_event_takes() {
    let mut board = Board::default();
    board.host_keys_pinned(&[]);
    assert_eq!(board.status()["conditions"], json!([]));
    let keys: Vec<String> = (1..=100).map(|n| format!("10.0.0.{n} SHA256:{}", "x".repeat(43))).collect();
    board.host_keys_pinned(&keys[..2]);
    let condition = &board.status()["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("HostKeysPinned"), &json!("True")));
    assert_eq!(condition["message"], format!("2 new: {}, {}", keys[0], keys[1]));
    board.host_keys_pinned(&keys);
    let message = board.status()["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("100 new: ") && message.ends_with("x, …"), "{message}");
    assert!((900..=1024).contains(&message.len()), "{}", message.len());
}

#[test]
fn a_condition_keeps_its_time_until_it_changes() {
    let mut board = Board::default();
    board.stage("Prechecking", "checks");
    let first = board.progressing.clone().unwrap().since;
    board.stage("Creating", "makes");
    assert_eq!(board.progressing.clone().unwrap().since, first);
    board.ended("Failed", "why");
    let condition = &board.status()["conditions"][0];
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Failed");
    assert_eq!(condition["type"], PROGRESSING);
}
