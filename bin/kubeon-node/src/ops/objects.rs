//! Applies objects through this host's API server, over one connection.

use std::time::Duration;

use kubeon_wire::{ApiObject, Category, StepFailure};
use serde_json::Value;

use crate::api::{Api, check_path, message};
use crate::backoff::pauses;
use crate::failure::{failed, of};
use crate::https::HttpResponse;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Applies the objects: namespaces first, then custom resource definitions, then the rest, each in the given
/// order.
///
/// # Errors
/// The API server's reason for refusing an object; [`Category::Timeout`] if it does not accept an object in
/// time.
pub fn run(job: &Job<'_>, objects: &[ApiObject]) -> Result<StepEffect, StepFailure> {
    objects.iter().try_for_each(|object| check_path(&object.path))?;
    let api = Api::local(job.host)?;
    let mut effect = StepEffect::default();
    for object in in_order(objects) {
        effect.changed |= apply(job, &api, object)?;
    }
    effect.marks = objects.iter().map(|object| Mark::Object { path: object.path.clone() }).collect();
    Ok(effect)
}

fn in_order(objects: &[ApiObject]) -> Vec<&ApiObject> {
    let rank = |object: &&ApiObject| match object.body["kind"].as_str() {
        Some("Namespace") => 0,
        Some("CustomResourceDefinition") => 1,
        _ => 2,
    };
    let mut ordered: Vec<_> = objects.iter().collect();
    ordered.sort_by_key(rank);
    ordered
}

/// Applies one object. Returns whether the server's object changed.
fn apply(job: &Job<'_>, api: &Api, object: &ApiObject) -> Result<bool, StepFailure> {
    let before = retry(job, object, || {
        // For a GET, 404 is a valid answer. For a PATCH, it means that the kind or namespace does not exist
        // yet.
        api.get(&object.path, CALL_TIMEOUT.min(job.left())).map(|answer| match answer.status {
            404 => HttpResponse { status: 200, body: "null".to_owned() },
            _ => answer,
        })
    })?;
    let after = retry(job, object, || api.apply(object, CALL_TIMEOUT.min(job.left())))?;
    Ok(before.is_null() || desired(before) != desired(after))
}

/// The object without the fields that the server and controllers write.
fn desired(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

/// Repeats a call until the server accepts it. Returns the object in the answer.
fn retry(
    job: &Job<'_>,
    object: &ApiObject,
    call: impl Fn() -> Result<HttpResponse, String>,
) -> Result<Value, StepFailure> {
    let mut pauses = pauses();
    loop {
        let seen = match call() {
            Ok(answer) if matches!(answer.status, 200 | 201) => {
                return serde_json::from_str(&answer.body).map_err(|_| {
                    failed(format!("{}: the answer of the API server is not JSON", object.path))
                });
            }
            Ok(answer) if is_retryable(&answer) => {
                format!("the API server answers {}: {}", answer.status, message(&answer.body))
            }
            Ok(answer) => {
                let reason = message(&answer.body);
                return Err(failed(format!("{} is refused ({}): {reason}", object.path, answer.status)));
            }
            Err(why) => format!("the API server on this host does not answer: {why}"),
        };
        let describe = || format!("{} is not applied: {seen}", object.path);
        if job.left().is_zero() {
            return Err(of(Category::Timeout, describe()));
        }
        job.pause(pauses.next().unwrap_or_default(), describe)?;
    }
}

/// Whether a retry may succeed. The server also answers 500 to an object that does not match the schema of
/// its kind, which never succeeds.
fn is_retryable(answer: &HttpResponse) -> bool {
    let shape = answer.status == 500 && answer.body.contains("failed to create typed patch object");
    matches!(answer.status, 404 | 409 | 429 | 500..) && !shape
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
