//! Applies objects through this host's API server, over one connection.

use std::time::Duration;

use kubeon_wire::{ApiObject, Category, StepFailure};
use serde_json::Value;

use crate::api::{Api, check_path, message};
use crate::failure::{failed, of};
use crate::job::{Effect, Job};
use crate::journal::Mark;

/// The first pause before an object is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);

/// Applies the objects: namespaces first, then definitions of kinds, then the rest, each in the order given.
///
/// # Errors
/// What the API server says against an object; [`Category::Timeout`] when it does not take it in time.
pub fn run(job: &Job<'_>, objects: &[ApiObject]) -> Result<Effect, StepFailure> {
    objects.iter().try_for_each(|object| check_path(&object.path))?;
    let api = Api::local(job.host)?;
    let mut effect = Effect::default();
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

/// Applies one object; tells whether the server's object changed.
fn apply(job: &Job<'_>, api: &Api, object: &ApiObject) -> Result<bool, StepFailure> {
    let before = revision(job, api, object)?;
    let after = retry(job, object, || api.apply(object, CALL.min(job.left())))?;
    Ok(before.is_none() || before != after)
}

/// The revision of the object as it is; `None` when there is none.
fn revision(job: &Job<'_>, api: &Api, object: &ApiObject) -> Result<Option<String>, StepFailure> {
    // 404 is an answer here, while for a PATCH it means that its kind or namespace is still to come.
    let absent = "absent".to_owned();
    let seen = retry(job, object, || {
        api.get(&object.path, CALL.min(job.left())).map(|mut answer| {
            if answer.status == 404 {
                answer.status = 200;
                answer.body = format!("{{\"metadata\":{{\"resourceVersion\":\"{absent}\"}}}}");
            }
            answer
        })
    })?;
    Ok(seen.filter(|revision| *revision != absent))
}

fn retry(
    job: &Job<'_>,
    object: &ApiObject,
    call: impl Fn() -> Result<crate::https::Answer, String>,
) -> Result<Option<String>, StepFailure> {
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = match call() {
            Ok(answer) if matches!(answer.status, 200 | 201) => {
                let told: Value = serde_json::from_str(&answer.body).unwrap_or_default();
                return Ok(told["metadata"]["resourceVersion"].as_str().map(str::to_owned));
            }
            Ok(answer) if matches!(answer.status, 404 | 409 | 429 | 500..) => {
                format!("the API server answers {}: {}", answer.status, message(&answer.body))
            }
            Ok(answer) => {
                let said = message(&answer.body);
                return Err(failed(format!("{} is refused ({}): {said}", object.path, answer.status)));
            }
            Err(why) => format!("the API server on this host does not answer: {why}"),
        };
        let tell = || format!("{} is not applied: {seen}", object.path);
        if job.left().is_zero() {
            return Err(of(Category::Timeout, tell()));
        }
        job.pause(pause, tell)?;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_come_first_and_the_rest_keeps_its_order() {
        let object =
            |kind: &str, path: &str| ApiObject { path: path.into(), body: serde_json::json!({"kind": kind}) };
        let objects = [
            object("Deployment", "d"),
            object("CustomResourceDefinition", "c"),
            object("Namespace", "n1"),
            object("ConfigMap", "m"),
            object("Namespace", "n2"),
        ];
        let order: Vec<_> = in_order(&objects).iter().map(|object| object.path.clone()).collect();
        assert_eq!(order, ["n1", "n2", "c", "d", "m"]);
    }
}
