//! The last applied spec, and how the wish differs from it.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};
use kubeon_api::{HostAddress, KubernetesCluster, KubernetesClusterSpec, labels};
use serde_json::{Value, json};

/// Fields whose change needs no work on a host.
const SILENT: &[&str] = &["authConfig", "timeout_mins", "nodeList"];

/// A spec as it may be written down: without key, password and what is about kubeon alone.
#[must_use]
pub fn without_secrets(spec: &KubernetesClusterSpec) -> KubernetesClusterSpec {
    let mut spec = spec.clone();
    spec.paused = false;
    spec.deletion_policy = None;
    if let Some(auth) = &mut spec.cluster.auth_config {
        auth.password = None;
        auth.private_ssh_key = None;
    }
    spec
}

/// The spec that was applied last; `None` when none was.
pub(super) fn applied(object: &KubernetesCluster) -> Result<Option<KubernetesClusterSpec>, String> {
    let annotations = object.metadata.annotations.as_ref();
    let text =
        annotations.and_then(|all| all.get(labels::APPLIED_SPEC)).map(String::as_str).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let read = serde_json::from_str(text);
    read.map(Some).map_err(|error| format!("annotation {} cannot be read: {error}", labels::APPLIED_SPEC))
}

/// How a wish differs from what was applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Difference {
    /// Workers that are new.
    pub added: Vec<DeclaredNode>,
    /// Workers that are no longer wanted.
    pub removed: Vec<DeclaredNode>,
    /// What cannot be changed yet, by name.
    pub refused: Vec<String>,
}

fn fields(cluster: &DeclaredCluster) -> BTreeMap<String, Value> {
    match json!(cluster) {
        Value::Object(fields) => {
            fields.into_iter().filter(|(key, _)| !SILENT.contains(&key.as_str())).collect()
        }
        _ => BTreeMap::new(),
    }
}

pub(super) fn difference(applied: &DeclaredCluster, wanted: &DeclaredCluster) -> Difference {
    let (before, now) = (fields(applied), fields(wanted));
    let mut refused: Vec<String> = before
        .keys()
        .chain(now.keys())
        .filter(|key| before.get(*key) != now.get(*key))
        .map(|key| format!("spec.cluster.{key}"))
        .collect();
    refused.sort();
    refused.dedup();
    let by_address = |list: &NodeList| -> BTreeMap<HostAddress, DeclaredNode> {
        list.iter().map(|node| (node.ip, node.clone())).collect()
    };
    let (old, new) = (by_address(&applied.node_list), by_address(&wanted.node_list));
    for (ip, node) in &new {
        let same = |before: &DeclaredNode| (&before.name, &before.labels) == (&node.name, &node.labels);
        if old.get(ip).is_some_and(|before| !same(before)) {
            refused.push(format!("name or labels of {ip} in spec.cluster.nodeList"));
        }
    }
    let only_in = |list: &NodeList, other: &BTreeMap<HostAddress, DeclaredNode>| {
        list.iter().filter(|node| !other.contains_key(&node.ip)).cloned().collect()
    };
    Difference {
        added: only_in(&wanted.node_list, &old),
        removed: only_in(&applied.node_list, &new),
        refused,
    }
}
