//! A node in a list of the API server. Only what is reported is kept of it: the images on a node alone are several KiB.

use std::collections::BTreeMap;

use kubeon_wire::{JournalEntry, NodeFact, ResultState};
use serde::Deserialize;

use super::node_certificates;
use crate::cluster_record;

/// One answer of a list of nodes.
#[derive(Deserialize)]
pub(super) struct NodePage {
    #[serde(default)]
    metadata: PageMetadata,
    pub(super) items: Vec<ListedNode>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
pub(super) struct ListedNode {
    metadata: NodeMetadata,
    #[serde(default)]
    spec: ListedNodeSpec,
    #[serde(default)]
    status: ListedNodeStatus,
}

#[derive(Deserialize)]
struct NodeMetadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct ListedNodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListedNodeStatus {
    conditions: Vec<ListedCondition>,
    addresses: Vec<ListedAddress>,
    node_info: KubeletInfo,
}

#[derive(Deserialize)]
struct ListedCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: Option<String>,
}

#[derive(Deserialize)]
struct ListedAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeletInfo {
    kubelet_version: String,
}

impl NodePage {
    /// The token of the next page; empty if there is none.
    pub(super) fn next(&self) -> &str {
        &self.metadata.next
    }
}

impl ListedNode {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The steps that the node records.
    pub(super) fn steps(&self) -> impl Iterator<Item = JournalEntry> {
        let annotations = self.metadata.annotations.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        cluster_record::entries_in(annotations).map(|entry| JournalEntry {
            id: entry.id,
            digest: entry.digest,
            state: ResultState::UpToDate,
        })
    }

    pub(super) fn fact(&self) -> NodeFact {
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready");
        let is_ready = ready.is_some_and(|condition| condition.status == "True");
        let reason = ready.and_then(|condition| condition.message.as_deref()).unwrap_or("has not reported");
        let internal = self.status.addresses.iter().filter(|address| address.kind == "InternalIP");
        let shown = self.metadata.annotations.get(node_certificates::ANNOTATION);
        NodeFact {
            ready: is_ready,
            reason: if is_ready { String::new() } else { reason.to_owned() },
            kubelet: self.status.node_info.kubelet_version.clone(),
            addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
            unschedulable: self.spec.unschedulable,
            certificates: shown.map(|text| node_certificates::read(text)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_nodes_of_the_api_server() {
        let first = r#"{"first": {"path": "/x.crt", "notBefore": 1, "notAfter": 2}}"#;
        let metadata =
            serde_json::json!({"name": "h1", "annotations": {"kubeon.io/certificates": first, "a": "b"}});
        let item = serde_json::json!({"metadata": metadata, "spec": {"unschedulable": true}, "status": {
            "conditions": [{"type": "Ready", "status": "False", "message": "network not ready"}],
            "addresses": [{"type": "Hostname", "address": "h1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "images": [{"names": ["x"], "sizeBytes": 1}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"}}});
        let page = serde_json::json!({"metadata": {"resourceVersion": "7"}, "items": [item]});
        let page: NodePage = serde_json::from_value(page).unwrap();
        assert_eq!((page.next(), page.items[0].name()), ("", "h1"));
        let fact = page.items[0].fact();
        assert!(!fact.ready && fact.unschedulable);
        assert_eq!((fact.reason.as_str(), fact.kubelet.as_str()), ("network not ready", "v1.36.3"));
        assert_eq!(fact.addresses, ["10.0.0.1".parse::<std::net::Ipv4Addr>().unwrap()]);
        assert_eq!(fact.certificates.first.unwrap().path, "/x.crt");
        assert_eq!(page.items[0].steps().count(), 0, "another annotation");
    }
}
