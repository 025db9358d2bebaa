//! The operator is killed after any of its writes, and started again.

use std::pin::pin;

use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher};

use crate::lab::{Lab, TIMEOUT};
use crate::lives;

/// The known numbers of writes of the runs, without events.
const SHELL_WRITES: usize = 12;
const CREATE_WRITES: usize = 13;
const GROW_WRITES: usize = 12;
const DELETE_WRITES: usize = 13;
/// More writes than any run has.
const MOST: usize = 64;

/// A run with an operator that is killed after its n-th write about `name`; whether there was one.
async fn killed_after(lab: &Lab, n: usize, name: &str, life: impl Future<Output = ()>) -> bool {
    let when = RequestMatcher::nth_write(n).about(name);
    let rule = lab.proxy.fail(FaultRule { when, how: ProxyFault::CutAfter });
    lab.start();
    let mut life = pin!(life);
    let ended = tokio::select! {
        () = &mut life => true,
        cut = lab.proxy.wait_until_cut(TIMEOUT) => { cut.unwrap(); false }
    };
    lab.kill().await;
    let met = !lab.proxy.remove(rule).failed.is_empty();
    lab.proxy.restore();
    if !ended {
        lab.start();
        life.await;
        lab.kill().await;
    }
    met
}

#[tokio::test]
async fn killed_after_any_write_it_makes_exactly_one_job_and_ends_the_operation() {
    let lab = Lab::open().await;
    for n in 1..MOST {
        let name = format!("shell-{n:02}");
        if !killed_after(&lab, n, &name, lives::shell(&lab, &name)).await {
            assert!(n > SHELL_WRITES, "there were only {} writes", n - 1);
            return;
        }
    }
    panic!("more than {MOST} writes");
}

#[tokio::test]
async fn killed_after_any_write_a_declared_cluster_is_made_grown_and_taken_down_by_one_job_each() {
    let lab = Lab::open().await;
    let mut writes = [None; 3];
    for n in 1..MOST {
        let (name, lab) = (format!("shop-{n:02}"), &lab);
        let (master, worker) = (format!("10.0.1.{n}"), format!("10.0.2.{n}"));
        let met = [
            killed_after(lab, n, &name, lives::create(lab, &name, &master)).await,
            killed_after(lab, n, &name, lives::grow(lab, &name, &worker)).await,
            killed_after(lab, n, &name, lives::delete(lab, &name)).await,
        ];
        for (writes, _) in writes.iter_mut().zip(met).filter(|(_, met)| !met) {
            writes.get_or_insert(n - 1);
        }
        if writes.iter().all(Option::is_some) {
            break;
        }
    }
    for (writes, known) in writes.into_iter().zip([CREATE_WRITES, GROW_WRITES, DELETE_WRITES]) {
        let writes = writes.unwrap_or_else(|| panic!("more than {MOST} writes"));
        assert!(writes >= known, "there were only {writes} writes of {known}");
    }
}
