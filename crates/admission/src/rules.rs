//! The rules. Pure: a request and a [`Lookup`] in, a [`AdmissionVerdict`] out.
//!
//! ```text
//!   KubernetesCluster ─► read ─► parts ─► hosts ─► version ─► addresses ─► size   for every change
//!                          └──► with the existing object: fixed ─► nodes ─► word   for an update
//!   ClusterOperation  ─► names a Cluster
//! ```

mod desired;
mod fixed;
mod hosts;
mod nodes;
mod parts;
mod size;
mod version;
mod word;

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, Operation as Verb};
use kubeon_api::labels::{APPLIED_SPEC, OPERATION};
use kubeon_api::{KubernetesClusterSpec, Operation, Phase, read_yaml};
use serde_json::{Value, json};

use crate::lookup::{Lookup, ObjectName};
use crate::verdict::AdmissionVerdict;
use desired::{Desired, Existing};

/// Reviews a change. Kinds without rules are allowed.
#[must_use]
pub fn decide(request: &AdmissionRequest<DynamicObject>, lookup: &dyn Lookup) -> AdmissionVerdict {
    let mut verdict = AdmissionVerdict::default();
    let changes = matches!(request.operation, Verb::Create | Verb::Update) && request.sub_resource.is_none();
    let Some(object) = request.object.as_ref().filter(|_| changes) else { return verdict };
    match (request.resource.group.as_str(), request.resource.resource.as_str()) {
        ("ecs.yun.com", "kubernetesclusters") => cluster(request, object, lookup, &mut verdict),
        ("kubeonkube.clay.io", "clusteroperations") => operation(object, &mut verdict),
        _ => {}
    }
    verdict
}

/// Contract A, case 43. The schema checks the rest of an operation, or its result reports the error.
fn operation(object: &DynamicObject, verdict: &mut AdmissionVerdict) {
    let cluster = object.data.pointer("/spec/cluster").and_then(Value::as_str).unwrap_or_default();
    if cluster.trim().is_empty() {
        verdict.deny_with(400, "spec.cluster", "is empty; name the Cluster that the operation changes");
    }
}

fn cluster(
    request: &AdmissionRequest<DynamicObject>,
    object: &DynamicObject,
    lookup: &dyn Lookup,
    verdict: &mut AdmissionVerdict,
) {
    let Some(spec) = read(request, object, verdict) else { return };
    let old = request.old_object.as_ref();
    let asked = annotation(object, OPERATION)
        .filter(|word| old.and_then(|o| annotation(o, OPERATION)) != Some(*word));
    let flat = object.data.pointer("/spec/cluster").is_none();
    let desired = Desired {
        name: ObjectName::new(request.namespace.clone().unwrap_or_default(), request.name.clone()),
        root: if flat { "spec" } else { "spec.cluster" },
        cluster: &spec.cluster,
        snapshots: spec.snapshots.as_ref(),
        word: asked.and_then(|word| word.parse().ok()),
        rolls_back: annotation(object, OPERATION).is_some_and(|word| {
            matches!(word.parse(), Ok(Operation::Rollbacking | Operation::RollbackFailed))
        }),
        upgrades: annotation(object, OPERATION)
            .is_some_and(|word| matches!(word.parse(), Ok(Operation::Updating | Operation::UpdateFailed))),
        is_being_deleted: object.metadata.deletion_timestamp.is_some(),
    };
    let existing = old.and_then(existing);
    let changes = existing.as_ref().and_then(|existing| existing.changes(&spec.cluster));
    parts::judge(&desired, existing.as_ref(), verdict);
    credentials(&desired, verdict);
    hosts::judge(&desired, existing.as_ref(), verdict);
    version::judge(&desired, existing.as_ref(), changes.as_ref(), lookup, verdict);
    hosts::judge_addresses(&desired, existing.as_ref(), lookup, verdict);
    size::judge(&desired, object, existing.as_ref().zip(old), verdict);
    if let Some(existing) = &existing {
        if let (Some(built), Some(changes)) = (&existing.built, &changes) {
            fixed::judge(&desired, &existing.declared, built, changes, verdict);
            nodes::judge(&desired, built, changes, verdict);
            version::advise_on_hosts(&desired, existing, built, changes, verdict);
        }
        word::judge(&desired, existing, verdict);
    }
    advise(&desired, flat, verdict);
}

/// Parses the spec. Every field that the type refuses beyond the schema is denied.
fn read(
    request: &AdmissionRequest<DynamicObject>,
    object: &DynamicObject,
    verdict: &mut AdmissionVerdict,
) -> Option<KubernetesClusterSpec> {
    let spec = object.data.get("spec").cloned().unwrap_or_else(|| json!({}));
    let error = match serde_json::from_value(spec.clone()) {
        Ok(spec) => return Some(spec),
        Err(error) => error,
    };
    let text = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": request.name}, "spec": spec,
    });
    match read_yaml(&text.to_string()) {
        Err(kubeon_api::ReadError::Mistakes(mistakes)) => {
            for mistake in mistakes {
                verdict.deny(mistake.field, mistake.reason);
            }
        }
        _ => verdict.deny("spec", error.to_string()),
    }
    None
}

/// The existing object; `None` when it cannot be parsed.
fn existing(old: &DynamicObject) -> Option<Existing> {
    let spec = |value: &Value| serde_json::from_value::<KubernetesClusterSpec>(value.clone()).ok();
    let declared = spec(old.data.get("spec")?)?.cluster;
    let status = |field: &str| old.data.pointer(&format!("/status/{field}")).and_then(Value::as_str);
    let phase: Option<Phase> = status("phase").and_then(|phase| phase.parse().ok());
    let applied = annotation(old, APPLIED_SPEC).and_then(|text| serde_json::from_str(text).ok());
    let built = match (applied, phase) {
        (Some(applied), _) => Some(spec(&applied).map_or_else(|| declared.clone(), |spec| spec.cluster)),
        // Nothing was built: every field may be changed.
        (None, None | Some(Phase::Failed | Phase::Prechecking)) => None,
        (None, Some(_)) => Some(declared.clone()),
    };
    Some(Existing { declared, built, version: status("version").and_then(|text| text.parse().ok()) })
}

/// An annotation that is not empty.
fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// The credentials of a cluster must be in its own namespace.
fn credentials(desired: &Desired<'_>, verdict: &mut AdmissionVerdict) {
    let reference = desired.cluster.auth_config.as_ref().and_then(|auth| auth.credentials_ref.as_ref());
    let namespace = reference.and_then(|reference| reference.namespace.as_ref());
    if namespace.is_some_and(|namespace| namespace.as_str() != desired.name.namespace) {
        verdict.deny(
            desired.field("authConfig.credentialsRef.namespace"),
            format!("must be {}, the cluster's own; leave it out", desired.name.namespace),
        );
    }
}

fn advise(desired: &Desired<'_>, flat: bool, verdict: &mut AdmissionVerdict) {
    let masters = desired.cluster.master_list.len();
    if masters > 0 && masters.is_multiple_of(2) {
        verdict.warn(format!(
            "{}: {masters} masters tolerate no more failures than {}; use 1, 3 or 5",
            desired.field("masterList"),
            masters - 1
        ));
    }
    let auth = desired.cluster.auth_config.as_ref();
    if auth.is_some_and(|auth| auth.password.is_some() || auth.private_ssh_key.is_some()) {
        verdict.warn(format!(
            "{}: everyone who may read this object can read these credentials; use credentialsRef",
            desired.field("authConfig")
        ));
    }
    if flat {
        verdict.warn("spec: the cluster's fields stand under spec.cluster in newer files");
    }
}

#[cfg(test)]
mod tests;
