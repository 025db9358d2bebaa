//! Whether all initial lists are complete. Before that, an object that is not in the cache may exist.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::fmt;

use tokio::sync::Notify;

/// The most lists that are named in the readiness text; the others are counted.
const MOST_NAMED: usize = 8;

/// The list of one watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchedList {
    pub kind: String,
    /// The namespace; `None` for all namespaces.
    pub namespace: Option<String>,
}

impl WatchedList {
    pub(crate) fn new(kind: &str, namespace: Option<&str>) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.map(str::to_owned) }
    }
}

impl fmt::Display for WatchedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in namespace {namespace}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

/// The watches whose initial list is not complete.
#[derive(Default)]
pub(crate) struct InitialLists {
    open: Mutex<BTreeSet<WatchedList>>,
    changed: Notify,
}

impl InitialLists {
    fn open(&self) -> MutexGuard<'_, BTreeSet<WatchedList>> {
        self.open.lock()
    }

    /// Records that a watch starts.
    pub(crate) fn started(&self, list: &WatchedList) {
        self.open().insert(list.clone());
    }

    /// Records that the initial list of a watch is complete, or that the operator no longer waits for it.
    pub(crate) fn ended(&self, list: &WatchedList) {
        let mut open = self.open();
        if open.remove(list) && open.is_empty() {
            drop(open);
            self.changed.notify_waiters();
        }
    }

    /// Waits until all initial lists are complete.
    pub(crate) async fn all(&self) {
        loop {
            let changed = self.changed.notified();
            if self.open().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// The lists that are not complete, as text.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let open = self.open();
        let mut named: Vec<String> = open.iter().take(MOST_NAMED).map(WatchedList::to_string).collect();
        if open.len() > MOST_NAMED {
            named.push(format!("{} more", open.len() - MOST_NAMED));
        }
        (!named.is_empty()).then(|| format!("lists of {}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_waits_for_incomplete_lists_and_the_text_names_them() {
        let listed = InitialLists::default();
        let (clusters, jobs) = (WatchedList::new("Cluster", None), WatchedList::new("Job", Some("team-a")));
        for list in [&clusters, &jobs] {
            listed.started(list);
        }
        assert_eq!(listed.waits_for().as_deref(), Some("lists of Cluster, Job in namespace team-a"));
        // A watch lists several times: only the first time counts.
        for _ in 0..2 {
            listed.ended(&clusters);
        }
        let waits = tokio::time::timeout(std::time::Duration::from_secs(60), listed.all());
        assert!(waits.await.is_err(), "Jobs are not listed yet");
        tokio::join!(listed.all(), async { listed.ended(&jobs) });
        assert_eq!(listed.waits_for(), None);
    }

    #[test]
    fn further_lists_are_counted() {
        let listed = InitialLists::default();
        for at in 0..MOST_NAMED + 3 {
            listed.started(&WatchedList::new("Job", Some(&format!("team-{at:02}"))));
        }
        let text = listed.waits_for().unwrap();
        assert!(text.starts_with("lists of Job in namespace team-00, "), "{text}");
        assert!(text.ends_with(", 3 more"), "{text}");
    }
}
