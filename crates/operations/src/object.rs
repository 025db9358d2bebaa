//! The bodies of writes: the objects that are created, and patches.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::OperationResult;
use serde::Serialize;
use serde_json::{Map, Value};

/// An object to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NewObject {
    /// The Job of an operation.
    Job(Box<Job>),
    /// Inputs, a log, or known hosts.
    ConfigMap(Box<ConfigMap>),
    /// Credentials, or the state of a cluster.
    Secret(Box<Secret>),
    /// An operation derived from a `KubernetesCluster`.
    Operation(Box<ClusterOperation>),
}

impl From<Job> for NewObject {
    fn from(job: Job) -> Self {
        Self::Job(Box::new(job))
    }
}

impl From<ConfigMap> for NewObject {
    fn from(map: ConfigMap) -> Self {
        Self::ConfigMap(Box::new(map))
    }
}

impl From<Secret> for NewObject {
    fn from(secret: Secret) -> Self {
        Self::Secret(Box::new(secret))
    }
}

impl From<ClusterOperation> for NewObject {
    fn from(operation: ClusterOperation) -> Self {
        Self::Operation(Box::new(operation))
    }
}

/// A patch of an object's metadata or of a Job's spec. An absent field is not changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ObjectPatch {
    /// Labels, annotations, finalizers and owners. With a `resourceVersion`, only that version is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The changed fields of a Job's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobSpecPatch>,
}

impl ObjectPatch {
    /// A patch of the metadata alone.
    #[must_use]
    pub fn of_metadata(metadata: ObjectMeta) -> Self {
        Self { metadata: Some(metadata), spec: None }
    }
}

/// The fields of a Job's spec that the operator changes. `JobSpec` itself always serializes a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpecPatch {
    /// Whether the Job is suspended, which ends its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Seconds after which Kubernetes ends the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
}

/// A patch of a status: the difference between two statuses. It is JSON, because `null` removes a field.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StatusPatch {
    /// The `resourceVersion` that the patch applies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The fields that differ.
    pub status: Map<String, Value>,
}

impl StatusPatch {
    /// The patch (RFC 7386) from one status to another, restricted to a version; `None` when they are equal.
    pub(crate) fn between<S: Serialize>(version: Option<&str>, before: Option<&S>, new: &S) -> Option<Self> {
        let fields = |status: Option<&S>| match status.map(serde_json::to_value) {
            Some(Ok(Value::Object(fields))) => fields,
            _ => Map::new(),
        };
        let status = difference(&fields(before), &fields(Some(new)));
        if status.is_empty() {
            return None;
        }
        let metadata = version.map(|version| ObjectMeta {
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        });
        Some(Self { metadata, status })
    }

    /// The new text of a field.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.status.get(field)?.as_str()
    }

    /// The result of an operation, if the patch ends it.
    #[must_use]
    pub fn end(&self) -> Option<OperationResult> {
        let result: OperationResult = self.text("status")?.parse().ok()?;
        (result != OperationResult::Running).then_some(result)
    }
}

/// The fields of the merge patch that changes `old` into `new`.
fn difference(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| Some((key.clone(), change(old.get(key), value)?)));
    removed.chain(changed).collect()
}

/// The merge patch that changes the value of a field; `None` when it is equal.
fn change(old: Option<&Value>, new: &Value) -> Option<Value> {
    match (old, new) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            Some(difference(old, new)).filter(|fields| !fields.is_empty()).map(Value::Object)
        }
        (old, new) => (old.unwrap_or(&Value::Null) != new).then(|| new.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_patch_has_the_changed_fields_and_removes_absent_ones() {
        let (before, new) =
            (json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1]}), json!({"a": 1, "b": {"c": 2}}));
        let patch = StatusPatch::between(Some("7"), Some(&before), &new).unwrap();
        let wire =
            json!({"metadata": {"resourceVersion": "7"}, "status": {"b": {"c": 2, "d": null}, "e": null}});
        assert_eq!(serde_json::to_value(&patch).unwrap(), wire);
        assert_eq!(StatusPatch::between(Some("7"), Some(&new), &new), None);
        assert_eq!(StatusPatch::between(None, None, &json!({"a": "x"})).unwrap().text("a"), Some("x"));
    }
}
