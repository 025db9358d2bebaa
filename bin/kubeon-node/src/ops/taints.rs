//! Declared taints of nodes. An annotation of the node names those that kubeon gave it, so that only these are removed.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeon_api::HostName;
use kubeon_api::kubernetes_cluster::NodeTaint;
use kubeon_wire::StepFailure;
use serde_json::{Value, json};

use super::node::merge_observed;
use crate::api::Api;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;

/// The pause while the node does not exist yet.
const PAUSE: Duration = Duration::from_millis(200);
/// Annotation of a node: key and effect of the taints that its declaration gave it, joined by commas.
const GIVEN: &str = "kubeon.io/taints";

/// Gives the node these taints and removes those that an earlier run gave it. Waits until the node exists.
///
/// # Errors
/// If the node does not exist or the API server does not accept the change in time.
pub fn run(job: &Job<'_>, node: &HostName, taints: &[NodeTaint]) -> Result<StepEffect, StepFailure> {
    let api = Api::local(job.host)?;
    let path = format!("/api/v1/nodes/{node}");
    let problem = format!("the taints of node {node} are not changed");
    let mut changed = false;
    loop {
        let merged = merge_observed(job, (&api, &path), &problem, |object| patch(object, taints))?;
        changed |= merged.changed;
        if merged.exists {
            return Ok(StepEffect { changed, marks: vec![Mark::Object { path }] });
        }
        job.pause(PAUSE, || format!("{problem}: the node does not exist"))?;
    }
}

/// The patch for the taints; `None` if no change is needed.
fn patch(node: &Value, wanted: &[NodeTaint]) -> Option<Value> {
    let metadata = &node["metadata"];
    let before = metadata["annotations"][GIVEN].as_str();
    let given: BTreeSet<&str> = before.into_iter().flat_map(|names| names.split(',')).collect();
    let now = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let stays = |taint: &&Value| {
        let identity = identity(taint);
        match wanted.iter().find(|wanted| wanted.identity() == identity) {
            Some(wanted) => has_value_of(taint, wanted),
            None => !given.contains(identity.as_str()),
        }
    };
    let mut taints: Vec<Value> = now.iter().filter(stays).cloned().collect();
    for taint in wanted {
        if !taints.iter().any(|present| identity(present) == taint.identity()) {
            taints.push(json!(taint));
        }
    }
    let names: Vec<String> = wanted.iter().map(NodeTaint::identity).collect();
    let after = (!names.is_empty()).then(|| names.join(","));
    if taints == now && before == after.as_deref() {
        return None;
    }
    Some(json!({"metadata": {"annotations": {GIVEN: after}}, "spec": {"taints": taints}}))
}

/// Key and effect of a taint, as in [`NodeTaint::identity`].
fn identity(taint: &Value) -> String {
    let text = |field: &str| taint[field].as_str().unwrap_or_default();
    format!("{}:{}", text("key"), text("effect"))
}

fn has_value_of(taint: &Value, wanted: &NodeTaint) -> bool {
    let value = wanted.value.as_ref().map(|value| value.as_str());
    taint["value"].as_str().unwrap_or_default() == value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    fn taint(key: &str, value: &str, effect: &str) -> Value {
        json!({"key": key, "value": value, "effect": effect})
    }

    fn declared(taints: &[&Value]) -> Vec<NodeTaint> {
        taints.iter().map(|taint| serde_json::from_value((*taint).clone()).unwrap()).collect()
    }

    fn node(given: Option<&str>, taints: &[&Value]) -> Value {
        json!({"metadata": {"annotations": {GIVEN: given}}, "spec": {"taints": taints}})
    }

    #[test]
    fn only_given_taints_are_removed() {
        let (gpu, own) = (taint("gpu", "yes", "NoSchedule"), taint("own", "", "NoExecute"));
        let wanted = declared(&[&gpu]);
        let given = Some("gpu:NoSchedule");
        assert_eq!(patch(&node(None, &[&own]), &wanted).unwrap(), node(given, &[&own, &gpu]));
        assert_eq!(patch(&node(given, &[&own, &gpu]), &wanted), None);
        assert_eq!(patch(&node(given, &[&own, &gpu]), &[]).unwrap(), node(None, &[&own]));
        assert_eq!(patch(&node(None, &[&own]), &[]), None);
    }

    #[test]
    fn another_value_replaces_the_taint() {
        let (old, new) = (taint("gpu", "a", "NoSchedule"), taint("gpu", "b", "NoSchedule"));
        let given = Some("gpu:NoSchedule");
        assert_eq!(patch(&node(given, &[&old]), &declared(&[&new])).unwrap(), node(given, &[&new]));
    }

    #[test]
    fn a_taint_that_is_there_keeps_its_time() {
        let mut there = taint("own", "", "NoExecute");
        there["timeAdded"] = json!("2026-01-31T12:00:09Z");
        let wanted = declared(&[&taint("own", "", "NoExecute")]);
        let patched = patch(&node(None, &[&there]), &wanted).unwrap();
        assert_eq!(patched, node(Some("own:NoExecute"), &[&there]));
    }

    #[test]
    fn the_node_need_not_exist_yet() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |method, _, number| match (method, number) {
            (_, 0) => Reply::Json(404, "{}".to_owned()),
            ("GET", _) => {
                Reply::Json(200, json!({"metadata": {"resourceVersion": "1"}, "spec": {}}).to_string())
            }
            _ => Reply::Json(200, "{}".to_owned()),
        });
        let wanted = declared(&[&taint("gpu", "", "NoSchedule")]);
        assert!(run(&bench.job(), &"h3".parse().unwrap(), &wanted).unwrap().changed);
        let requests = requests.lock();
        let methods: Vec<_> = requests.iter().map(|(method, ..)| method.as_str()).collect();
        assert_eq!(methods, ["GET", "GET", "PATCH"]);
        assert!(
            requests[2].2.contains(r#""taints":[{"effect":"NoSchedule","key":"gpu"}]"#),
            "{}",
            requests[2].2
        );
    }
}
