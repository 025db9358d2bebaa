//! What a restore does with each object. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::translate::{UID_ANNOTATIONS, UID_LABELS, status_at};
use crate::meta_export::object::{is_deleted, pool, title};
use crate::meta_export::{MetaKind, ObjectNote};

/// What happens to an object apart from its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestoreAction {
    /// It does not exist.
    Create,
    /// It exists and differs.
    Replace,
    /// It exists as in the export.
    Unchanged,
}

/// An object of the export.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedObject {
    pub object: Value,
    pub action: RestoreAction,
    /// Whether its status is written.
    pub writes_status: bool,
}

impl PlannedObject {
    /// Whether anything of it is written.
    pub(super) fn is_written(&self) -> bool {
        self.action != RestoreAction::Unchanged || self.writes_status
    }
}

/// The objects of the export in their order, and those that exist and differ.
#[derive(Debug, Default)]
pub(super) struct RestorePlan {
    pub objects: Vec<PlannedObject>,
    pub conflicts: Vec<ObjectNote>,
}

impl RestorePlan {
    /// The objects of these kinds.
    pub(super) fn of<'p>(&'p self, kinds: &'p [MetaKind]) -> impl Iterator<Item = &'p PlannedObject> {
        self.objects.iter().filter(|one| MetaKind::of(&one.object).is_some_and(|kind| kinds.contains(&kind)))
    }
}

/// What to do, if objects that differ are replaced.
pub(super) fn plan(objects: &[Value], present: &BTreeMap<String, Value>) -> RestorePlan {
    let mut plan = RestorePlan::default();
    for object in objects {
        let found = present.get(&title(object));
        let (action, conflict) = action(object, found);
        let (writes_status, conflict_of_status) = status(object, found, action);
        let conflict = conflict.or(conflict_of_status);
        plan.conflicts.extend(conflict.map(|reason| ObjectNote::new(object, reason)));
        plan.objects.push(PlannedObject { object: object.clone(), action, writes_status });
    }
    plan
}

/// The action, and the reason if a user must agree with it.
fn action(object: &Value, found: Option<&Value>) -> (RestoreAction, Option<String>) {
    let Some(found) = found else { return (RestoreAction::Create, None) };
    if is_deleted(found) {
        return (RestoreAction::Replace, Some("is being deleted".to_owned()));
    }
    let Some(field) = first_difference(&comparable(object), &comparable(found), "") else {
        return (RestoreAction::Unchanged, None);
    };
    // A pool is added to a namespace that has none.
    let is_addition = MetaKind::of(object) == Some(MetaKind::Namespace) && pool(found).is_none();
    (RestoreAction::Replace, (!is_addition).then(|| format!("differs in {field}")))
}

/// Whether the status is written, and the reason if a user must agree with it.
fn status(object: &Value, found: Option<&Value>, action: RestoreAction) -> (bool, Option<String>) {
    if is_unset(&object["status"]) {
        return (false, None);
    }
    let Some(found) = found else { return (true, None) };
    if action == RestoreAction::Unchanged {
        let difference = first_difference(&status_at(object, found), &found["status"], ".status");
        let Some(field) = difference else { return (false, None) };
        return (true, (!is_unset(&found["status"])).then(|| format!("differs in {field}")));
    }
    (true, None)
}

/// Whether no operator has written the status. The definitions give every object one.
fn is_unset(status: &Value) -> bool {
    let fields = status.as_object();
    fields.is_none_or(|fields| {
        fields.iter().all(|(key, value)| key == "observedGeneration" && value.as_i64() == Some(-1))
    })
}

/// The parts that a restore must not change: everything but the status and what differs in each cluster.
fn comparable(object: &Value) -> Value {
    let mut fields = object.as_object().cloned().unwrap_or_default();
    fields.remove("status");
    let metadata = fields.remove("metadata").unwrap_or_default();
    let map = |key: &str| metadata[key].as_object().cloned().unwrap_or_default();
    let (mut labels, mut annotations) = (map("labels"), map("annotations"));
    labels.retain(|key, _| !UID_LABELS.contains(&key.as_str()));
    annotations.retain(|key, _| !UID_ANNOTATIONS.contains(&key.as_str()));
    let compared: Map<String, Value> = [
        ("labels".to_owned(), Value::Object(labels)),
        ("annotations".to_owned(), Value::Object(annotations)),
    ]
    .into_iter()
    .collect();
    fields.insert("metadata".to_owned(), compared.into());
    Value::Object(fields)
}

/// The path of the first field that differs from the wanted one. Other fields than the wanted ones, such as new defaults, are
/// no difference.
fn first_difference(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Null, _) => None,
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, value)| {
            first_difference(value, found.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))
        }),
        (Value::Object(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let mut pairs = wanted.iter().zip(found).enumerate();
            pairs.find_map(|(index, (wanted, found))| {
                first_difference(wanted, found, &format!("{path}[{index}]"))
            })
        }
        _ => (wanted != found).then(|| path.trim_start_matches('.').to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use kubeon_api::labels::{CLUSTER_UID, DERIVED_UID, HOST_POOL};
    use serde_json::json;

    use super::*;

    fn operation(image: &str, status: Value) -> Value {
        json!({"kind": "ClusterOperation", "metadata": {"name": "o", "uid": "u", "generation": 1, "labels": {DERIVED_UID: "k"}},
            "spec": {"image": image}, "status": status})
    }

    fn planned(object: &Value, found: Option<Value>) -> (RestoreAction, bool, Vec<String>) {
        let present = found.map(|found| (title(&found), found)).into_iter().collect();
        let plan = plan(std::slice::from_ref(object), &present);
        let one = &plan.objects[0];
        (one.action, one.writes_status, plan.conflicts.into_iter().map(|note| note.reason).collect())
    }

    #[test]
    fn what_is_missing_is_created_with_its_status() {
        let ended = operation("a", json!({"status": "Succeeded"}));
        assert_eq!(planned(&ended, None), (RestoreAction::Create, true, Vec::new()));
        let waiting = operation("a", json!({"observedGeneration": -1}));
        assert_eq!(planned(&waiting, None), (RestoreAction::Create, false, Vec::new()));
    }

    #[test]
    fn a_second_restore_finds_nothing_to_do_and_an_interrupted_one_writes_the_status() {
        let mut ended = operation("a", json!({"status": "Succeeded", "observedGeneration": 1}));
        ended["metadata"]["annotations"] = json!({CLUSTER_UID: "one"});
        let mut again = ended.clone();
        again["metadata"]["labels"][DERIVED_UID] = json!("another");
        again["spec"]["paused"] = json!(false);
        again["metadata"]["annotations"] = json!({CLUSTER_UID: "another"});
        assert_eq!(planned(&ended, Some(again.clone())), (RestoreAction::Unchanged, false, Vec::new()));
        again["status"] = json!({"observedGeneration": -1});
        assert_eq!(planned(&ended, Some(again)), (RestoreAction::Unchanged, true, Vec::new()));
    }

    #[test]
    fn a_difference_is_named() {
        let ended = operation("a", json!({"status": "Succeeded"}));
        let (action, _, conflicts) = planned(&ended, Some(operation("b", json!({"status": "Succeeded"}))));
        assert_eq!((action, conflicts), (RestoreAction::Replace, vec!["differs in spec.image".to_owned()]));
        let (action, status, conflicts) = planned(&ended, Some(operation("a", json!({"status": "Running"}))));
        assert_eq!((action, status), (RestoreAction::Unchanged, true));
        assert_eq!(conflicts, ["differs in status.status"]);
        let mut leaving = ended.clone();
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-31T12:00:00Z");
        assert_eq!(planned(&ended, Some(leaving)).2, ["is being deleted"]);
    }

    #[test]
    fn a_pool_is_added_to_a_namespace_without_one() {
        let namespace = |pool: Value| json!({"kind": "Namespace", "metadata": {"name": "a", "annotations": {HOST_POOL: pool}}});
        let wanted = namespace(json!("10.0.0.0/24"));
        assert_eq!(
            planned(&wanted, Some(namespace(Value::Null))),
            (RestoreAction::Replace, false, Vec::new())
        );
        assert_eq!(planned(&wanted, Some(wanted.clone())).0, RestoreAction::Unchanged);
        assert_eq!(planned(&wanted, Some(namespace(json!("10.9.0.0/24")))).2.len(), 1);
    }
}
