//! Which routes to remove and to add, computed from what is wanted and what is there.

use kubeon_api::{Cidr, ClusterName, HostAddress};

use crate::error::CloudError;

/// The pods of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRoute {
    /// The name of the node.
    pub node: String,
    /// The network of its pods.
    pub pods: Cidr,
    /// Its address in the network of the provider.
    pub address: HostAddress,
}

/// A route to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRoute {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) destination: String,
    /// What the provider takes: an address or the identifier of an instance.
    pub(crate) next_hop: String,
    pub(crate) node: String,
}

/// A route in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRoute {
    /// The identifier of the provider.
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) destination: String,
    pub(crate) next_hop: String,
}

/// The changes of one route table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    pub(crate) remove: Vec<FoundRoute>,
    pub(crate) add: Vec<WantedRoute>,
    /// Routes that are as they should be.
    pub(crate) kept: usize,
}

impl WantedRoute {
    pub(crate) fn new(cluster: &ClusterName, route: &NodeRoute, next_hop: String) -> Self {
        Self {
            name: format!("kubeon-{cluster}-pod-host-{}", route.node),
            description: format!("{}{}", owner(cluster), route.node),
            destination: route.pods.to_string(),
            next_hop,
            node: route.node.clone(),
        }
    }
}

/// How the description of every route of a cluster begins. Routes of the earlier program have the same.
fn owner(cluster: &ClusterName) -> String {
    format!("Routing rules set by kubeon for vpc, cluster: {cluster}, node: ")
}

/// The plan for the routes of one table.
///
/// # Errors
/// When a wanted destination has a route of somebody else.
pub(crate) fn plan(
    cluster: &ClusterName,
    table: &str,
    wanted: &[WantedRoute],
    found: &[FoundRoute],
) -> Result<RoutePlan, CloudError> {
    let owner = owner(cluster);
    let (ours, others): (Vec<_>, Vec<_>) =
        found.iter().partition(|route| route.description.starts_with(&owner));
    let foreign = |route: &&WantedRoute| others.iter().any(|other| other.destination == route.destination);
    if let Some(route) = wanted.iter().find(foreign) {
        return Err(CloudError::Foreign {
            table: table.to_owned(),
            destination: route.destination.clone(),
            node: route.node.clone(),
        });
    }
    let is_same = |wanted: &WantedRoute, found: &FoundRoute| {
        (&wanted.destination, &wanted.next_hop, &wanted.description)
            == (&found.destination, &found.next_hop, &found.description)
    };
    let (kept, remove): (Vec<_>, Vec<_>) =
        ours.into_iter().partition(|found| wanted.iter().any(|wanted| is_same(wanted, found)));
    let add = wanted.iter().filter(|wanted| !kept.iter().any(|found| is_same(wanted, found)));
    Ok(RoutePlan {
        add: add.cloned().collect(),
        remove: remove.into_iter().cloned().collect(),
        kept: kept.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        name.parse().unwrap()
    }

    fn wanted(node: &str, pods: &str, next_hop: &str) -> WantedRoute {
        let route = NodeRoute {
            node: node.to_owned(),
            pods: pods.parse().unwrap(),
            address: "10.0.0.1".parse().unwrap(),
        };
        WantedRoute::new(&cluster("demo"), &route, next_hop.to_owned())
    }

    fn found(id: &str, route: &WantedRoute) -> FoundRoute {
        FoundRoute {
            id: id.to_owned(),
            description: route.description.clone(),
            destination: route.destination.clone(),
            next_hop: route.next_hop.clone(),
        }
    }

    #[test]
    fn the_words_of_a_route_are_those_of_the_contract() {
        let route = wanted("w1", "10.96.1.0/24", "10.0.0.1");
        assert_eq!(route.name, "kubeon-demo-pod-host-w1");
        assert_eq!(route.description, "Routing rules set by kubeon for vpc, cluster: demo, node: w1");
    }

    #[test]
    fn what_is_missing_is_added_and_what_no_node_has_is_removed() {
        let (first, second) =
            (wanted("m1", "10.96.0.0/24", "10.0.0.1"), wanted("w1", "10.96.1.0/24", "10.0.0.2"));
        let (moved, gone) =
            (wanted("w1", "10.96.1.0/24", "10.0.0.9"), wanted("w2", "10.96.2.0/24", "10.0.0.3"));
        let there = [found("1", &first), found("2", &moved), found("3", &gone)];
        let plan = plan(&cluster("demo"), "rtb-1", &[first, second.clone()], &there).unwrap();
        assert_eq!(plan, RoutePlan { remove: there[1..].to_vec(), add: vec![second], kept: 1 });
    }

    #[test]
    fn routes_of_others_stay_and_are_not_overwritten() {
        let route = wanted("m1", "10.96.0.0/24", "10.0.0.1");
        let of = |description: &str, destination: &str| FoundRoute {
            description: description.to_owned(),
            destination: destination.to_owned(),
            ..found("1", &route)
        };
        // The name of this cluster begins that of the other one.
        let other = "Routing rules set by kubeon for vpc, cluster: demo-2, node: m1";
        let there = [of(other, "10.112.0.0/24"), of("", "0.0.0.0/0")];
        let planned = plan(&cluster("demo"), "rtb-1", std::slice::from_ref(&route), &there).unwrap();
        assert_eq!((planned.remove.len(), planned.add.len()), (0, 1));
        let taken = [of(other, "10.96.0.0/24")];
        let refused = plan(&cluster("demo"), "rtb-1", std::slice::from_ref(&route), &taken).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "route table rtb-1 has a foreign route to 10.96.0.0/24, the pods of m1: remove it first"
        );
    }
}
