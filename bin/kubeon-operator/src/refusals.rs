//! Refused writes that belong to no operation. Each refusal is reported once while it stays the same.

use parking_lot::Mutex;
use std::collections::HashMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kubeon_link_kube::EventRecord;
use kubeon_operations::QueueKey;

/// A refused write.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    /// The object of the event.
    pub about: ObjectReference,
    /// The write, and the message of the API server.
    pub text: String,
}

/// The refusals that were reported for each queue key.
#[derive(Default)]
pub(crate) struct Refusals {
    reported: Mutex<HashMap<QueueKey, String>>,
}

impl Refusals {
    /// Records a refusal. Returns the event to record, if the refusal is new.
    pub(crate) fn add(&self, queue_key: &QueueKey, what: &Refused) -> Option<EventRecord> {
        let mut reported = self.reported.lock();
        if reported.insert(queue_key.clone(), what.text.clone()).as_ref() == Some(&what.text) {
            return None;
        }
        Some(EventRecord {
            about: what.about.clone(),
            warning: true,
            reason: "Refused",
            text: format!("{}; the write is retried", what.text),
        })
    }

    /// Records that a reconcile of the key had nothing left to do, so nothing is refused any more.
    pub(crate) fn resolved(&self, queue_key: &QueueKey) {
        self.reported.lock().remove(queue_key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_once_until_it_changes_or_is_resolved() {
        let (refusals, queue_key) = (Refusals::default(), QueueKey::Cluster("a".into()));
        let is_new = |text: &str| {
            let what = Refused { about: ObjectReference::default(), text: text.to_owned() };
            refusals.add(&queue_key, &what).is_some()
        };
        assert!(is_new("forbidden") && !is_new("forbidden"), "a repeated refusal is not reported again");
        assert!(is_new("invalid") && !is_new("invalid"));
        refusals.resolved(&queue_key);
        assert!(is_new("invalid"));
        refusals.resolved(&queue_key);
        assert!(refusals.reported.lock().is_empty(), "resolved refusals are removed");
    }
}
