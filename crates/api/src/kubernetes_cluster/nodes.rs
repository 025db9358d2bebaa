//! The hosts of a declaration and their lists.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::node_taint::{NodeTaint, node_taints};
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
    /// The address at which kubeon logs in to the host. It is also its address in the cluster's network, if the host has no
    /// internalAddress.
    pub ip: HostAddress,
    /// The host's own address in the cluster's network. Default: ip, or the one address of a host that does not own its ip.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<HostAddress>")]
    pub internal_address: Option<HostAddress>,
    /// The node name of the host. Default: its own host name.
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
    /// Taints of the node, at most 16. Taints that others set stay.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(schema_with = "node_taints")]
    pub taints: BTreeSet<NodeTaint>,
    /// The role that older clients write. It is kept and not used: the list that contains the host decides.
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
    /// A host with an address and no other field.
    #[must_use]
    pub fn at(ip: HostAddress) -> Self {
        Self {
            ip,
            internal_address: None,
            name: None,
            port: None,
            user: None,
            labels: BTreeMap::new(),
            taints: BTreeSet::new(),
            role: None,
        }
    }
}

fn finish_node(schema: &mut Schema) {
    add_alias(schema, "role:omitempty", "role");
}

fn node_labels(generator: &mut SchemaGenerator) -> Schema {
    let (key, value) = (LabelKey::json_schema(generator), LabelValue::json_schema(generator));
    // API servers ignore propertyNames; editors and the reader use it.
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": value,
        "propertyNames": key
    })
}

words! {
    /// The role of a host, in the words of older clients.
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
/// Reading drops an entry that is equal to an earlier one, because the published sample has such entries. Two different
/// entries for one address are refused. An API server cannot check this for 5000 hosts within its cost budget, so the schema
/// accepts both and the reader checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<DeclaredNode>", into = "Vec<DeclaredNode>")]
pub struct NodeList(Vec<DeclaredNode>);

/// Why hosts cannot form a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeListError {
    /// Two different entries for one address.
    #[error("{0} is listed twice with different settings; keep one entry")]
    Differs(HostAddress),
}

impl NodeList {
    /// Whether the list is empty.
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
        let mut index = BTreeMap::<HostAddress, usize>::new();
        let mut kept: Vec<DeclaredNode> = Vec::with_capacity(nodes.len());
        for node in nodes {
            match index.get(&node.ip).and_then(|&at| kept.get(at)) {
                None => {
                    index.insert(node.ip, kept.len());
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
