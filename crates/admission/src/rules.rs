//! The rules. Pure: a request and a [`Lookup`] in, a [`AdmissionVerdict`] out.
//!
//! ```text
//!   KubernetesCluster ─► read ─► parts ─► hosts ─► version ─► addresses ─► size   whatever the change
//!                          └──► against what stands: fixed ─► nodes ─► word     when there is something before it
//!   ClusterOperation  ─► names a Cluster
//! ```

mod fixed;
mod hosts;
mod nodes;
mod parts;
mod size;
mod version;
mod wanted;
mod word;

use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, Operation as Verb};
use kubeon_api::labels::{APPLIED_SPEC, OPERATION};
use kubeon_api::{KubernetesClusterSpec, Phase, read_yaml};
use serde_json::{Value, json};

use crate::lookup::{Lookup, ObjectName};
use crate::verdict::AdmissionVerdict;
use wanted::{Stood, Wanted};

/// Judges a change. What this does not know is allowed.
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

/// Contract A, case 43. Everything else about an operation is the schema's, or becomes its result.
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
    let wanted = Wanted {
        name: ObjectName::new(request.namespace.clone().unwrap_or_default(), request.name.clone()),
        root: if flat { "spec" } else { "spec.cluster" },
        cluster: &spec.cluster,
        word: asked.and_then(|word| word.parse().ok()),
        leaves: object.metadata.deletion_timestamp.is_some(),
    };
    let stood = old.and_then(stood);
    let changes = stood.as_ref().and_then(|stood| stood.changes(&spec.cluster));
    parts::judge(&wanted, stood.as_ref(), verdict);
    credentials(&wanted, verdict);
    hosts::judge(&wanted, verdict);
    version::judge(&wanted, stood.as_ref(), changes.as_ref(), lookup, verdict);
    hosts::judge_addresses(&wanted, stood.as_ref(), lookup, verdict);
    size::judge(&wanted, object, stood.as_ref().zip(old), verdict);
    if let Some(stood) = &stood {
        if let (Some(built), Some(changes)) = (&stood.built, &changes) {
            fixed::judge(&wanted, built, changes, verdict);
            nodes::judge(&wanted, built, changes, verdict);
        }
        word::judge(&wanted, stood, verdict);
    }
    advise(&wanted, flat, verdict);
}

/// The spec as a type. What the type refuses beyond the schema is told field by field.
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

/// How an object stood before; nothing when that cannot be read any more.
fn stood(old: &DynamicObject) -> Option<Stood> {
    let spec = |value: &Value| serde_json::from_value::<KubernetesClusterSpec>(value.clone()).ok();
    let declared = spec(old.data.get("spec")?)?.cluster;
    let status = |field: &str| old.data.pointer(&format!("/status/{field}")).and_then(Value::as_str);
    let phase: Option<Phase> = status("phase").and_then(|phase| phase.parse().ok());
    let applied = annotation(old, APPLIED_SPEC).and_then(|text| serde_json::from_str(text).ok());
    let built = match (applied, phase) {
        (Some(applied), _) => Some(spec(&applied).map_or_else(|| declared.clone(), |spec| spec.cluster)),
        // Nothing was built: everything may be mended.
        (None, None | Some(Phase::Failed | Phase::Prechecking)) => None,
        (None, Some(_)) => Some(declared.clone()),
    };
    Some(Stood { declared, built, version: status("version").and_then(|text| text.parse().ok()) })
}

/// An annotation that says something.
fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// A namespace's clusters log in with the namespace's Secrets.
fn credentials(wanted: &Wanted<'_>, verdict: &mut AdmissionVerdict) {
    let reference = wanted.cluster.auth_config.as_ref().and_then(|auth| auth.credentials_ref.as_ref());
    let namespace = reference.and_then(|reference| reference.namespace.as_ref());
    if namespace.is_some_and(|namespace| namespace.as_str() != wanted.name.namespace) {
        verdict.deny(
            wanted.field("authConfig.credentialsRef.namespace"),
            format!("must be {}, the cluster's own; leave it out", wanted.name.namespace),
        );
    }
}

fn advise(wanted: &Wanted<'_>, flat: bool, verdict: &mut AdmissionVerdict) {
    let masters = wanted.cluster.master_list.len();
    if masters > 0 && masters.is_multiple_of(2) {
        verdict.warn(format!(
            "{}: {masters} masters survive no failure that {} do not; use 1, 3 or 5",
            wanted.field("masterList"),
            masters - 1
        ));
    }
    let auth = wanted.cluster.auth_config.as_ref();
    if auth.is_some_and(|auth| auth.password.is_some() || auth.private_ssh_key.is_some()) {
        verdict.warn(format!(
            "{}: everyone who may read this object can read these credentials; use credentialsRef",
            wanted.field("authConfig")
        ));
    }
    if flat {
        verdict.warn("spec: the cluster's fields stand under spec.cluster in newer files");
    }
}

#[cfg(test)]
mod tests;
