//! Which of the objects that were read belong to an export. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use kubeon_api::labels::{DERIVED_UID, HOST_POOL, OPERATION_UID};
use serde_json::{Map, Value};

use super::object::{ObjectNote, is_deleted, label, name, namespace, pool, text, title, uid};

/// What was read from a meta cluster, cleaned.
#[derive(Debug, Default)]
pub(super) struct MetaObjects {
    pub namespaces: Vec<Value>,
    pub clusters: Vec<Value>,
    pub operations: Vec<Value>,
    /// ConfigMaps and Secrets: those with a label of kubeon, and those that others refer to.
    pub data: Vec<Value>,
    /// References to objects that do not exist.
    pub notes: Vec<ObjectNote>,
}

/// The objects of the export in the order of a restore, and what is left out.
pub(super) fn select(found: MetaObjects) -> (Vec<Value>, Vec<ObjectNote>) {
    let MetaObjects { namespaces, clusters, operations, data, mut notes } = found;
    let clusters = living(clusters, &mut notes);
    let uids = uids_of(&clusters);
    let mut operations = living(operations, &mut notes);
    retain(&mut operations, &mut notes, |operation| {
        // The operator stops and removes operations of a KubernetesCluster that does not exist.
        let cluster = label(operation, DERIVED_UID);
        let is_known = cluster.is_empty() || uids.contains(cluster);
        (!is_known).then_some("its KubernetesCluster is not exported")
    });
    let uids: BTreeSet<String> = uids.into_iter().chain(uids_of(&operations)).collect();
    let unique: BTreeMap<String, Value> = data.into_iter().map(|object| (title(&object), object)).collect();
    let mut data = living(unique.into_values().collect(), &mut notes);
    retain(&mut data, &mut notes, |object| unwanted(object, &uids));
    let mut objects: Vec<Value> = clusters.into_iter().chain(operations).chain(data).collect();
    for object in &mut objects {
        drop_other_owners(object, &uids, &mut notes);
    }
    let mut all = pools(namespaces, &objects);
    all.append(&mut objects);
    (all, notes)
}

fn uids_of(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(|object| uid(object).to_owned()).collect()
}

/// Removes the objects for which there is a reason, and notes it.
fn retain(
    objects: &mut Vec<Value>,
    notes: &mut Vec<ObjectNote>,
    reason: impl Fn(&Value) -> Option<&'static str>,
) {
    objects.retain(|object| {
        let reason = reason(object);
        notes.extend(reason.map(|reason| ObjectNote::new(object, reason)));
        reason.is_none()
    });
}

/// A restored object is not being deleted: nobody would know that it should be.
fn living(mut objects: Vec<Value>, notes: &mut Vec<ObjectNote>) -> Vec<Value> {
    retain(&mut objects, notes, |object| is_deleted(object).then_some("it is being deleted"));
    objects
}

/// Why a ConfigMap or Secret is not exported.
fn unwanted(object: &Value, uids: &BTreeSet<String>) -> Option<&'static str> {
    let operation = label(object, OPERATION_UID);
    if !operation.is_empty() && !uids.contains(operation) {
        return Some("its operation is not exported");
    }
    let is_token = text(object, "/type") == "kubernetes.io/service-account-token";
    is_token.then_some("a token of a service account is of no use in another cluster")
}

/// An owner that is not restored has another UID or does not exist: the garbage collector would delete the object.
fn drop_other_owners(object: &mut Value, uids: &BTreeSet<String>, notes: &mut Vec<ObjectNote>) {
    let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    let (exported, others): (Vec<_>, Vec<_>) =
        mem::take(owners).into_iter().partition(|owner| uids.contains(text(owner, "/uid")));
    *owners = exported;
    for owner in others {
        let owner = format!("{} {}", text(&owner, "/kind"), text(&owner, "/name"));
        notes.push(ObjectNote::new(
            object,
            format!("its owner {owner} is not exported; it is restored without it"),
        ));
    }
}

/// The namespaces of the objects, and those with a pool of hosts. Nothing else of a namespace is exported.
fn pools(namespaces: Vec<Value>, objects: &[Value]) -> Vec<Value> {
    let used: BTreeSet<&str> = objects.iter().map(namespace).collect();
    let wanted = namespaces.into_iter().filter(|one| used.contains(name(one)) || pool(one).is_some());
    wanted.map(|one| reduced(&one)).collect()
}

fn reduced(namespace: &Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), name(namespace).into());
    if let Some(pool) = pool(namespace) {
        let annotations: Map<String, Value> = [(HOST_POOL.to_owned(), pool.into())].into_iter().collect();
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    let fields = [
        ("apiVersion".to_owned(), namespace["apiVersion"].clone()),
        ("kind".to_owned(), namespace["kind"].clone()),
        ("metadata".to_owned(), metadata.into()),
    ];
    Value::Object(fields.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, namespace: &str, name: &str, more: Value) -> Value {
        let mut object = json!({"kind": kind, "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")}});
        for (key, value) in more.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        object
    }

    fn titles(objects: &[Value]) -> Vec<String> {
        objects.iter().map(title).collect()
    }

    #[test]
    fn objects_whose_owner_is_left_out_are_left_out_and_named() {
        let of = |uid: &str| json!({"labels": {DERIVED_UID: uid}});
        let log = |uid: &str| json!({"labels": {OPERATION_UID: uid}});
        let found = MetaObjects {
            namespaces: vec![
                object("Namespace", "", "a", json!({})),
                object("Namespace", "", "unused", json!({})),
            ],
            clusters: vec![
                object("KubernetesCluster", "a", "shop", json!({})),
                object(
                    "KubernetesCluster",
                    "a",
                    "leaving",
                    json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                ),
            ],
            operations: vec![
                object("ClusterOperation", "", "create", of("uid-shop")),
                object("ClusterOperation", "", "destroy", of("uid-leaving")),
            ],
            data: vec![
                object("ConfigMap", "a", "create-log", log("uid-create")),
                object("ConfigMap", "a", "destroy-log", log("uid-destroy")),
                object("ConfigMap", "a", "create-log", log("uid-create")),
            ],
            notes: Vec::new(),
        };
        let (objects, notes) = select(found);
        let wanted =
            ["Namespace a", "KubernetesCluster a/shop", "ClusterOperation create", "ConfigMap a/create-log"];
        assert_eq!(titles(&objects), wanted);
        let notes: Vec<_> = notes.iter().map(|note| format!("{}: {}", note.object, note.reason)).collect();
        assert_eq!(
            notes,
            [
                "KubernetesCluster a/leaving: it is being deleted",
                "ClusterOperation destroy: its KubernetesCluster is not exported",
                "ConfigMap a/destroy-log: its operation is not exported",
            ]
        );
    }

    #[test]
    fn an_owner_that_is_not_exported_is_dropped_and_a_pool_is_kept() {
        let owners = json!({"ownerReferences": [
            {"kind": "Cluster", "name": "c", "uid": "uid-c"}, {"kind": "ExternalSecret", "name": "x", "uid": "uid-x"}]});
        let found = MetaObjects {
            namespaces: vec![object(
                "Namespace",
                "",
                "pooled",
                json!({"annotations": {HOST_POOL: "10.0.0.0/24", "other": "1"}}),
            )],
            clusters: vec![object("Cluster", "", "c", json!({}))],
            data: vec![object("Secret", "a", "key", owners)],
            ..MetaObjects::default()
        };
        let (objects, notes) = select(found);
        assert_eq!(
            objects[0]["metadata"],
            json!({"name": "pooled", "annotations": {HOST_POOL: "10.0.0.0/24"}})
        );
        assert_eq!(objects[2]["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].reason.contains("its owner ExternalSecret x is not exported"), "{notes:?}");
    }
}
