//! The operator is killed after each of its writes, and started again.

use std::pin::pin;

use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher};

use crate::lab::{Lab, TIMEOUT};
use crate::scenarios;

/// The known numbers of writes of the runs, without events.
const SHELL_WRITES: usize = 12;
const CREATE_WRITES: usize = 13;
const SCALE_UP_WRITES: usize = 12;
const DELETE_WRITES: usize = 13;
/// More writes than any run has.
const MOST: usize = 64;

/// Executes a scenario and kills the operator after its n-th write about `name`. Returns whether there was such a
/// write.
async fn killed_after(lab: &Lab, n: usize, name: &str, scenario: impl Future<Output = ()>) -> bool {
    let when = RequestMatcher::nth_write(n).about(name);
    let rule = lab.proxy.fail(FaultRule { when, how: ProxyFault::CutAfter });
    lab.start();
    let mut scenario = pin!(scenario);
    let ended = tokio::select! {
        () = &mut scenario => true,
        cut = lab.proxy.wait_until_cut(TIMEOUT) => { cut.unwrap(); false }
    };
    lab.kill().await;
    let was_killed = !lab.proxy.remove(rule).failed.is_empty();
    lab.proxy.restore();
    if !ended {
        lab.start();
        scenario.await;
        lab.kill().await;
    }
    was_killed
}

#[tokio::test]
async fn an_operation_runs_exactly_one_job_when_the_operator_is_killed_after_any_write() {
    let lab = Lab::open().await;
    for n in 1..MOST {
        let name = format!("shell-{n:02}");
        if !killed_after(&lab, n, &name, scenarios::shell(&lab, &name)).await {
            assert!(n > SHELL_WRITES, "there were only {} writes", n - 1);
            return;
        }
    }
    panic!("more than {MOST} writes");
}

#[tokio::test]
async fn each_change_of_a_cluster_runs_one_job_when_the_operator_is_killed_after_any_write() {
    let lab = Lab::open().await;
    let mut writes = [None; 3];
    for n in 1..MOST {
        let (name, lab) = (format!("shop-{n:02}"), &lab);
        let (master, worker) = (format!("10.0.1.{n}"), format!("10.0.2.{n}"));
        let killed = [
            killed_after(lab, n, &name, scenarios::create(lab, &name, &master)).await,
            killed_after(lab, n, &name, scenarios::scale_up(lab, &name, &worker)).await,
            killed_after(lab, n, &name, scenarios::delete(lab, &name)).await,
        ];
        for (writes, _) in writes.iter_mut().zip(killed).filter(|(_, killed)| !killed) {
            writes.get_or_insert(n - 1);
        }
        if writes.iter().all(Option::is_some) {
            break;
        }
    }
    for (writes, known) in writes.into_iter().zip([CREATE_WRITES, SCALE_UP_WRITES, DELETE_WRITES]) {
        let writes = writes.unwrap_or_else(|| panic!("more than {MOST} writes"));
        assert!(writes >= known, "there were only {writes} writes of {known}");
    }
}
