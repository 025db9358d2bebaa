//! Objects that cannot be read. The replica that leads reports each once for every generation.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::EventRecord;

use crate::cache::key;

/// What is known of one.
struct Known {
    uid: String,
    generation: i64,
    word: EventRecord,
    told: bool,
}

#[derive(Default)]
struct State {
    leads: bool,
    /// By kind and `namespace/name`.
    objects: BTreeMap<(String, String), Known>,
}

/// Objects that cannot be read now.
#[derive(Default)]
pub(crate) struct Unreadable {
    state: Mutex<State>,
}

impl Unreadable {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// An object cannot be read. What is to be said of it now.
    pub(crate) fn seen(&self, kind: &str, meta: &ObjectMeta, why: &str) -> Option<EventRecord> {
        let mut state = self.state();
        let leads = state.leads;
        let (uid, generation) = (meta.uid.clone().unwrap_or_default(), meta.generation.unwrap_or_default());
        let place = (kind.to_owned(), key(meta));
        if state.objects.get(&place).is_some_and(|it| (&it.uid, it.generation) == (&uid, generation)) {
            return None;
        }
        tracing::warn!(kind, name = place.1, why, "an object cannot be read; it is left alone");
        let word = word(kind, meta, why);
        state.objects.insert(place, Known { uid, generation, word: word.clone(), told: leads });
        leads.then_some(word)
    }

    /// This process leads from now on. What is to be said of objects that were seen before.
    pub(crate) fn lead(&self) -> Vec<EventRecord> {
        let mut state = self.state();
        state.leads = true;
        let waiting = state.objects.values_mut().filter(|known| !known.told);
        waiting
            .map(|known| {
                known.told = true;
                known.word.clone()
            })
            .collect()
    }

    /// An object is gone, or can be read again.
    pub(crate) fn forget(&self, kind: &str, meta: &ObjectMeta) {
        self.state().objects.remove(&(kind.to_owned(), key(meta)));
    }

    /// All objects of the kind were listed: what has another name is gone.
    pub(crate) fn only(&self, kind: &str, listed: &HashSet<String>) {
        self.state().objects.retain(|(other, key), _| other != kind || listed.contains(key));
    }
}

fn word(kind: &str, meta: &ObjectMeta, why: &str) -> EventRecord {
    let api = if kind == "KubernetesCluster" { "ecs.yun.com/v1" } else { "kubeonkube.clay.io/v1alpha1" };
    EventRecord {
        about: ObjectReference {
            api_version: Some(api.to_owned()),
            kind: Some(kind.to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        },
        warning: true,
        reason: "Malformed",
        text: format!("it cannot be read and is left alone: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta {
            name: Some("odd".into()),
            uid: Some(uid.into()),
            generation: Some(generation),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn only_who_leads_tells_and_once_for_each_generation() {
        let (leader, other) = (Unreadable::default(), Unreadable::default());
        for replica in [&leader, &other] {
            assert!(replica.seen("Cluster", &meta("u", 1), "why").is_none(), "nobody leads yet");
        }
        assert_eq!(leader.lead().len(), 1);
        assert!(leader.lead().is_empty() && leader.seen("Cluster", &meta("u", 1), "why").is_none());
        assert!(leader.seen("Cluster", &meta("u", 2), "why").is_some());
        assert!(other.seen("Cluster", &meta("u", 2), "why").is_none());
        assert_eq!(other.lead().len(), 1, "when it leads it tells what stands now");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let replica = Unreadable::default();
        replica.lead();
        for _ in 0..2 {
            assert!(replica.seen("Cluster", &meta("u", 1), "why").is_some());
            replica.forget("Cluster", &meta("u", 1));
        }
        assert!(replica.seen("Cluster", &meta("u", 1), "why").is_some());
        replica.only("KubernetesCluster", &HashSet::new());
        assert_eq!(replica.state().objects.len(), 1);
        replica.only("Cluster", &HashSet::new());
        assert!(replica.state().objects.is_empty());
    }
}
