//! Who asked for an operation: the webhook writes the user's name into an annotation, so that nobody writes another's name.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, Operation as Verb};
use kubeon_api::labels::{OPERATION, REQUESTED_BY};
use serde_json::{Value, json};

/// The change that makes the annotation true; an empty patch when it is.
pub(crate) fn patch(request: &AdmissionRequest<DynamicObject>) -> Patch {
    let Some(object) = request.object.as_ref().filter(|_| request.sub_resource.is_none()) else {
        return Patch::default();
    };
    let found = annotation(object, REQUESTED_BY);
    let wanted = match request.old_object.as_ref().filter(|_| request.operation == Verb::Update) {
        Some(old) if !asks(request, object, old) => annotation(old, REQUESTED_BY),
        _ => request.user_info.username.as_deref(),
    };
    let path = PointerBuf::from_tokens(["metadata", "annotations", REQUESTED_BY]);
    let operation = match wanted {
        wanted if wanted == found => return Patch::default(),
        None => PatchOperation::Remove(RemoveOperation { path }),
        Some(user) if object.metadata.annotations.is_some() => {
            PatchOperation::Add(AddOperation { path, value: json!(user) })
        }
        Some(user) => PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["metadata", "annotations"]),
            value: json!({REQUESTED_BY: user}),
        }),
    };
    Patch(vec![operation])
}

/// Whether the change of an object asks for an operation. A `ClusterOperation` is asked for once, when it is created.
fn asks(request: &AdmissionRequest<DynamicObject>, object: &DynamicObject, old: &DynamicObject) -> bool {
    let spec = |object: &DynamicObject| object.data.get("spec").cloned().unwrap_or(Value::Null);
    request.resource.resource != "clusteroperations"
        && (spec(object) != spec(old) || annotation(object, OPERATION) != annotation(old, OPERATION))
}

fn annotation<'o>(object: &'o DynamicObject, key: &str) -> Option<&'o str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The annotation after a change by alice; `old` and `new` are the annotations and the spec.
    fn after(resource: &str, old: Option<(Value, &str)>, new: (Value, &str)) -> Option<String> {
        let object = |(annotations, spec): &(Value, &str)| json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "x", "annotations": annotations}, "spec": spec});
        let mut object_after = object(&new);
        let request: AdmissionRequest<DynamicObject> = serde_json::from_value(json!({
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "K"},
            "resource": {"group": "", "version": "v1", "resource": resource}, "name": "x",
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "userInfo": {"username": "alice"},
            "object": object_after, "oldObject": old.as_ref().map(object), "dryRun": false,
        }))
        .unwrap();
        json_patch::patch(&mut object_after, &patch(&request)).unwrap();
        object_after["metadata"]["annotations"][REQUESTED_BY].as_str().map(str::to_owned)
    }

    #[test]
    fn names_the_user_who_creates_an_object_whatever_it_claims() {
        for annotations in
            [Value::Null, json!({}), json!({REQUESTED_BY: "bob"}), json!({REQUESTED_BY: "alice"})]
        {
            for resource in ["clusteroperations", "kubernetesclusters"] {
                let named = after(resource, None, (annotations.clone(), "a"));
                assert_eq!(named.as_deref(), Some("alice"), "{resource} {annotations}");
            }
        }
    }

    #[test]
    fn names_the_user_who_changes_what_a_cluster_shall_be() {
        let by_bob = || json!({REQUESTED_BY: "bob"});
        let cluster = |old, new| after("kubernetesclusters", Some(old), new);
        assert_eq!(cluster((by_bob(), "a"), (by_bob(), "b")).as_deref(), Some("alice"));
        let asked = json!({REQUESTED_BY: "bob", OPERATION: "creating"});
        assert_eq!(cluster((by_bob(), "a"), (asked, "a")).as_deref(), Some("alice"));
        assert_eq!(cluster((by_bob(), "a"), (by_bob(), "a")).as_deref(), Some("bob"));
    }

    #[test]
    fn other_changes_leave_the_name() {
        let by = |name: &str| json!({REQUESTED_BY: name});
        for resource in ["clusteroperations", "kubernetesclusters"] {
            for new in [by("alice"), json!({}), Value::Null] {
                let named = after(resource, Some((by("bob"), "a")), (new.clone(), "a"));
                assert_eq!(named.as_deref(), Some("bob"), "{resource} {new}");
            }
            assert_eq!(after(resource, Some((json!({}), "a")), (by("alice"), "a")), None, "{resource}");
        }
        let cancelled = after("clusteroperations", Some((by("bob"), "a")), (by("bob"), "cancelled"));
        assert_eq!(cancelled.as_deref(), Some("bob"));
    }
}
