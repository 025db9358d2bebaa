//! The hosts of a cluster, merged from all lists.

use std::collections::{BTreeMap, BTreeSet};

use super::node_taint::NodeTaint;
use super::nodes::{DeclaredNode, NodeList};
use super::spec::DeclaredCluster;
use crate::addresses::LoginName;
use crate::labels::{LabelKey, LabelValue};
use crate::names::{HostAddress, HostName};

/// One host, merged from all lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The address to log in at.
    pub ip: HostAddress,
    /// Its own address in the cluster's network, if it is declared.
    pub internal_address: Option<HostAddress>,
    /// The node name; the host name of the machine when `None`.
    pub name: Option<HostName>,
    /// The SSH port.
    pub port: u16,
    /// The account to log in with; the account of the credentials when `None`.
    pub user: Option<LoginName>,
    /// Labels of the node.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Taints of the node.
    pub taints: BTreeSet<NodeTaint>,
    /// The roles of the host.
    pub roles: Roles,
}

/// The roles of a host in the cluster; at least one is true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles {
    /// Runs the control plane.
    pub master: bool,
    /// Runs workloads.
    pub worker: bool,
    /// Runs etcd.
    pub etcd: bool,
}

/// Two lists contradict each other about a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostConflict {
    /// Both lists set the field, to different values.
    #[error("{ip}: {field} in {first} and in {second} differ; set it in one list only")]
    Differs {
        /// The host.
        ip: HostAddress,
        /// The field that differs.
        field: &'static str,
        /// The first list that sets the field.
        first: &'static str,
        /// The list that contradicts it.
        second: &'static str,
    },
    /// The host is a master and a worker.
    #[error("{0} is in masterList and in nodeList; a host has one role")]
    TwoRoles(HostAddress),
}

impl DeclaredCluster {
    /// The hosts of etcd: `etcdList`, or the masters when it is empty.
    #[must_use]
    pub fn etcd(&self) -> &NodeList {
        if self.etcd_list.is_empty() { &self.master_list } else { &self.etcd_list }
    }

    /// Name, labels, taints and login of each host, merged from all lists. When lists contradict each other, the value of the first
    /// list is used; [`Self::hosts`] refuses such lists.
    #[must_use]
    pub fn by_address(&self) -> BTreeMap<HostAddress, DeclaredNode> {
        let mut hosts = BTreeMap::<HostAddress, DeclaredNode>::new();
        let lists = [&self.master_list, &self.node_list, &self.etcd_list];
        for node in lists.into_iter().flat_map(|list| list.iter()) {
            let host = hosts.entry(node.ip).or_insert_with(|| DeclaredNode::at(node.ip));
            host.internal_address = host.internal_address.or(node.internal_address);
            host.name = host.name.take().or_else(|| node.name.clone());
            host.port = host.port.or(node.port);
            host.user = host.user.take().or_else(|| node.user.clone());
            for (key, value) in &node.labels {
                host.labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
            if host.taints.is_empty() {
                host.taints.clone_from(&node.taints);
            }
        }
        hosts
    }

    /// Every host once: the masters, the workers, then hosts that only run etcd, in the order of their lists. Without an
    /// `etcdList` the masters run etcd.
    ///
    /// # Errors
    /// When two lists contradict each other about a host.
    pub fn hosts(&self) -> Result<Vec<Host>, HostConflict> {
        let lists: [(&'static str, &NodeList, Roles); 3] = [
            ("masterList", &self.master_list, Roles { master: true, ..Roles::default() }),
            ("nodeList", &self.node_list, Roles { worker: true, ..Roles::default() }),
            ("etcdList", self.etcd(), Roles { etcd: true, ..Roles::default() }),
        ];
        let mut merged = Merged::default();
        for (list, nodes, roles) in lists {
            for node in nodes.iter() {
                merged.add(list, node, roles)?;
            }
        }
        Ok(merged.hosts.into_iter().map(|(_, node, roles)| host(node, roles)).collect())
    }
}

fn host(node: DeclaredNode, roles: Roles) -> Host {
    Host {
        ip: node.ip,
        internal_address: node.internal_address,
        name: node.name,
        port: node.port.unwrap_or(super::defaults::SSH_PORT),
        user: node.user,
        labels: node.labels,
        taints: node.taints,
        roles,
    }
}

#[derive(Default)]
struct Merged {
    hosts: Vec<(&'static str, DeclaredNode, Roles)>,
    index: BTreeMap<HostAddress, usize>,
}

impl Merged {
    fn add(&mut self, list: &'static str, node: &DeclaredNode, roles: Roles) -> Result<(), HostConflict> {
        let Some((first, known, known_roles)) =
            self.index.get(&node.ip).and_then(|&at| self.hosts.get_mut(at))
        else {
            self.index.insert(node.ip, self.hosts.len());
            self.hosts.push((list, node.clone(), roles));
            return Ok(());
        };
        if known_roles.master && roles.worker {
            return Err(HostConflict::TwoRoles(node.ip));
        }
        let first: &'static str = first;
        let differs = |field| HostConflict::Differs { ip: node.ip, field, first, second: list };
        if !merge(&mut known.internal_address, &node.internal_address) {
            return Err(differs("internalAddress"));
        }
        if !merge(&mut known.name, &node.name) {
            return Err(differs("name"));
        }
        if !merge(&mut known.port, &node.port) {
            return Err(differs("port"));
        }
        if !merge(&mut known.user, &node.user) {
            return Err(differs("user"));
        }
        for (key, value) in &node.labels {
            let existing = known.labels.entry(key.clone()).or_insert_with(|| value.clone());
            if existing != value {
                return Err(differs("labels"));
            }
        }
        if known.taints.is_empty() {
            known.taints.clone_from(&node.taints);
        } else if !node.taints.is_empty() && known.taints != node.taints {
            return Err(differs("taints"));
        }
        *known_roles = Roles {
            master: known_roles.master,
            worker: known_roles.worker || roles.worker,
            etcd: known_roles.etcd || roles.etcd,
        };
        Ok(())
    }
}

/// Copies `other` into an empty `known`; false when both are set and differ.
fn merge<T: Clone + PartialEq>(known: &mut Option<T>, other: &Option<T>) -> bool {
    match (&*known, other) {
        (Some(known), Some(other)) => known == other,
        (None, Some(other)) => {
            *known = Some(other.clone());
            true
        }
        (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(nodes: &[DeclaredNode]) -> NodeList {
        NodeList::try_from(nodes.to_vec()).unwrap()
    }

    fn node(ip: &str) -> DeclaredNode {
        DeclaredNode::at(ip.parse().unwrap())
    }

    #[test]
    fn lists_every_host_once_with_all_its_roles() {
        let cluster = DeclaredCluster {
            master_list: list(&[node("10.0.0.1")]),
            node_list: list(&[node("10.0.0.2")]),
            etcd_list: list(&[DeclaredNode { port: Some(2222), ..node("10.0.0.2") }, node("10.0.0.3")]),
            ..DeclaredCluster::default()
        };
        let hosts = cluster.hosts().unwrap();
        let shown: Vec<_> =
            hosts.iter().map(|h| (h.ip.to_string(), h.port, h.roles.worker, h.roles.etcd)).collect();
        assert_eq!(
            shown,
            [
                ("10.0.0.1".to_owned(), 22, false, false),
                ("10.0.0.2".to_owned(), 2222, true, true),
                ("10.0.0.3".to_owned(), 22, false, true)
            ]
        );
    }

    #[test]
    fn puts_etcd_on_the_masters_without_an_etcd_list() {
        let cluster =
            DeclaredCluster { master_list: list(&[node("10.0.0.1")]), ..DeclaredCluster::default() };
        assert_eq!(cluster.hosts().unwrap()[0].roles, Roles { master: true, worker: false, etcd: true });
    }

    #[test]
    fn refuses_lists_that_contradict_each_other() {
        let named = |name: &str| DeclaredNode { name: Some(name.parse().unwrap()), ..node("10.0.0.1") };
        let cluster = DeclaredCluster {
            master_list: list(&[named("a")]),
            etcd_list: list(&[named("b")]),
            ..DeclaredCluster::default()
        };
        let error = cluster.hosts().unwrap_err();
        assert_eq!(
            error.to_string(),
            "10.0.0.1: name in masterList and in etcdList differ; set it in one list only"
        );
        let both = DeclaredCluster {
            master_list: list(&[node("10.0.0.1")]),
            node_list: list(&[node("10.0.0.1")]),
            ..DeclaredCluster::default()
        };
        assert_eq!(
            both.hosts().unwrap_err().to_string(),
            "10.0.0.1 is in masterList and in nodeList; a host has one role"
        );
    }
}
