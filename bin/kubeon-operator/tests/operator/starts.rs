//! What an operator asks for whatever it works on: lists, watches, its settings, its lease, events. Each goes wrong in every
//! way, all of them at once.

use std::time::{Duration, Instant};

use kubeon_api::kubeonkube::OperationResult;
use kubeon_envtest::{Fault, FaultRule, RuleId, When};

use crate::faults::FAULTS;
use crate::lab::{Lab, PATIENCE};
use crate::lives;

/// What is listed and watched.
const WATCHED: [&str; 7] =
    ["clusters", "clusteroperations", "kubernetesclusters", "jobs", "pods", "configmaps", "secrets"];

/// The first of these requests about each kind fails, each kind in another way; `turn` turns the ways on.
fn first_of_each(lab: &Lab, verb: &str, turn: usize) -> Vec<RuleId> {
    let each = WATCHED.iter().enumerate().map(|(at, resource)| {
        let how = FAULTS[(at + turn) % FAULTS.len()].clone();
        lab.proxy.fail(FaultRule { when: When::nth(verb, resource, 1), how })
    });
    each.collect()
}

async fn until_met(lab: &Lab, rules: &[RuleId]) {
    let met = async {
        while rules.iter().any(|rule| lab.proxy.met(*rule).failed.is_empty()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, met).await.expect("each of them failed");
}

#[tokio::test]
async fn every_list_and_every_watch_may_fail_in_every_way_when_it_starts() {
    let lab = Lab::open().await;
    for (turn, how) in FAULTS.into_iter().enumerate() {
        let mut rules = first_of_each(&lab, "list", turn);
        rules.extend(first_of_each(&lab, "watch", turn + 3));
        let settings = When::nth("get", "configmaps", 1).about("kubeonkube-config");
        rules.push(lab.proxy.fail(FaultRule { when: settings, how }));
        lab.start_with(&["--leader-elect=false", "--request-timeout=1"]);
        lives::shell(&lab, &format!("start-{turn}")).await;
        until_met(&lab, &rules).await;
        lab.proxy.heal();
        lab.kill().await;
    }
}

#[tokio::test]
async fn every_watch_may_end_and_fail_in_every_way_while_an_operation_runs() {
    let lab = Lab::open().await;
    for turn in 0..FAULTS.len() {
        lab.start_with(&["--leader-elect=false", "--request-timeout=1"]);
        let name = format!("watch-{turn}");
        lab.cluster(&name).await;
        lab.ask(&name, &name).await;
        lab.until_is(&name, OperationResult::Running).await;
        let rules = first_of_each(&lab, "watch", turn);
        lab.proxy.cut();
        let ended = lab.finish(&name).await;
        assert_eq!(lab.job_names(&ended).await.len(), 1, "{name}");
        until_met(&lab, &rules).await;
        lab.proxy.heal();
        lab.kill().await;
    }
}

/// A limit that cannot be read is no reason to let operations go.
#[tokio::test]
async fn operations_are_not_let_go_before_the_limit_is_known() {
    let lab = Lab::open().await;
    let limit = |text: &str| serde_json::json!({"CLUSTER_OPERATIONS_BACKEND_LIMIT": text});
    lab.config_map("kubeonkube-config", limit("40")).await;
    lab.cluster("sample").await;
    let done = serde_json::json!({"status": {"status": "Succeeded"}});
    for number in 0..35 {
        let name = format!("old-{number:02}");
        lab.ask("sample", &name).await;
        let done = kube::api::Patch::Merge(&done);
        lab.operations().patch_status(&name, &kube::api::PatchParams::default(), &done).await.unwrap();
    }
    // Twice, for it is read whenever its ConfigMap is seen, too.
    let settings = When::nth("get", "configmaps", 1).about("kubeonkube-config").times(2);
    let rule = lab.proxy.fail(FaultRule { when: settings, how: Fault::Status(500) });
    lab.start();
    lab.ask("sample", "new").await;
    lab.finish("new").await;
    until_met(&lab, &[rule]).await;
    let left = lab.operations().list(&kube::api::ListParams::default()).await.unwrap().items.len();
    assert_eq!(left, 36);
    assert!(!lab.proxy.writes().iter().any(|write| write.verb == "delete"), "nothing was let go");
}

/// Of the requests for the lease, mostly every other goes wrong: while it is asked for, then while it is renewed. Every
/// event is refused.
#[tokio::test]
async fn a_leader_is_found_and_stays_though_its_lease_is_asked_for_in_vain_every_other_time() {
    let lab = Lab::open().await;
    let ways = [
        (1, Fault::Status(500)),
        (3, Fault::LoseAnswer),
        (5, Fault::Hang),
        (7, Fault::Status(409)),
        (9, Fault::Refuse),
        (11, Fault::HangAfter),
        (15, Fault::Status(500)),
        (17, Fault::HangAfter),
    ];
    let each = ways
        .into_iter()
        .map(|(n, how)| lab.proxy.fail(FaultRule { when: When::nth_request(n).of("leases"), how }));
    let rules: Vec<_> = each.collect();
    let events = FaultRule { when: When::every_request().of("events"), how: Fault::Status(500) };
    let events = lab.proxy.fail(events);
    lab.start_with(&["--request-timeout=1"]);
    lives::shell(&lab, "sample").await;
    until_met(&lab, &rules).await;
    lives::shell(&lab, "another").await;
    assert!(lab.proxy.met(events).failed.len() >= 4, "two started and ended");
    let verbs: Vec<String> = rules.iter().flat_map(|rule| lab.proxy.met(*rule).failed).collect();
    for verb in ["get leases", "create leases", "update leases"] {
        assert!(verbs.iter().any(|one| one == verb), "{verb} never failed, only {verbs:?}");
    }
}

#[tokio::test]
async fn a_leader_that_ends_gives_the_lease_back_and_the_next_one_goes_on() {
    let lab = Lab::open().await;
    lab.start_with(&[]);
    lab.cluster("sample").await;
    lab.ask("sample", "one").await;
    lab.until_is("one", OperationResult::Running).await;
    let (took, well) = lab.end().await;
    assert!(well && took < Duration::from_secs(5), "{took:?}");
    lab.start_with(&[]);
    let begun = Instant::now();
    lab.finish("one").await;
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "it waited for the old lease to end: {:?}",
        begun.elapsed()
    );
}
