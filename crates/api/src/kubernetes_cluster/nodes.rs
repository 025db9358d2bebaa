//! Lists of hosts.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::spec::DeclaredNode;
use crate::names::HostAddress;

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
        let mut seen = std::collections::BTreeMap::<HostAddress, usize>::new();
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
