//! Whether all that there is was listed: before that, what is not known may still be there.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::fmt;

use tokio::sync::Notify;

/// Lists that are named when somebody asks; of the others it is said how many they are.
const MOST_NAMED: usize = 8;

/// What one watch lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchedList {
    pub kind: String,
    /// Every namespace when there is none.
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

/// Which watches have not listed what there is.
#[derive(Default)]
pub(crate) struct InitialLists {
    open: Mutex<BTreeSet<WatchedList>>,
    changed: Notify,
}

impl InitialLists {
    fn open(&self) -> MutexGuard<'_, BTreeSet<WatchedList>> {
        self.open.lock()
    }

    /// A watch begins.
    pub(crate) fn begun(&self, place: &WatchedList) {
        self.open().insert(place.clone());
    }

    /// A watch has listed what there is, or is not waited for any longer.
    pub(crate) fn ended(&self, place: &WatchedList) {
        let mut open = self.open();
        if open.remove(place) && open.is_empty() {
            drop(open);
            self.changed.notify_waiters();
        }
    }

    /// Waits until no watch is waited for.
    pub(crate) async fn all(&self) {
        loop {
            let changed = self.changed.notified();
            if self.open().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// What is waited for, for a person.
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
    async fn what_is_still_listing_is_named_and_waited_for() {
        let listed = InitialLists::default();
        let (clusters, jobs) = (WatchedList::new("Cluster", None), WatchedList::new("Job", Some("team-a")));
        for place in [&clusters, &jobs] {
            listed.begun(place);
        }
        assert_eq!(listed.waits_for().as_deref(), Some("lists of Cluster, Job in namespace team-a"));
        // A watch lists again and again: only the first time counts.
        for _ in 0..2 {
            listed.ended(&clusters);
        }
        let waits = tokio::time::timeout(std::time::Duration::from_secs(60), listed.all());
        assert!(waits.await.is_err(), "Jobs are not listed yet");
        tokio::join!(listed.all(), async { listed.ended(&jobs) });
        assert_eq!(listed.waits_for(), None);
    }

    #[test]
    fn many_are_counted() {
        let listed = InitialLists::default();
        for at in 0..MOST_NAMED + 3 {
            listed.begun(&WatchedList::new("Job", Some(&format!("team-{at:02}"))));
        }
        let text = listed.waits_for().unwrap();
        assert!(text.starts_with("lists of Job in namespace team-00, "), "{text}");
        assert!(text.ends_with(", 3 more"), "{text}");
    }
}
