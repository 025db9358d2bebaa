//! A runner that dies while it writes.

use std::time::{Duration, Instant};

use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher};
use rustix::process::Signal;

use super::TestCluster;
use crate::support::TIMEOUT;

/// What was saved before the first change of a host is enough for the next Job.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_during_its_last_write_leaves_the_state_that_the_next_one_needs() {
    let cluster = TestCluster::new().await;
    let running = cluster.begin(&["--action", "kubeon"]).await;
    assert_eq!(running.line(), "released");
    cluster.go();
    assert_eq!(running.line(), "at etcd");
    let (when, how) = (RequestMatcher::nth("patch", "secrets", 1), ProxyFault::Hang);
    let rule = cluster.proxy.fail(FaultRule { when, how });
    cluster.go();
    let deadline = Instant::now() + TIMEOUT;
    while cluster.proxy.matches(rule).count == 0 {
        assert!(Instant::now() < deadline, "the runner saves the state");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.signal(Signal::KILL);
    drop(running);
    let saved = cluster.secret("state", "state.tar.zst").await;
    assert_eq!(saved, "state before\n", "neither the new state nor half of it");
    cluster.proxy.restore();
    // As the kubelet mounts it for the next Job.
    cluster.place.write("state", &saved);
    cluster.place.write("name", "demo");
    let done = cluster.run_to_the_end(cluster.command_for(&cluster.namespace).await).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(cluster.place.read("imported"), "state before\n");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "state after\n");
    assert_eq!(cluster.secret("kubeconfig", "kubeconfig").await, "kubeconfig of demo\n");
}
