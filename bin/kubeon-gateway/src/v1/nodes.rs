//! The workers of a request that scales a cluster.

use std::collections::BTreeSet;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};
use kubeon_api::{HostAddress, Operation};
use serde_json::{Map, Value};

use crate::request_error::RequestError;

/// Whether workers are added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScaleDirection {
    Up,
    Down,
}

impl ScaleDirection {
    /// The value of the annotation that requests it.
    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Up => Operation::ScalingUp,
            Self::Down => Operation::ScalingDown,
        }
    }
}

/// An error if the request changes masters or hosts of etcd.
pub(super) fn unchanged_lists(
    current: &DeclaredCluster,
    body: &Map<String, Value>,
) -> Result<(), RequestError> {
    for (field, current) in [("masterList", &current.master_list), ("etcdList", &current.etcd_list)] {
        let given = list_in(body, field)?;
        if !given.is_empty() && addresses(&given) != addresses(current) {
            return Err(RequestError::bad(format!("{field}: it cannot be changed by scaling; leave it out")));
        }
    }
    Ok(())
}

/// The workers after the request. Hosts that stay keep their settings. `None`: nothing changes.
pub(super) fn nodes_after(
    current: &DeclaredCluster,
    body: &Map<String, Value>,
    direction: ScaleDirection,
) -> Result<Option<Vec<DeclaredNode>>, RequestError> {
    let wanted = list_in(body, "nodeList")?;
    let (before, after) = (addresses(&current.node_list), addresses(&wanted));
    if before == after {
        return Ok(None);
    }
    let refused = |text: String| Err(RequestError::bad(format!("nodeList: {text}")));
    let list = |hosts: &mut dyn Iterator<Item = &HostAddress>| {
        hosts.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    match direction {
        ScaleDirection::Up if !before.is_subset(&after) => {
            return refused(format!(
                "{} is missing; scaleup needs the whole list, and only scaledown removes workers",
                list(&mut before.difference(&after))
            ));
        }
        ScaleDirection::Down if after.is_empty() => {
            return refused("the last worker cannot be removed; delete the cluster instead".to_owned());
        }
        ScaleDirection::Down if !after.is_subset(&before) => {
            return refused(format!(
                "{} is new; only scaleup adds workers",
                list(&mut after.difference(&before))
            ));
        }
        ScaleDirection::Up | ScaleDirection::Down => {}
    }
    let kept = |node: &DeclaredNode| current.node_list.iter().find(|old| old.ip == node.ip).cloned();
    Ok(Some(wanted.iter().map(|node| kept(node).unwrap_or_else(|| node.clone())).collect()))
}

fn addresses(nodes: &[DeclaredNode]) -> BTreeSet<HostAddress> {
    nodes.iter().map(|node| node.ip).collect()
}

fn list_in(body: &Map<String, Value>, field: &str) -> Result<NodeList, RequestError> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(NodeList::default()),
        Some(list) => serde_json::from_value(list.clone())
            .map_err(|error| RequestError::bad(format!("{field}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster() -> DeclaredCluster {
        serde_json::from_value(json!({
            "masterList": [{"ip": "10.0.0.1"}],
            "nodeList": [{"ip": "10.0.0.2", "port": 2222}, {"ip": "10.0.0.3"}],
        }))
        .unwrap()
    }

    fn after(nodes: &[&str], direction: ScaleDirection) -> Result<Option<Vec<DeclaredNode>>, RequestError> {
        let nodes: Vec<_> = nodes.iter().map(|ip| json!({"ip": ip, "role:omitempty": ""})).collect();
        let Value::Object(body) = json!({"nodeList": nodes}) else { unreachable!() };
        nodes_after(&cluster(), &body, direction)
    }

    fn refused(nodes: &[&str], direction: ScaleDirection) -> String {
        after(nodes, direction).unwrap_err().detail
    }

    #[test]
    fn b23_b24_a_list_is_only_accepted_in_its_direction() {
        assert_eq!(after(&["10.0.0.3", "10.0.0.2"], ScaleDirection::Up).unwrap(), None);
        assert!(refused(&["10.0.0.2", "10.0.0.4"], ScaleDirection::Up).contains("10.0.0.3 is missing"));
        assert!(refused(&["10.0.0.4"], ScaleDirection::Down).contains("10.0.0.4 is new"));
        assert!(refused(&[], ScaleDirection::Down).contains("the last worker"));
        let grown = after(&["10.0.0.2", "10.0.0.3", "10.0.0.4"], ScaleDirection::Up).unwrap().unwrap();
        assert_eq!((grown.len(), grown[0].port), (3, Some(2222)), "a worker that stays keeps its settings");
    }

    #[test]
    fn b24_masters_cannot_be_changed_by_scaling() {
        let with = |masters: Value| {
            let Value::Object(body) = json!({"masterList": masters}) else { unreachable!() };
            unchanged_lists(&cluster(), &body)
        };
        assert!(with(json!([{"ip": "10.0.0.1"}])).is_ok() && with(json!(null)).is_ok());
        assert!(with(json!([{"ip": "10.0.0.9"}])).unwrap_err().detail.starts_with("masterList:"));
    }
}
