//! The order in which operations are created. Pure.

use std::collections::BTreeMap;

use kubeon_api::labels::DERIVED_UID;
use serde_json::Value;

use crate::meta_export::MetaKind;
use crate::meta_export::object::{label, name, text};

/// Batches whose objects may have the same creation time, and are created one after the other. Operations of one cluster run,
/// and leave the history, in the order of these times, then of their names: one whose name comes before that of an older
/// operation is in a later batch.
pub(super) fn batches<'o>(objects: impl Iterator<Item = &'o Value>) -> Vec<Vec<&'o Value>> {
    let mut objects: Vec<&'o Value> = objects.collect();
    objects
        .sort_by_key(|&object| if is_operation(object) { (created(object), name(object)) } else { ("", "") });
    // The batch and the name of the last operation of each cluster.
    let mut last: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let mut batches: Vec<Vec<&Value>> = Vec::new();
    for object in objects {
        let place = if is_operation(object) {
            let (place, before) = last.entry(queue(object)).or_default();
            *place += usize::from(name(object) < *before);
            *before = name(object);
            *place
        } else {
            0
        };
        if batches.len() <= place {
            batches.resize(place + 1, Vec::new());
        }
        batches[place].push(object);
    }
    batches
}

fn is_operation(object: &Value) -> bool {
    MetaKind::of(object) == Some(MetaKind::Operation)
}

/// The cluster of an operation: the UID of a `KubernetesCluster`, or the name of a `Cluster`. A name has no UID's form.
fn queue(operation: &Value) -> &str {
    match label(operation, DERIVED_UID) {
        "" => text(operation, "/spec/cluster"),
        uid => uid,
    }
}

/// Times of the API server have the same form and length, so their order is that of the texts.
fn created(operation: &Value) -> &str {
    text(operation, "/metadata/creationTimestamp")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_of_one_cluster_keep_their_order_and_those_of_others_do_not_wait() {
        let operation = |name: &str, cluster: &str, second: u8| {
            json!({"kind": "ClusterOperation", "spec": {"cluster": cluster},
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-31T12:00:0{second}Z")}})
        };
        let derived = json!({"kind": "ClusterOperation", "spec": {"cluster": "a"},
            "metadata": {"name": "derived", "labels": {DERIVED_UID: "u"}, "creationTimestamp": "2026-01-31T12:00:09Z"}});
        let objects = [
            operation("a0", "a", 5),
            operation("a3", "a", 6),
            operation("a2", "a", 3),
            operation("a1", "a", 3),
            operation("b1", "b", 7),
            derived,
        ];
        let found: Vec<Vec<&str>> =
            batches(objects.iter()).iter().map(|batch| batch.iter().map(|one| name(one)).collect()).collect();
        assert_eq!(found, [vec!["a1", "a2", "b1", "derived"], vec!["a0", "a3"]]);
        assert!(batches([].iter()).is_empty());
        let others = [json!({"kind": "Secret"}), json!({"kind": "ConfigMap"})];
        assert_eq!(batches(others.iter()).len(), 1);
    }
}
