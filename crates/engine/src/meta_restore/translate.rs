//! Translates an object of an export to the cluster that it is restored to. Pure.

use std::collections::BTreeMap;

use kubeon_api::labels::{CLUSTER_UID, DERIVED_UID, OPERATION_UID};
use serde_json::Value;

use crate::meta_export::object::{title, uid};

/// Labels whose value is a UID.
pub(super) const UID_LABELS: [&str; 2] = [DERIVED_UID, OPERATION_UID];
/// Annotations whose value is a UID.
pub(super) const UID_ANNOTATIONS: [&str; 1] = [CLUSTER_UID];
/// Fields of the metadata that the API server writes.
const SERVER_FIELDS: [&str; 3] = ["uid", "generation", "creationTimestamp"];

/// The UIDs in the cluster by those in the export, as far as the objects exist.
pub(super) fn uids(objects: &[Value], present: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let known = objects.iter().filter(|object| !uid(object).is_empty());
    known
        .filter_map(|object| Some((uid(object).to_owned(), uid(present.get(&title(object))?).to_owned())))
        .collect()
}

/// The object to create: without status and without what the API server writes, with the UIDs of the cluster. An owner that
/// does not exist is left out, because the garbage collector would delete the object.
pub(super) fn translated(object: &Value, uids: &BTreeMap<String, String>) -> Value {
    let mut object = object.clone();
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("status");
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    metadata.retain(|key, _| !SERVER_FIELDS.contains(&key.as_str()));
    translate_values(metadata.get_mut("labels"), &UID_LABELS, uids);
    translate_values(metadata.get_mut("annotations"), &UID_ANNOTATIONS, uids);
    if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        owners.retain_mut(|owner| match uids.get(uid_of_owner(owner)) {
            Some(new) => {
                owner["uid"] = new.as_str().into();
                true
            }
            None => false,
        });
    }
    object
}

/// Replaces the UIDs that are the values of these keys.
fn translate_values(values: Option<&mut Value>, keys: &[&str], uids: &BTreeMap<String, String>) {
    let Some(values) = values.and_then(Value::as_object_mut) else { return };
    for key in keys {
        if let Some(new) = values.get(*key).and_then(Value::as_str).and_then(|old| uids.get(old)) {
            values.insert((*key).to_owned(), new.as_str().into());
        }
    }
}

fn uid_of_owner(owner: &Value) -> &str {
    owner["uid"].as_str().unwrap_or_default()
}

/// The object in the cluster with the status of the export.
pub(super) fn status_for(object: &Value, found: &Value) -> Value {
    let mut with_status = found.clone();
    with_status["status"] = status_at(object, found);
    with_status
}

/// The status of the export about the generation of the object in the cluster: an observed generation is the newest one if it
/// was the newest one in the export.
pub(super) fn status_at(object: &Value, found: &Value) -> Value {
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap_or(1);
    let (before, now) = (generation(object), generation(found));
    let mut status = object["status"].clone();
    let conditions =
        |status: &mut Value| status.get_mut("conditions").and_then(Value::as_array_mut).map(std::mem::take);
    let mut all = conditions(&mut status);
    for part in all.iter_mut().flatten().chain([&mut status]) {
        if let Some(observed) = part.get_mut("observedGeneration") {
            match observed.as_i64() {
                Some(seen) if seen >= before => *observed = now.into(),
                // Nothing was seen yet.
                Some(seen) if seen < 0 => {}
                Some(_) => *observed = (now - 1).into(),
                None => {}
            }
        }
    }
    if let Some(all) = all {
        status["conditions"] = all.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_owners_have_the_uids_of_the_cluster() {
        let uids = [("old".to_owned(), "new".to_owned())].into();
        let object = json!({"kind": "ConfigMap", "data": {"a": "old"}, "status": {"x": 1}, "metadata": {
            "name": "a", "uid": "u", "generation": 3, "creationTimestamp": "t",
            "labels": {OPERATION_UID: "old", "other": "old"}, "annotations": {CLUSTER_UID: "old", "other": "old"},
            "ownerReferences": [{"uid": "old", "name": "o"}, {"uid": "lost", "name": "p"}]}});
        let wanted = json!({"kind": "ConfigMap", "data": {"a": "old"}, "metadata": {
            "name": "a", "labels": {OPERATION_UID: "new", "other": "old"},
            "annotations": {CLUSTER_UID: "new", "other": "old"}, "ownerReferences": [{"uid": "new", "name": "o"}]}});
        assert_eq!(translated(&object, &uids), wanted);
    }

    #[test]
    fn uids_are_known_of_objects_that_exist() {
        let objects = [
            json!({"kind": "Cluster", "metadata": {"name": "a", "uid": "1"}}),
            json!({"kind": "Cluster", "metadata": {"name": "b", "uid": "2"}}),
        ];
        let present = [("Cluster a".to_owned(), json!({"metadata": {"uid": "9"}}))].into();
        assert_eq!(uids(&objects, &present), [("1".to_owned(), "9".to_owned())].into());
    }

    #[test]
    fn what_was_observed_stays_observed_and_what_was_not_does_not() {
        let status = |own: i64, of_condition: i64| json!({"observedGeneration": own, "conditions": [{"type": "Ready", "observedGeneration": of_condition}, {"type": "x"}]});
        let object = json!({"metadata": {"generation": 5}, "status": status(5, 4)});
        let found = json!({"metadata": {"generation": 1, "uid": "u"}, "spec": {}, "status": {"observedGeneration": -1}});
        assert_eq!(status_at(&object, &found), status(1, 0));
        assert_eq!(status_for(&object, &found)["metadata"], found["metadata"]);
        let never = json!({"metadata": {"generation": 5}, "status": {"observedGeneration": -1}});
        assert_eq!(status_at(&never, &found), json!({"observedGeneration": -1}));
    }
}
