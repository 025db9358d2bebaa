//! Tests of the view.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_apply::RunEvent;
use kubeon_plan::{EtcdQuorum, Plan, PlannedHost, Step, StepId};
use kubeon_wire::{Category, Fence, Op, StepFailure};

use super::events::ProgressEvents;
use super::progress_view::RunProgress;
use super::{lines, plain, plan as text};

const MIB: u64 = 1_048_576;

fn address(i: u8) -> HostAddress {
    format!("172.30.0.1{i}").parse().unwrap()
}

fn step(i: u8, stage: &str, title: &str, needs: &[&str], op: Op) -> Step {
    Step {
        id: format!("{stage}/{title}@h{i}").parse().unwrap(),
        stage: stage.parse().unwrap(),
        host: address(i),
        title: title.to_owned(),
        why: format!("{stage} is missing"),
        needs: needs.iter().map(|need| need.parse().unwrap()).collect(),
        digest: String::new(),
        timeout_seconds: 60,
        tries: 2,
        journal: true,
        record_in: None,
        destructive: false,
        op,
    }
}

fn kernel() -> Op {
    Op::Kernel { modules: Vec::new(), parameters: BTreeMap::new(), optional: Vec::new() }
}

fn part(name: &str, size: u64) -> Op {
    let digest = format!("{:064x}", size).parse().unwrap();
    Op::Part { name: name.to_owned(), digest, size, unpacked_size: size * 3, source: None }
}

fn planned(name: &str) -> PlannedHost {
    let fence = Fence {
        cluster: "demo".parse().unwrap(),
        uid: "u".to_owned(),
        generation: 1,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Master,
    };
    PlannedHost { name: name.parse().unwrap(), fence }
}

fn plan() -> Plan {
    let mut steps = Vec::new();
    for i in 1..=3 {
        steps.push(step(i, "prepare", "load kernel modules", &[], kernel()));
        steps.push(step(i, "artifacts", "put kubelet v1.36.3", &[], part("kubelet", 100 * MIB)));
        steps.push(step(i, "artifacts", "put containerd v2.4.2", &[], part("containerd", 212 * MIB)));
    }
    steps.push(step(
        1,
        "control",
        "start kube-apiserver v1.36.3",
        &["artifacts/put kubelet v1.36.3@h1"],
        kernel(),
    ));
    for i in 2..=3 {
        let needs = ["control/start kube-apiserver v1.36.3@h1"];
        steps.push(step(i, "join", "start kubelet v1.36.3", &needs, Op::Await { checks: Vec::new() }));
    }
    Plan {
        cluster: "demo".parse().unwrap(),
        version: "v1.36.3".parse().unwrap(),
        nodes_at: None,
        generation: 1,
        hosts: (1..=3).map(|i| (address(i), planned(&format!("h{i}")))).collect(),
        steps,
        continues: false,
        up_to_date: 0,
        facts: 3,
        awaits_network: false,
        notes: Vec::new(),
        unreachable: Vec::new(),
        waiting: Vec::new(),
        rolling: Vec::new(),
        quorum: None,
    }
}

fn done(i: u8, step: &str) -> RunEvent {
    RunEvent::Done {
        host: address(i),
        step: format!("{step}@h{i}").parse().unwrap(),
        changed: true,
        milliseconds: 1234,
    }
}

fn started(i: u8, step: &str) -> RunEvent {
    RunEvent::StepStarted { host: address(i), step: format!("{step}@h{i}").parse().unwrap() }
}

fn failure(cause: &str) -> StepFailure {
    StepFailure { category: Category::Failed, cause: cause.to_owned(), log: Vec::new() }
}

/// h1 starts the API server, h2 receives parts, h3 waits for the API server.
fn midway() -> RunProgress {
    let mut view = RunProgress::new(&plan());
    let at = |seconds: u64| Duration::from_secs(seconds);
    for i in 1..=3 {
        view.on_event(&RunEvent::HostOpened { host: address(i) }, at(0));
        view.on_event(&done(i, "prepare/load kernel modules"), at(1));
    }
    for i in [1, 3] {
        view.on_event(&done(i, "artifacts/put kubelet v1.36.3"), at(4));
        view.on_event(&done(i, "artifacts/put containerd v2.4.2"), at(4));
    }
    view.on_event(&started(1, "control/start kube-apiserver v1.36.3"), at(12));
    let note = "waiting for /readyz".to_owned();
    let step: StepId = "control/start kube-apiserver v1.36.3@h1".parse().unwrap();
    view.on_event(&RunEvent::Note { host: address(1), step, text: note }, at(12));
    view.on_event(&done(2, "artifacts/put kubelet v1.36.3"), at(4));
    view.on_event(&started(2, "artifacts/put containerd v2.4.2"), at(11));
    let step: StepId = "artifacts/put containerd v2.4.2@h2".parse().unwrap();
    view.on_event(&RunEvent::Progress { host: address(2), step, done: 112 * MIB, total: 212 * MIB }, at(12));
    view
}

fn shown(view: &RunProgress, seconds: f64, width: usize, height: usize) -> String {
    lines::lines(view, Duration::from_secs_f64(seconds), width, height).join("\n")
}

#[test]
fn shows_finished_stages_and_the_current_step_or_wait() {
    assert_eq!(
        shown(&midway(), 14.2, 100, 24),
        "\
demo  v1.36.3                                                                     0:14 of about 0:15
  h1  ✓ prepared  ✓ artifacts  ● start kube-apiserver v1.36.3: waiting for /readyz (2.2 s)
  h2  ✓ prepared  ● artifacts 212/312 MiB, 96 MiB/s, 2 s left
  h3  ✓ prepared  ✓ artifacts  ○ join: waits for h1: start kube-apiserver v1.36.3"
    );
}

#[test]
fn a_narrow_terminal_shows_the_number_of_finished_stages() {
    let text = shown(&midway(), 14.2, 60, 24);
    assert_eq!(
        text,
        "\
demo  v1.36.3                             0:14 of about 0:15
  h1  ✓ 2  ● start kube-apiserver v1.36.3: waiting for /rea…
  h2  ✓ 1  ● artifacts 212/312 MiB, 96 MiB/s, 2 s left
  h3  ✓ 2  ○ join: waits for h1: start kube-apiserver v1.36…"
    );
    for width in 20..120 {
        for line in shown(&midway(), 14.2, width, 24).lines() {
            assert!(console::measure_text_width(line) <= width, "{width}: {line}");
        }
    }
}

#[test]
fn a_low_terminal_shows_the_busy_hosts_and_counts_the_rest() {
    let mut view = midway();
    view.on_event(&done(2, "artifacts/put containerd v2.4.2"), Duration::from_secs(13));
    view.on_event(&done(1, "control/start kube-apiserver v1.36.3"), Duration::from_secs(13));
    view.on_event(&started(3, "join/start kubelet v1.36.3"), Duration::from_secs(14));
    let text = shown(&view, 14.2, 80, 4);
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>().join("\n"),
        "  h3  ✓ prepared  ✓ artifacts  ● waits until start kubelet v1.36.3\n  … and 2 hosts more: 1 waiting, 1 done"
    );
}

#[test]
fn a_check_is_shown_as_a_wait() {
    let mut view = midway();
    view.on_event(&started(3, "join/start kubelet v1.36.3"), Duration::from_secs(14));
    assert!(shown(&view, 14.2, 100, 24).ends_with("● waits until start kubelet v1.36.3"));
}

#[test]
fn a_failed_step_stays_visible() {
    let mut view = midway();
    let step: StepId = "artifacts/put containerd v2.4.2@h2".parse().unwrap();
    let failed =
        RunEvent::Failed { host: address(2), step, failure: failure("no space left on /var/lib/kubeon") };
    view.on_event(&failed, Duration::from_secs(13));
    assert!(
        shown(&view, 14.2, 100, 24)
            .contains("  h2  ✓ prepared  ✗ put containerd v2.4.2: no space left on /var/lib/kubeon")
    );
    assert_eq!(
        plain::line(&view, &failed, 1).unwrap(),
        "h2  ✗ put containerd v2.4.2: no space left on /var/lib/kubeon"
    );
}

#[test]
fn the_estimate_is_never_less_than_the_elapsed_time() {
    let view = midway();
    let late = Duration::from_secs(300);
    assert!(view.expected(late) > late);
    assert!(RunProgress::new(&plan()).expected(Duration::ZERO) >= Duration::from_secs(8));
}

#[test]
fn without_a_terminal_every_finished_step_is_a_line() {
    let view = midway();
    assert_eq!(
        plain::line(&view, &done(2, "prepare/load kernel modules"), 1).unwrap(),
        "h2  ✓ load kernel modules (1.2 s)"
    );
    assert_eq!(plain::line(&view, &started(2, "prepare/load kernel modules"), 1), None);
    assert!(plain::line(&view, &started(2, "prepare/load kernel modules"), 4).is_some());
}

#[test]
fn a_plan_has_one_line_per_stage() {
    assert_eq!(
        text::table(&plan(), false).text(false),
        [
            "  prepare    3 hosts  load kernel modules                  because prepare is missing\n",
            "  artifacts  3 hosts  put 2 parts (312 MiB) where missing  because artifacts is missing\n",
            "  control    h1       start kube-apiserver v1.36.3         because control is missing\n",
            "  join       h2 h3    start kubelet v1.36.3                because join is missing\n",
        ]
        .concat()
    );
    assert_eq!(text::summary(&plan()), "12 steps on 3 hosts, no step destroys anything.");
}

#[test]
fn progress_events_report_start_end_and_failure() {
    let events = ProgressEvents::new(&plan());
    let step: StepId = "artifacts/put containerd v2.4.2@h2".parse().unwrap();
    let failed = |step: &StepId| RunEvent::Failed {
        host: address(2),
        step: step.clone(),
        failure: failure("no space left"),
    };
    assert_eq!(events.line(&failed(&step)), None, "a step that did not start is reported with its lost host");
    let line = |event: &RunEvent| serde_json::to_string(&events.line(event).unwrap()).unwrap();
    assert_eq!(
        line(&started(2, "artifacts/put containerd v2.4.2")),
        r#"{"event":"started","host":"172.30.0.12","name":"h2","stage":"artifacts","step":"put containerd v2.4.2","why":"artifacts is missing"}"#
    );
    assert_eq!(
        line(&done(2, "artifacts/put containerd v2.4.2")),
        r#"{"event":"finished","host":"172.30.0.12","step":"put containerd v2.4.2","changed":true,"milliseconds":1234}"#
    );
    let again = RunEvent::Retrying {
        host: address(2),
        step: step.clone(),
        failure: failure("no space left"),
        attempt: 2,
        pause_milliseconds: 500,
    };
    for (event, word) in [(failed(&step), "\"again\":false"), (again, "\"again\":true")] {
        assert!(line(&event).contains(word), "{}", line(&event));
    }
    let lost = RunEvent::HostLost { host: address(3), failure: failure("no route to host") };
    assert_eq!(
        line(&lost),
        r#"{"event":"note","text":"172.30.0.13 is lost: no route to host","warning":true}"#
    );
}

#[test]
fn a_plan_names_what_waits_for_which_host() {
    let dead = kubeon_plan::UnreachableHost {
        address: address(9),
        name: "h9".parse().unwrap(),
        role: kubeon_api::HostRole::Master,
        why: "no route to host".to_owned(),
    };
    let member = kubeon_plan::WaitingStep {
        id: "etcd/member@h2".parse().unwrap(),
        host: address(2),
        title: "start etcd member h2".to_owned(),
        why: "its desired content has changed".to_owned(),
        hosts: vec![address(9)],
        risk: "2 of 3 etcd members can serve".to_owned(),
    };
    let plan = Plan { unreachable: vec![dead], waiting: vec![member], up_to_date: 90, ..plan() };
    let head = |plan: &Plan| text::head(plan, 3, 2);
    assert_eq!(head(&plan), "demo  v1.36.3  2 of 3 masters answer, 90 steps are up to date\n");
    let kept = Plan { quorum: Some(EtcdQuorum { serving: 2, total: 3 }), ..plan.clone() };
    let wanted = "demo  v1.36.3  2 of 3 masters answer, etcd has quorum (2 of 3), 90 steps are up to date\n";
    assert_eq!(head(&kept), wanted);
    let all = Plan { unreachable: Vec::new(), ..kept };
    assert_eq!(head(&all), "demo  v1.36.3  3 masters, 2 workers, 90 steps are up to date\n");
    assert_eq!(
        text::waits(&plan),
        "\
waits for h9: everything on it, because it does not answer (no route to host); not needed for this change
waits for h9: start etcd member h2 on h2, because its desired content has changed (2 of 3 etcd members can serve)
"
    );
}
