//! Records completed steps in the cluster: as annotations of an API object, so that they survive the loss of any
//! master, and the records of a node end with the node.

use std::time::Duration;

use kubeon_wire::StepFailure;
use serde_json::{Value, json};

use crate::api::{Api, check_path};
use crate::durable::sha256;
use crate::failure::failed;
use crate::job::Job;
use crate::journal::{Entry, Mark};
use crate::ops::node::until_accepted;

/// The object that records steps about no single node.
pub const CLUSTER_OBJECT: &str = "/api/v1/namespaces/kube-system";
/// The prefix of every annotation.
const PREFIX: &str = "steps.kubeon.io/";
/// The maximum length of the name of an annotation, without its prefix.
const NAME_LIMIT: usize = 63;
/// The length of the hash in the name of a step that is too long.
const HASH_LENGTH: usize = 16;
/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause while the object does not exist yet.
const PAUSE: Duration = Duration::from_millis(200);

/// Writes the entry of a step into the object at this path.
///
/// # Errors
/// If the API server of this host does not accept it in time.
pub fn remember(job: &Job<'_>, path: &str, entry: &Entry) -> Result<(), StepFailure> {
    check_path(path)?;
    let api = Api::local(job.host)?;
    // The object itself exists as long as its annotation.
    let other = |mark: &&Mark| !matches!(mark, Mark::Object { path: object } if object == path);
    let marks = entry.marks.iter().filter(other).cloned().collect();
    let text = serde_json::to_string(&Entry { marks, ..entry.clone() })
        .map_err(|error| failed(format!("cannot encode a record: {error}")))?;
    let body = json!({"metadata": {"annotations": {name(&entry.id): text}}});
    let problem = format!("{} is not recorded in {path}", entry.id);
    loop {
        let answer = until_accepted(job, &problem, || api.merge(path, &body, CALL_TIMEOUT.min(job.left())))?;
        if answer.status != 404 {
            return Ok(());
        }
        // The API server creates its namespaces a moment after it is ready.
        job.pause(PAUSE, || format!("{problem}: the object does not exist"))?;
    }
}

/// Removes the entry of a step about no single node.
///
/// # Errors
/// If the API server of this host does not accept it in time.
pub fn forget(job: &Job<'_>, id: &str) -> Result<(), StepFailure> {
    let api = Api::local(job.host)?;
    let body = json!({"metadata": {"annotations": {name(id): null}}});
    let problem = format!("the record of {id} is not removed");
    until_accepted(job, &problem, || api.merge(CLUSTER_OBJECT, &body, CALL_TIMEOUT.min(job.left()))).map(drop)
}

/// The entries that an object records. An entry that cannot be parsed is left out: its step is executed again.
#[must_use]
pub fn entries(object: &Value) -> Vec<Entry> {
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    entries_in(annotations.filter_map(|(name, text)| Some((name.as_str(), text.as_str()?)))).collect()
}

/// The same of the annotations of an object, each with its name and its text.
pub fn entries_in<'a>(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> impl Iterator<Item = Entry> {
    let ours = annotations.filter(|(name, _)| name.starts_with(PREFIX));
    ours.filter_map(|(_, text)| serde_json::from_str(text).ok())
}

/// The name of the annotation of a step.
fn name(id: &str) -> String {
    let plain = id.replace(['/', '@'], ".");
    if plain.len() <= NAME_LIMIT {
        return format!("{PREFIX}{plain}");
    }
    let (hash, kept) = (sha256(id.as_bytes()), NAME_LIMIT - HASH_LENGTH - 1);
    format!("{PREFIX}{}-{}", &plain[..kept], &hash[..HASH_LENGTH])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    fn entry(id: &str, marks: Vec<Mark>) -> Entry {
        Entry { id: id.into(), digest: "d".into(), marks }
    }

    #[test]
    fn a_step_is_recorded_as_an_annotation_and_read_back() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |_, _, number| match number {
            0 => Reply::Json(404, "{}".to_owned()),
            _ => Reply::Json(200, "{}".to_owned()),
        });
        let mark = Mark::Object { path: "/api/v1/namespaces/x".into() };
        let own = Mark::Object { path: CLUSTER_OBJECT.into() };
        remember(&bench.job(), CLUSTER_OBJECT, &entry("network/dns", vec![own, mark.clone()])).unwrap();
        let (method, path, body) = requests.lock()[1].clone();
        assert_eq!(
            (method.as_str(), path.as_str()),
            ("PATCH", "/api/v1/namespaces/kube-system?fieldManager=kubeon")
        );
        let object: Value = serde_json::from_str(&body).unwrap();
        assert!(object["metadata"]["annotations"]["steps.kubeon.io/network.dns"].is_string(), "{body}");
        assert_eq!(entries(&object), [entry("network/dns", vec![mark])]);
    }

    #[test]
    fn other_annotations_and_damaged_records_are_left_out() {
        let annotations = json!({"a": "b", "steps.kubeon.io/join.ready-h1": "{", "steps.kubeon.io/x": 3});
        assert_eq!(entries(&json!({"metadata": {"annotations": annotations}})), []);
        assert_eq!(entries(&json!({})), []);
    }

    #[test]
    fn names_of_annotations_are_valid_and_differ() {
        let node = "n".repeat(63);
        let (ready, labels) = (name(&format!("join/ready-{node}")), name(&format!("join/labels-{node}")));
        for name in [&ready, &labels] {
            assert_eq!(name.strip_prefix(PREFIX).unwrap().len(), NAME_LIMIT);
        }
        assert_ne!(ready, labels);
        assert_ne!(ready, name(&format!("join/ready-{}", "n".repeat(62))));
    }
}
