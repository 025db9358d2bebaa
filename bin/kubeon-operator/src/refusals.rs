//! Writes that belong to no operation and that the API server refuses: people are told once for as long as it stays so.

use parking_lot::Mutex;
use std::collections::HashMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kubeon_link_kube::EventRecord;
use kubeon_operations::QueueKey;

/// What was refused.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    /// The object that people look at.
    pub about: ObjectReference,
    /// What could not be done, and what the API server said.
    pub text: String,
}

/// The refusals that were reported for each queue key.
#[derive(Default)]
pub(crate) struct Refusals {
    told: Mutex<HashMap<QueueKey, String>>,
}

impl Refusals {
    /// Something was refused. What is to be said of it, when that is new.
    pub(crate) fn met(&self, queue_key: &QueueKey, what: &Refused) -> Option<EventRecord> {
        let mut told = self.told.lock();
        if told.insert(queue_key.clone(), what.text.clone()).as_ref() == Some(&what.text) {
            return None;
        }
        Some(EventRecord {
            about: what.about.clone(),
            warning: true,
            reason: "Refused",
            text: format!("{}; it is tried again", what.text),
        })
    }

    /// A turn of the lane came to rest: what was refused is taken, or not wanted any more.
    pub(crate) fn over(&self, queue_key: &QueueKey) {
        self.told.lock().remove(queue_key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_until_it_is_over_or_another_one() {
        let (refusals, queue_key) = (Refusals::default(), QueueKey::Cluster("a".into()));
        let met = |text: &str| {
            let what = Refused { about: ObjectReference::default(), text: text.to_owned() };
            refusals.met(&queue_key, &what).is_some()
        };
        assert!(met("no right") && !met("no right"), "every thirty seconds is too often");
        assert!(met("invalid") && !met("invalid"));
        refusals.over(&queue_key);
        assert!(met("invalid"));
        refusals.over(&queue_key);
        assert!(refusals.told.lock().is_empty(), "nothing is kept of lanes that are well");
    }
}
