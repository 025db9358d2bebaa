//! Logs of pods that were told to end. The kubelet removes a log with its pod, so each is followed from then on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::LinkError;
use kubeon_operations::{ObjectKind, ObjectRef};
use tokio::sync::{Notify, watch};

/// Logs that are followed at once. More are read when their pods ended, if they are still there.
const MOST: usize = 16;
/// How long the rest of a log is waited for when its pod ended.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How long the replica that leads keeps the log of a deleted pod for a reconcile that reads it.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// The same for a replica that does not lead: the lease of a dead leader ends after 15 s, then this replica may read the
/// log.
const ASKED_WITHIN_STANDBY: Duration = Duration::from_secs(45);
/// What a kubelet sends in the place of a log that it has not any more.
const INSTEAD: [&str; 2] =
    ["failed to try resolving symlinks in path ", "unable to retrieve container logs for "];

/// Logs that are followed, by pod.
#[derive(Default)]
pub(crate) struct LogFollower {
    followed: Mutex<HashMap<ObjectRef, Followed>>,
}

#[derive(Clone)]
struct Followed {
    /// Its text, once it is whole.
    text: watch::Receiver<Option<String>>,
    asked: Arc<Notify>,
}

impl LogFollower {
    fn followed(&self) -> MutexGuard<'_, HashMap<ObjectRef, Followed>> {
        self.followed.lock()
    }

    /// Follows the log of a pod to its end, unless that is being done.
    pub(crate) fn follow<F>(&self, pod: ObjectRef, log: impl FnOnce() -> F)
    where
        F: Future<Output = Result<String, LinkError>> + Send + 'static,
    {
        let mut followed = self.followed();
        if followed.len() >= MOST {
            // A pod may go unseen, while no watch works; its log must not take the place of others for ever.
            followed.retain(|_, log| log.text.has_changed().is_ok());
        }
        if followed.len() >= MOST {
            return;
        }
        let Entry::Vacant(place) = followed.entry(pod) else { return };
        let (whole, text) = watch::channel(None);
        place.insert(Followed { text, asked: Arc::default() });
        let log = log();
        tokio::spawn(async move {
            match log.await {
                Ok(text) => drop(whole.send(Some(text))),
                Err(error) => tracing::debug!(%error, "a log cannot be followed; it is read in the end"),
            }
        });
    }

    /// What a pod that ended said, if it was followed.
    pub(crate) async fn heard(&self, pod: &ObjectRef) -> Option<String> {
        let Followed { mut text, asked } = self.followed().get(pod).cloned()?;
        let whole = tokio::time::timeout(END_WITHIN, text.wait_for(Option::is_some)).await;
        let said = whole.ok()?.ok()?.clone().filter(|text| !text.is_empty());
        asked.notify_one();
        said
    }

    /// Whether somebody may still ask for what a pod said that is gone.
    pub(crate) fn holds(&self, pod: &ObjectRef) -> bool {
        self.followed().contains_key(pod)
    }

    /// Waits until the log of a deleted pod was read, at most 5 s, or 45 s on a replica that does not lead; then removes
    /// it.
    pub(crate) async fn over(&self, pod: &ObjectRef, leads: bool) {
        let asked = self.followed().get(pod).map(|followed| Arc::clone(&followed.asked));
        if let Some(asked) = asked {
            let limit = if leads { ASKED_WITHIN } else { ASKED_WITHIN_STANDBY };
            // The log of a pod whose operation was deleted is never read.
            let _ = tokio::time::timeout(limit, asked.notified()).await;
        }
        self.followed().remove(pod);
    }
}

/// Where the log of a pod is.
pub(crate) fn log_of(pod: &ObjectMeta) -> ObjectRef {
    ObjectRef::new(
        ObjectKind::Log,
        pod.namespace.clone().unwrap_or_default(),
        pod.name.clone().unwrap_or_default(),
    )
}

/// Whether this is no log but the kubelet's word that there is none.
pub(crate) fn is_lost(log: &str) -> bool {
    log.lines().count() == 1 && INSTEAD.iter().any(|words| log.starts_with(words))
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
    async fn what_a_pod_said_until_its_end_is_heard_though_the_pod_is_gone() {
        let log_follower = Arc::new(LogFollower::default());
        let log = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok("swept\n".to_owned())
        };
        log_follower.follow(pod("a"), || log);
        log_follower.follow(pod("a"), || async { panic!("it is followed once") });
        let (other, name) = (Arc::clone(&log_follower), pod("a"));
        let over = tokio::spawn(async move { other.over(&name, true).await });
        assert_eq!(log_follower.heard(&pod("a")).await.as_deref(), Some("swept\n"));
        over.await.unwrap();
        assert!(!log_follower.holds(&pod("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_keeps_the_log_of_a_deleted_pod_until_it_may_lead() {
        for (leads, heard) in [(false, Some("swept\n")), (true, None)] {
            let log_follower = Arc::new(LogFollower::default());
            log_follower.follow(pod("a"), || async { Ok("swept\n".to_owned()) });
            let (other, name) = (Arc::clone(&log_follower), pod("a"));
            let over = tokio::spawn(async move { other.over(&name, leads).await });
            // The lease of a dead leader ends after 15 s; its next holder retries every few seconds.
            tokio::time::sleep(Duration::from_secs(25)).await;
            assert_eq!(log_follower.heard(&pod("a")).await.as_deref(), heard, "leads: {leads}");
            over.await.unwrap();
            assert!(!log_follower.holds(&pod("a")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_followed_is_left_to_be_read() {
        let log_follower = LogFollower::default();
        assert_eq!(log_follower.heard(&pod("a")).await, None);
        log_follower.follow(pod("a"), || async { Err(failed()) });
        log_follower.follow(pod("b"), || async { Ok(String::new()) });
        log_follower.follow(pod("c"), std::future::pending);
        for name in ["a", "b", "c"] {
            assert_eq!(log_follower.heard(&pod(name)).await, None, "{name}");
            assert!(log_follower.holds(&pod(name)));
            log_follower.over(&pod(name), true).await;
            assert!(!log_follower.holds(&pod(name)));
        }
    }

    #[tokio::test]
    async fn many_at_once_are_not_followed() {
        let log_follower = LogFollower::default();
        for at in 0..=MOST {
            log_follower.follow(pod(&format!("p{at}")), std::future::pending);
        }
        assert!(log_follower.holds(&pod("p0")) && !log_follower.holds(&pod(&format!("p{MOST}"))));
    }

    #[tokio::test]
    async fn what_nobody_asked_for_makes_room_for_others() {
        let log_follower = LogFollower::default();
        for at in 0..MOST {
            log_follower.follow(pod(&format!("p{at}")), || async { Ok("over\n".to_owned()) });
        }
        for at in 0..MOST {
            assert!(log_follower.heard(&pod(&format!("p{at}"))).await.is_some());
        }
        tokio::task::yield_now().await;
        log_follower.follow(pod("new"), std::future::pending);
        assert!(log_follower.holds(&pod("new")) && !log_follower.holds(&pod("p0")));
    }

    #[test]
    fn the_word_of_a_kubelet_that_has_no_log_is_no_log() {
        let word =
            "failed to try resolving symlinks in path \"/var/log/pods/a/0.log\": lstat: no such file\n";
        assert!(is_lost(word) && is_lost("unable to retrieve container logs for containerd://1"));
        assert!(!is_lost("at work\n") && !is_lost("") && !is_lost(&format!("at work\n{word}")));
    }
}
