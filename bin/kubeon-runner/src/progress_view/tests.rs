use serde_json::json;

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
fn counts_steps_and_names_the_current_one() {
    let mut view = ProgressView::default();
    assert_eq!(
        view.record(&Progress::Plan { steps: 24, up_to_date: 3 }),
        "plan: 24 steps to do, 3 up to date"
    );
    assert_eq!(view.record(&started("10.0.0.4", "h4", "etcd")), "[3/27] h4 · start etcd: it is missing");
    view.record(&started("10.0.0.5", "h5", "containerd"));
    assert_eq!(view.current().unwrap(), "containerd on h5");
    assert_eq!(
        view.record(&finished("10.0.0.5", "start containerd")),
        "[4/27] h5 · start containerd done (12 ms)"
    );
    let steps = view.steps();
    assert_eq!((steps.done, steps.total, &*steps.text), (4, 27, "4/27"));
    assert_eq!(steps.current.unwrap(), "etcd on h4");
}

#[test]
fn keeps_only_failures_that_are_not_retried() {
    let mut view = ProgressView::default();
    view.record(&started("10.0.0.4", "h4", "etcd"));
    let failed = |again| Progress::Failed {
        host: host("10.0.0.4"),
        step: "etcd".to_owned(),
        cause: "port 2379 is taken".to_owned(),
        log: vec!["bind: address in use".to_owned()],
        again,
    };
    assert!(view.record(&failed(true)).contains("(will retry)\n    bind: address in use"));
    assert!(view.failures().is_empty());
    view.record(&failed(false));
    assert_eq!(view.failures()[0].name.as_deref(), Some("h4"));
    view.record(&failed(false));
    let conditions = json!(view.status())["conditions"].clone();
    let step_failed =
        conditions.as_array().unwrap().iter().find(|condition| condition["type"] == "StepFailed").unwrap();
    let line = "h4: etcd: port 2379 is taken";
    assert_eq!(step_failed["message"], format!("{line}; will retry\n{line}"), "one line for each outcome");
    assert_eq!(step_failed["reason"], "Failed");
}

#[test]
fn counts_the_tasks_of_a_script_whose_number_is_unknown() {
    let mut view = ProgressView::default();
    view.begin("Running", "");
    assert_eq!(view.steps().text, "0/1");
    view.start_task("TASK [ping]");
    view.start_task("TASK [pong]");
    assert_eq!(view.steps().text, "1/…");
    assert_eq!(view.steps().current.unwrap(), "TASK [pong]");
    view.finish(WorkResult::Succeeded, "");
    assert_eq!(view.steps().text, "2/2");
}

#[test]
fn reports_that_every_step_was_up_to_date() {
    let condition = |plans: &[u32]| {
        let mut view = ProgressView::default();
        for steps in plans {
            view.record(&Progress::Plan { steps: *steps, up_to_date: 186 });
        }
        view.finish(WorkResult::Succeeded, "completed");
        let condition = json!(view.status())["conditions"][0].clone();
        [&condition["reason"], &condition["message"]].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(condition(&[0]), ["NothingToDo", "all 186 steps are up to date"]);
    for plans in [&[][..], &[3], &[3, 0], &[0, 3]] {
        assert_eq!(condition(plans), ["Succeeded", "completed"], "{plans:?}");
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
fn a_precheck_becomes_a_condition_and_lines_and_starts_the_next_stage() {
    let mut view = ProgressView::default();
    view.precheck(Some(("Creating", "creating the cluster")));
    assert_eq!(json!(view.status())["conditions"][1]["status"], "Unknown");
    let text = view.record(&report(false));
    assert!(text.contains("1 hosts, 1 errors") && text.contains("warning 10.0.0.2 : swap is on"), "{text}");
    assert_eq!(view.unfit(), Some("10.0.0.2 : kernel version is minor < 3.10"));
    let found = json!([
        {"host": "10.0.0.2", "check": "kernel", "severity": "error", "message": "kernel version is minor < 3.10"},
        {"host": "10.0.0.2", "check": "swap", "severity": "warning", "message": "swap is on"},
    ]);
    assert_eq!(json!(view.status())["findings"], found);
    assert_eq!(json!(view.status())["conditions"][0]["reason"], "Prechecking");
    assert_eq!(json!(view.status())["conditions"][1]["message"], "10.0.0.2 : kernel version is minor < 3.10");
    view.record(&report(true));
    assert_eq!(view.unfit(), None);
    assert_eq!(json!(view.status())["conditions"][0]["reason"], "Creating");
    assert_eq!(json!(view.status())["conditions"][1]["status"], "True");
}

#[test]
fn the_condition_counts_new_keys_and_shows_as_many_as_an_event_may_contain() {
    let mut view = ProgressView::default();
    view.host_keys_pinned(&[]);
    assert_eq!(json!(view.status())["conditions"], json!([]));
    let keys: Vec<String> = (1..=100).map(|n| format!("10.0.0.{n} SHA256:{}", "x".repeat(43))).collect();
    view.host_keys_pinned(&keys[..2]);
    let condition = &json!(view.status())["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("HostKeysPinned"), &json!("True")));
    assert_eq!(condition["message"], format!("2 new: {}, {}", keys[0], keys[1]));
    view.host_keys_pinned(&keys);
    let message = json!(view.status())["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("100 new: ") && message.ends_with("x, …"), "{message}");
    assert!((900..=1024).contains(&message.len()), "{}", message.len());
}

#[test]
fn a_condition_keeps_its_time_until_it_changes() {
    let mut view = ProgressView::default();
    view.begin("Prechecking", "checks");
    let first = view.progressing.clone().unwrap().since;
    view.begin("Creating", "makes");
    assert_eq!(view.progressing.clone().unwrap().since, first);
    view.finish(WorkResult::Failed, "why");
    let condition = &json!(view.status())["conditions"][0];
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Failed");
    assert_eq!(condition["type"], PROGRESSING);
}

#[test]
fn the_status_of_a_thousand_unfit_hosts_is_below_32_kib() {
    let checks = |n: u32| {
        let check = |severity: &str| {
            json!({"check": "dns", "severity": severity, "ok": false, "found": "", "wanted": "",
            "message": format!("no server of {n} answers: {}", "x".repeat(900)), "remedy": null})
        };
        json!([check("warning"), check("error")])
    };
    let unfit = |n: u32| json!({"host": host_address(n), "role": "worker", "ok": false, "checks": checks(n)});
    let hosts: Vec<_> = (0..1000).map(unfit).collect();
    let report = json!({"cluster": "demo", "ok": false, "errors": 1000, "warnings": 1000, "hosts": hosts});
    let mut view = ProgressView::default();
    view.precheck(Some(("Creating", "creating the cluster")));
    view.record(&serde_json::from_value(json!({"event": "precheck", "report": report})).unwrap());
    for n in 0..1000 {
        let cause = "port 2379 is taken ".repeat(50);
        let failed = Progress::Failed {
            host: host_address(n),
            step: "etcd".into(),
            cause,
            log: Vec::new(),
            again: false,
        };
        view.record(&failed);
    }
    let reason = view.unfit().unwrap().to_owned();
    view.finish(WorkResult::Failed, &reason);
    let status = json!(view.status());
    assert!(status.to_string().len() <= 32 * 1024, "{} bytes", status.to_string().len());
    let findings = status["findings"].as_array().unwrap();
    assert!(findings.len() > 5 && findings.iter().all(|finding| finding["severity"] == "error"));
    assert!(status["refusals"].as_array().unwrap().len() > 5);
}

fn host_address(n: u32) -> HostAddress {
    host(&format!("10.0.{}.{}", n / 250, n % 250 + 1))
}
