//! Tests of error reports.

use std::collections::BTreeMap;

use kubeon_plan::{Outcome, PlannedHost, Snapshot};
use kubeon_wire::{Category, Fence};

use super::*;

fn host(i: u8) -> HostAddress {
    format!("172.30.0.1{i}").parse().unwrap()
}

fn step(i: u8, title: &str, op: Op) -> Step {
    Step {
        id: format!("artifacts/{title}@h{i}").parse().unwrap(),
        stage: kubeon_plan::StageName::new("artifacts"),
        host: host(i),
        title: title.to_owned(),
        why: String::new(),
        needs: Vec::new(),
        digest: String::new(),
        timeout_seconds: 1,
        tries: 1,
        journal: true,
        record_in: None,
        destructive: false,
        op,
    }
}

fn reconciled(results: &[StepOutcome]) -> Reconciled {
    let digest = "9c1e".repeat(16).parse().unwrap();
    let steps = vec![
        step(1, "start etcd", Op::Await { checks: Vec::new() }),
        step(2, "start etcd", Op::Await { checks: Vec::new() }),
        step(
            3,
            "put kubelet v1.36.3",
            Op::Part { name: "kubelet".to_owned(), digest, size: 1, unpacked_size: 1, source: None },
        ),
    ];
    let fence = |i: u8| Fence {
        cluster: "demo".parse().unwrap(),
        uid: i.to_string(),
        generation: 1,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Worker,
    };
    let hosts =
        (1..=3).map(|i| (host(i), PlannedHost { name: format!("h{i}").parse().unwrap(), fence: fence(i) }));
    let outcome =
        Outcome { steps: steps.iter().map(|step| step.id.clone()).zip(results.iter().cloned()).collect() };
    let plan = Plan {
        cluster: "demo".parse().unwrap(),
        version: "v1.36.3".parse().unwrap(),
        nodes_at: None,
        generation: 1,
        hosts: hosts.collect::<BTreeMap<_, _>>(),
        steps,
        continues: false,
        up_to_date: 16,
        facts: 3,
        awaits_network: false,
        notes: Vec::new(),
        unreachable: Vec::new(),
        waiting: Vec::new(),
        rolling: Vec::new(),
        quorum: None,
    };
    Reconciled { snapshot: Snapshot::default(), plan, outcome }
}

const DONE: StepOutcome = StepOutcome::Done { changed: true, milliseconds: 1 };

#[test]
fn names_host_step_cause_and_completed_steps() {
    let failure = StepFailure {
        category: Category::Exhausted,
        cause: "no space left on /var/lib/kubeon (41 MiB free, 84 MiB needed)".to_owned(),
        log: vec!["last line".to_owned()],
    };
    let error =
        incomplete(&reconciled(&[DONE, DONE, StepOutcome::Failed { failure }]), false, "kubeon create demo");
    assert_eq!(error.category, ErrorCategory::Failed);
    assert_eq!(
        error.to_string(),
        "\
error: demo: step 3 of 3 failed on h3
  step    artifacts: put kubelet v1.36.3 (sha256 9c1e9c1e…)
  cause   no space left on /var/lib/kubeon (41 MiB free, 84 MiB needed)
  output  last line
  done    18 steps are up to date; h1 and h2 are complete
continue with: kubeon create demo
"
    );
}

#[test]
fn an_interrupted_run_names_the_next_command() {
    let skipped = StepOutcome::Skipped { because: None };
    let error = incomplete(&reconciled(&[DONE, skipped.clone(), skipped]), true, "kubeon create demo");
    assert_eq!(error.category, ErrorCategory::Interrupted);
    assert_eq!(
        error.to_string(),
        "error: demo: stopped before the end\n  done  17 steps are up to date; h1 is complete\ncontinue with: kubeon create demo\n"
    );
}
