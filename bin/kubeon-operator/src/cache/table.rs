//! Objects of one kind, by name and by lane.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_operations::{ObjectRef, Observed, QueueKey};

/// UIDs of removed objects that are remembered.
const MOST_GONE: usize = 4096;

/// `namespace/name`, or the name alone.
pub(crate) fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Versions of one kind can be compared as numbers since Kubernetes says so (KEP 5504); etcd's always could.
pub(crate) fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

/// One object.
pub(crate) struct CachedObject<K> {
    pub object: Observed<Arc<K>>,
    pub queue_key: QueueKey,
    pub version: u64,
    pub targets: Vec<ObjectRef>,
}

/// Objects of one kind.
pub(crate) struct ObjectTable<K> {
    objects: HashMap<String, CachedObject<K>>,
    by_queue_key: HashMap<QueueKey, BTreeSet<String>>,
}

impl<K> Default for ObjectTable<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), by_queue_key: HashMap::new() }
    }
}

impl<K> ObjectTable<K> {
    /// Takes an object in; `None` when a newer one is there, else what it replaced.
    #[allow(clippy::option_option, reason = "refused, new, and replaced are three answers")]
    pub(crate) fn put(
        &mut self,
        key: String,
        stored: CachedObject<K>,
    ) -> Option<Option<(QueueKey, Vec<ObjectRef>)>> {
        if self.objects.get(&key).is_some_and(|before| before.version >= stored.version) {
            return None;
        }
        let queue_key = stored.queue_key.clone();
        let before =
            self.objects.insert(key.clone(), stored).map(|before| (before.queue_key, before.targets));
        if let Some((old, _)) = before.as_ref().filter(|(old, _)| *old != queue_key) {
            self.leave(&old.clone(), &key);
        }
        self.by_queue_key.entry(queue_key).or_default().insert(key);
        Some(before)
    }

    /// Removes an object; its lane and what it referred to.
    pub(crate) fn remove(&mut self, key: &str) -> Option<(QueueKey, Vec<ObjectRef>)> {
        let gone = self.objects.remove(key)?;
        self.leave(&gone.queue_key, key);
        Some((gone.queue_key, gone.targets))
    }

    fn leave(&mut self, queue_key: &QueueKey, key: &str) {
        if let Some(keys) = self.by_queue_key.get_mut(queue_key) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_queue_key.remove(queue_key);
            }
        }
    }

    /// A list ended: what was not on it is gone. Only objects of this namespace, if one is given.
    pub(crate) fn keep(&mut self, listed: &HashSet<String>, namespace: Option<&str>) -> Vec<QueueKey> {
        let of = |key: &str| {
            namespace.is_none_or(|namespace| key.split_once('/').is_some_and(|(of, _)| of == namespace))
        };
        let gone: Vec<String> =
            self.objects.keys().filter(|key| of(key) && !listed.contains(*key)).cloned().collect();
        gone.iter().filter_map(|key| self.remove(key)).map(|(queue_key, _)| queue_key).collect()
    }

    pub(crate) fn get(&self, key: &str) -> Observed<Arc<K>> {
        match self.objects.get(key).map(|stored| &stored.object) {
            Some(Observed::Found(object)) => Observed::Found(Arc::clone(object)),
            Some(Observed::Unreadable(why)) => Observed::Unreadable(why.clone()),
            Some(Observed::Absent) | None => Observed::Absent,
        }
    }

    /// All objects that can be read.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values().filter_map(|stored| stored.object.object())
    }

    fn stored(&self, queue_key: &QueueKey) -> impl Iterator<Item = &CachedObject<K>> {
        self.by_queue_key.get(queue_key).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// Objects of a lane that can be read.
    pub(crate) fn of(&self, queue_key: &QueueKey) -> Vec<Arc<K>> {
        self.stored(queue_key).filter_map(|stored| stored.object.object().map(Arc::clone)).collect()
    }

    /// What objects of a lane refer to.
    pub(crate) fn targets(&self, queue_key: &QueueKey) -> Vec<ObjectRef> {
        self.stored(queue_key).flat_map(|stored| stored.targets.clone()).collect()
    }

    pub(crate) fn queue_keys(&self) -> Vec<QueueKey> {
        self.by_queue_key.keys().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

/// UIDs of objects that are gone: an answer that comes late does not bring them back.
#[derive(Default)]
pub(crate) struct RemovedUids {
    order: VecDeque<String>,
    known: HashSet<String>,
}

impl RemovedUids {
    pub(crate) fn add(&mut self, uid: &str) {
        if self.known.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        while self.order.len() > MOST_GONE {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    pub(crate) fn holds(&self, uid: &str) -> bool {
        self.known.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(version: u64) -> CachedObject<u8> {
        let queue_key = QueueKey::Cluster("a".into());
        CachedObject { object: Observed::Found(Arc::new(1)), queue_key, version, targets: Vec::new() }
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let mut table = ObjectTable::default();
        assert!(table.put("x".into(), stored(5)).is_some());
        assert!(table.put("x".into(), stored(4)).is_none());
        assert!(table.put("x".into(), stored(6)).is_some_and(|before| before.is_some()));
    }

    #[test]
    fn what_is_not_on_a_new_list_is_gone_in_its_namespace_alone() {
        let mut table = ObjectTable::default();
        for key in ["n/x", "n/y", "m/z"] {
            table.put(key.into(), stored(1));
        }
        assert_eq!(table.keep(&["n/x".to_owned()].into(), Some("n")).len(), 1);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn what_is_gone_is_remembered_for_a_while() {
        let mut gone = RemovedUids::default();
        for at in 0..=MOST_GONE {
            gone.add(&at.to_string());
        }
        assert!(!gone.holds("0") && gone.holds("1"));
    }
}
