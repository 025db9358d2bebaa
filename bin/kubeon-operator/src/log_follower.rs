//! Logs of pods that are terminating. The kubelet removes a log with its pod, so the operator reads each to its end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::LinkError;
use kubeon_operations::{ObjectKind, ObjectRef};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

/// The most logs that are followed at the same time. Another log is read after its pod ended, if it still
/// exists.
const MOST_RUNNING: usize = 16;
/// Bytes of finished logs in memory; beyond them the oldest is dropped. A standby stores a finished log for 45 s.
const MOST_FINISHED_BYTES: usize = 32 * 1024 * 1024;
/// The bytes that are counted for a finished log in addition to its text.
const ENTRY_BYTES: usize = 1024;
/// How long a reconcile waits for the rest of a log when its pod ended.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the leader stores the log of a deleted pod for a reconcile that reads it.
const LEADER_STORES_FOR: Duration = Duration::from_secs(5);
/// How long a standby stores it: the lease of a dead leader expires after 15 s, then this replica may read the log.
const STANDBY_STORES_FOR: Duration = Duration::from_secs(45);
/// The prefixes of the messages that a kubelet sends when a log no longer exists.
const LOST_PREFIXES: [&str; 2] =
    ["failed to try resolving symlinks in path ", "unable to retrieve container logs for "];

/// Whether a replica of the operator holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaRole {
    Leader,
    Standby,
}

/// Follows logs to their end, and stores them until a reconcile reads them.
#[derive(Default)]
pub(crate) struct LogFollower {
    logs: Arc<Mutex<FollowedLogs>>,
}

#[derive(Default)]
struct FollowedLogs {
    by_pod: HashMap<ObjectRef, FollowedLog>,
    /// The number of logs that were followed so far.
    count: u64,
}

struct FollowedLog {
    /// Its text, once it is complete.
    text: watch::Receiver<Option<String>>,
    was_read: Arc<Notify>,
    /// Distinguishes it from an earlier log of a pod with this name.
    id: u64,
    /// The counted bytes, once the log is finished.
    finished: Option<usize>,
}

impl FollowedLogs {
    fn running(&self) -> usize {
        self.by_pod.values().filter(|log| log.finished.is_none()).count()
    }

    /// Records that a log is complete or cannot be followed. Drops the oldest finished logs that exceed the
    /// limit.
    fn finish(&mut self, pod: &ObjectRef, id: u64, text: usize) {
        match self.by_pod.get_mut(pod) {
            Some(log) if log.id == id => log.finished = Some(text + ENTRY_BYTES),
            _ => return,
        }
        let mut bytes: usize = self.by_pod.values().filter_map(|log| log.finished).sum();
        while bytes > MOST_FINISHED_BYTES {
            let finished = self.by_pod.iter().filter_map(|(pod, log)| Some((log.id, log.finished?, pod)));
            let Some((_, size, oldest)) = finished.min_by_key(|(id, ..)| *id) else { return };
            let oldest = oldest.clone();
            tracing::debug!(pod = oldest.name, "the finished log of a pod is dropped: too many are stored");
            self.by_pod.remove(&oldest);
            bytes -= size;
        }
    }
}

impl LogFollower {
    fn logs(&self) -> MutexGuard<'_, FollowedLogs> {
        self.logs.lock()
    }

    /// Follows the log of a pod to its end, unless it is already followed.
    pub(crate) fn follow<F>(&self, pod: ObjectRef, log: impl FnOnce() -> F)
    where
        F: Future<Output = Result<String, LinkError>> + Send + 'static,
    {
        let mut logs = self.logs();
        if logs.running() >= MOST_RUNNING {
            return;
        }
        logs.count += 1;
        let id = logs.count;
        let Entry::Vacant(entry) = logs.by_pod.entry(pod.clone()) else { return };
        let (complete, text) = watch::channel(None);
        entry.insert(FollowedLog { text, was_read: Arc::default(), id, finished: None });
        drop(logs);
        let (log, logs) = (log(), Arc::clone(&self.logs));
        tokio::spawn(async move {
            let bytes = match log.await {
                Ok(text) => {
                    let bytes = text.len();
                    complete.send_replace(Some(text));
                    bytes
                }
                Err(error) => {
                    tracing::debug!(%error, pod = pod.name, "the log cannot be followed; it is read after its pod ended");
                    0
                }
            };
            logs.lock().finish(&pod, id, bytes);
        });
    }

    /// The complete log of a pod, if it was followed.
    pub(crate) async fn finished_log(&self, pod: &ObjectRef) -> Option<String> {
        let (mut text, was_read) = {
            let logs = self.logs();
            let log = logs.by_pod.get(pod)?;
            (log.text.clone(), Arc::clone(&log.was_read))
        };
        let complete = tokio::time::timeout(END_TIMEOUT, text.wait_for(Option::is_some)).await;
        let text = complete.ok()?.ok()?.clone().filter(|text| !text.is_empty());
        was_read.notify_one();
        text
    }

    /// Whether the log of a pod is stored or being read.
    pub(crate) fn holds(&self, pod: &ObjectRef) -> bool {
        self.logs().by_pod.contains_key(pod)
    }

    /// Waits until a reconcile has read the log of a deleted pod, at most 5 s, or 45 s on a standby; then
    /// removes it.
    pub(crate) async fn release(&self, pod: &ObjectRef, role: ReplicaRole) {
        let was_read = self.logs().by_pod.get(pod).map(|log| Arc::clone(&log.was_read));
        if let Some(was_read) = was_read {
            let limit = match role {
                ReplicaRole::Leader => LEADER_STORES_FOR,
                ReplicaRole::Standby => STANDBY_STORES_FOR,
            };
            // The log of a pod whose operation was deleted is never read.
            let _ = tokio::time::timeout(limit, was_read.notified()).await;
        }
        self.logs().by_pod.remove(pod);
    }
}

/// The reference of the log of a pod.
pub(crate) fn log_of(pod: &ObjectMeta) -> ObjectRef {
    ObjectRef::new(
        ObjectKind::Log,
        pod.namespace.clone().unwrap_or_default(),
        pod.name.clone().unwrap_or_default(),
    )
}

/// Whether the text is not a log but the kubelet's message that the log does not exist.
pub(crate) fn is_lost(log: &str) -> bool {
    log.lines().count() == 1 && LOST_PREFIXES.iter().any(|prefix| log.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> ObjectRef {
        ObjectRef::new(ObjectKind::Log, "ns", name)
    }

    fn failed() -> LinkError {
        LinkError::Silent { action: "read a log".to_owned(), after: Duration::from_secs(1) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_complete_log_is_read_after_its_pod_was_deleted() {
        let log_follower = Arc::new(LogFollower::default());
        let log = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok("cleanup\n".to_owned())
        };
        log_follower.follow(pod("a"), || log);
        log_follower.follow(pod("a"), || async { panic!("the log is followed once") });
        let (other, name) = (Arc::clone(&log_follower), pod("a"));
        let release = tokio::spawn(async move { other.release(&name, ReplicaRole::Leader).await });
        assert_eq!(log_follower.finished_log(&pod("a")).await.as_deref(), Some("cleanup\n"));
        release.await.unwrap();
        assert!(!log_follower.holds(&pod("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_stores_the_log_of_a_deleted_pod_until_it_may_lead() {
        for (role, expected) in [(ReplicaRole::Standby, Some("cleanup\n")), (ReplicaRole::Leader, None)] {
            let log_follower = Arc::new(LogFollower::default());
            log_follower.follow(pod("a"), || async { Ok("cleanup\n".to_owned()) });
            let (other, name) = (Arc::clone(&log_follower), pod("a"));
            let release = tokio::spawn(async move { other.release(&name, role).await });
            // The lease of a dead leader ends after 15 s; its next holder retries every few seconds.
            tokio::time::sleep(Duration::from_secs(25)).await;
            assert_eq!(log_follower.finished_log(&pod("a")).await.as_deref(), expected, "{role:?}");
            release.await.unwrap();
            assert!(!log_follower.holds(&pod("a")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_cannot_be_followed_is_not_stored() {
        let log_follower = LogFollower::default();
        assert_eq!(log_follower.finished_log(&pod("a")).await, None);
        log_follower.follow(pod("a"), || async { Err(failed()) });
        log_follower.follow(pod("b"), || async { Ok(String::new()) });
        log_follower.follow(pod("c"), std::future::pending);
        for name in ["a", "b", "c"] {
            assert_eq!(log_follower.finished_log(&pod(name)).await, None, "{name}");
            assert!(log_follower.holds(&pod(name)));
            log_follower.release(&pod(name), ReplicaRole::Leader).await;
            assert!(!log_follower.holds(&pod(name)));
        }
    }

    #[tokio::test]
    async fn the_number_of_followed_logs_is_bounded() {
        let log_follower = LogFollower::default();
        for at in 0..=MOST_RUNNING {
            log_follower.follow(pod(&format!("p{at}")), std::future::pending);
        }
        assert!(log_follower.holds(&pod("p0")) && !log_follower.holds(&pod(&format!("p{MOST_RUNNING}"))));
    }

    /// Follows a log that is complete at once.
    async fn finished(log_follower: &LogFollower, name: &str, text: String) {
        log_follower.follow(pod(name), || async { Ok(text) });
        while log_follower.logs().by_pod.get(&pod(name)).is_some_and(|log| log.finished.is_none()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn finished_logs_do_not_count_as_running_ones() {
        let log_follower = LogFollower::default();
        for at in 0..MOST_RUNNING {
            log_follower.follow(pod(&format!("running{at}")), std::future::pending);
        }
        log_follower.release(&pod("running0"), ReplicaRole::Leader).await;
        for at in 0..4 * MOST_RUNNING {
            finished(&log_follower, &format!("p{at}"), format!("{at}\n")).await;
        }
        for at in 0..4 * MOST_RUNNING {
            assert_eq!(log_follower.finished_log(&pod(&format!("p{at}"))).await, Some(format!("{at}\n")));
        }
        assert!(log_follower.holds(&pod("running1")));
    }

    #[tokio::test]
    async fn finished_logs_are_bounded_by_their_bytes_and_the_oldest_is_removed_first() {
        let log_follower = LogFollower::default();
        let text = "x".repeat(MOST_FINISHED_BYTES / 4);
        log_follower.follow(pod("running"), std::future::pending);
        for at in 0..5 {
            finished(&log_follower, &format!("p{at}"), text.clone()).await;
        }
        let is_stored = |at: usize| log_follower.holds(&pod(&format!("p{at}")));
        assert_eq!((0..5).map(is_stored).collect::<Vec<_>>(), [false, false, true, true, true]);
        assert!(log_follower.holds(&pod("running")));
    }

    #[test]
    fn the_message_of_a_kubelet_about_a_missing_log_is_not_a_log() {
        let message =
            "failed to try resolving symlinks in path \"/var/log/pods/a/0.log\": lstat: no such file\n";
        assert!(is_lost(message) && is_lost("unable to retrieve container logs for containerd://1"));
        assert!(!is_lost("running\n") && !is_lost("") && !is_lost(&format!("running\n{message}")));
    }
}
