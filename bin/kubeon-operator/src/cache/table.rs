//! Objects of one kind, by name and by queue key.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_operations::{ObjectRef, Observed, QueueKey};

/// The most UIDs of removed objects that are stored.
const MOST_REMOVED: usize = 4096;

/// `namespace/name`, or the name alone.
pub(crate) fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// The `resourceVersion` as a number. Kubernetes allows the comparison of versions of one kind (KEP 5504),
/// and etcd's versions always permitted it. `u64::MAX` when it is not a number.
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
    /// Adds an object. `None` when a newer version is stored, else the queue key and references of the
    /// replaced one.
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
            self.remove_from_queue_key(&old.clone(), &key);
        }
        self.by_queue_key.entry(queue_key).or_default().insert(key);
        Some(before)
    }

    /// Removes an object; returns its queue key and its references.
    pub(crate) fn remove(&mut self, key: &str) -> Option<(QueueKey, Vec<ObjectRef>)> {
        let removed = self.objects.remove(key)?;
        self.remove_from_queue_key(&removed.queue_key, key);
        Some((removed.queue_key, removed.targets))
    }

    fn remove_from_queue_key(&mut self, queue_key: &QueueKey, key: &str) {
        if let Some(keys) = self.by_queue_key.get_mut(queue_key) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_queue_key.remove(queue_key);
            }
        }
    }

    /// Removes the objects that are not in a completed list, only in this namespace if one is given.
    pub(crate) fn retain(&mut self, listed: &HashSet<String>, namespace: Option<&str>) -> Vec<QueueKey> {
        let in_namespace = |key: &str| {
            namespace.is_none_or(|namespace| key.split_once('/').is_some_and(|(other, _)| other == namespace))
        };
        let removed: Vec<String> =
            self.objects.keys().filter(|key| in_namespace(key) && !listed.contains(*key)).cloned().collect();
        removed.iter().filter_map(|key| self.remove(key)).map(|(queue_key, _)| queue_key).collect()
    }

    pub(crate) fn get(&self, key: &str) -> Observed<Arc<K>> {
        match self.objects.get(key).map(|stored| &stored.object) {
            Some(Observed::Found(object)) => Observed::Found(Arc::clone(object)),
            Some(Observed::Unreadable(why)) => Observed::Unreadable(why.clone()),
            Some(Observed::Absent) | None => Observed::Absent,
        }
    }

    /// All objects that can be parsed.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values().filter_map(|stored| stored.object.object())
    }

    fn stored(&self, queue_key: &QueueKey) -> impl Iterator<Item = &CachedObject<K>> {
        self.by_queue_key.get(queue_key).into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// The objects of a queue key that can be parsed.
    pub(crate) fn of(&self, queue_key: &QueueKey) -> Vec<Arc<K>> {
        self.stored(queue_key).filter_map(|stored| stored.object.object().map(Arc::clone)).collect()
    }

    /// The references of the objects of a queue key.
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

/// UIDs of removed objects, so that a late answer does not add them again.
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
        while self.order.len() > MOST_REMOVED {
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
    fn objects_that_a_list_lacks_are_removed_in_its_namespace_only() {
        let mut table = ObjectTable::default();
        for key in ["n/x", "n/y", "m/z"] {
            table.put(key.into(), stored(1));
        }
        assert_eq!(table.retain(&["n/x".to_owned()].into(), Some("n")).len(), 1);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn the_uids_of_the_last_removed_objects_are_stored() {
        let mut removed = RemovedUids::default();
        for at in 0..=MOST_REMOVED {
            removed.add(&at.to_string());
        }
        assert!(!removed.holds("0") && removed.holds("1"));
    }
}
