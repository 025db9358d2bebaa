//! The hosts of a declaration, and lists of them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::unset;
use crate::addresses::LoginName;
use crate::labels::{LabelKey, LabelValue};
use crate::names::{HostAddress, HostName};
use crate::schema::{add_alias, or_empty};
use crate::words::words;

/// One host of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = finish_node)]
pub struct DeclaredNode {
    /// The host's address in the cluster's network; kubeon logs in there.
    pub ip: HostAddress,
    /// What the host is called as a node. Default: its own host name.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<HostName>")]
    pub name: Option<HostName>,
    /// The SSH port. Default: 22.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The account to log in with. Default: authConfig.username, else root.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<LoginName>")]
    pub user: Option<LoginName>,
    /// Labels of the node, at most 64.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "node_labels")]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// What older clients write beside the address. The list that holds the host decides; this is kept, not used.
    #[serde(
        default,
        alias = "role:omitempty",
        deserialize_with = "unset::when_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "or_empty::<Role>")]
    pub role: Option<Role>,
}

impl DeclaredNode {
    /// A host of which nothing but the address is said.
    #[must_use]
    pub fn at(ip: HostAddress) -> Self {
        Self { ip, name: None, port: None, user: None, labels: BTreeMap::new(), role: None }
    }
}

fn finish_node(schema: &mut Schema) {
    add_alias(schema, "role:omitempty", "role");
}

fn node_labels(generator: &mut SchemaGenerator) -> Schema {
    let (key, value) = (LabelKey::json_schema(generator), LabelValue::json_schema(generator));
    // API servers know no propertyNames; editors and the reader do.
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": value,
        "propertyNames": key
    })
}

words! {
    /// What older clients call a host's part in the cluster.
    Role {
        /// The master that was set up first.
        ControlPlane = "control-plane",
        /// A further master.
        SecondaryControlPlane = "secondary-control-plane",
        /// A worker.
        Worker = "worker",
    }
}

/// Hosts in the order of their declaration, each address once.
///
/// An entry that repeats another one word for word is dropped on reading, as the published sample has such entries;
/// two entries that differ for one address are refused, because either could be meant. An API server cannot tell the
/// two apart within its budget for 5000 hosts, so its schema lets both pass and the reader decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<DeclaredNode>", into = "Vec<DeclaredNode>")]
pub struct NodeList(Vec<DeclaredNode>);

/// Why hosts do not make a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeListError {
    /// Two entries for one address that do not say the same.
    #[error("{0} is listed twice with different settings; keep one entry")]
    Differs(HostAddress),
}

impl NodeList {
    /// Whether no host is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::ops::Deref for NodeList {
    type Target = [DeclaredNode];
    fn deref(&self) -> &[DeclaredNode] {
        &self.0
    }
}

impl TryFrom<Vec<DeclaredNode>> for NodeList {
    type Error = NodeListError;
    fn try_from(nodes: Vec<DeclaredNode>) -> Result<Self, NodeListError> {
        let mut seen = BTreeMap::<HostAddress, usize>::new();
        let mut kept: Vec<DeclaredNode> = Vec::with_capacity(nodes.len());
        for node in nodes {
            match seen.get(&node.ip).and_then(|&at| kept.get(at)) {
                None => {
                    seen.insert(node.ip, kept.len());
                    kept.push(node);
                }
                Some(first) if *first == node => {}
                Some(_) => return Err(NodeListError::Differs(node.ip)),
            }
        }
        Ok(Self(kept))
    }
}

impl From<NodeList> for Vec<DeclaredNode> {
    fn from(list: NodeList) -> Vec<DeclaredNode> {
        list.0
    }
}

impl JsonSchema for NodeList {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NodeList".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<DeclaredNode>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ip: &str) -> DeclaredNode {
        DeclaredNode::at(ip.parse().unwrap())
    }

    #[test]
    fn drops_repeated_entries_and_keeps_the_order() {
        let list = NodeList::try_from(vec![node("10.0.0.2"), node("10.0.0.1"), node("10.0.0.2")]).unwrap();
        let ips: Vec<String> = list.iter().map(|node| node.ip.to_string()).collect();
        assert_eq!(ips, ["10.0.0.2", "10.0.0.1"]);
    }

    #[test]
    fn refuses_two_entries_that_differ_for_one_address() {
        let other = DeclaredNode { port: Some(2222), ..node("10.0.0.2") };
        let error = NodeList::try_from(vec![node("10.0.0.2"), other]).unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.2 is listed twice with different settings; keep one entry");
    }
}
