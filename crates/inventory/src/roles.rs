//! The role of each host, from the groups of kubespray in both spellings.

use std::collections::BTreeSet;

use crate::groups::Groups;
use crate::mistake::{InventoryFile, InventoryMistake};
use crate::variables::{Remarks, closest};

const MASTERS: &[&str] = &["kube_control_plane", "kube-control-plane", "kube_master", "kube-master"];
const WORKERS: &[&str] = &["kube_node", "kube-node"];
const ETCD: &[&str] = &["etcd"];
/// Groups without a role.
const NEUTRAL: &[&str] = &["all", "ungrouped", "k8s_cluster", "k8s-cluster"];
const REFLECTORS: &[&str] = &["calico_rr", "calico-rr"];
const BASTION: &[&str] = &["bastion"];

/// The names of hosts by role, each once, in order.
#[derive(Default)]
pub(crate) struct InventoryRoles {
    pub(crate) masters: Vec<String>,
    pub(crate) workers: Vec<String>,
    /// Empty when the masters run etcd.
    pub(crate) etcd: Vec<String>,
}

/// Gives every host its role.
pub(crate) fn assign(
    groups: &Groups,
    found: &mut Vec<InventoryMistake>,
    remarks: &mut Remarks,
) -> InventoryRoles {
    let (masters, workers, etcd) = (union(groups, MASTERS), union(groups, WORKERS), union(groups, ETCD));
    let roles: BTreeSet<&str> = masters.iter().chain(&workers).chain(&etcd).map(String::as_str).collect();
    refuse_groups(groups, found);
    unknown_groups(groups, &roles, found, remarks);
    for host in groups.hosts.iter().filter(|host| !roles.contains(host.name.as_str())) {
        let others: Vec<&str> =
            groups.groups.keys().map(String::as_str).filter(|name| !known(name)).collect();
        let of_others = others.iter().any(|name| groups.members(name).contains(&host.name.as_str()));
        let refused = [REFLECTORS, BASTION]
            .concat()
            .iter()
            .any(|name| groups.members(name).contains(&host.name.as_str()));
        if !of_others && !refused {
            let reason = "is in no group that gives it a role: kube_control_plane, kube_node or etcd";
            report(found, host.line, format!("host {}", host.name), reason.to_owned());
        }
    }
    if masters.is_empty() {
        let reason = "has no hosts; add at least one master to it";
        let line = groups.groups.get("kube_control_plane").map_or(1, |group| group.line);
        report(found, line, "group kube_control_plane".to_owned(), reason.to_owned());
    }
    let both: Vec<String> = workers.iter().filter(|host| masters.contains(host)).cloned().collect();
    let workers: Vec<String> = workers.into_iter().filter(|host| !both.contains(host)).collect();
    if !workers.is_empty() {
        for host in both {
            let meaning = "is in kube_control_plane and in kube_node: it becomes a master, and as there are workers, \
                           it takes no workloads of its own (kubectl taint changes that)";
            remarks.note(format!("host {host}"), meaning);
        }
    }
    let same = etcd.iter().collect::<BTreeSet<_>>() == masters.iter().collect();
    InventoryRoles { masters, workers, etcd: if same { Vec::new() } else { etcd } }
}

fn report(found: &mut Vec<InventoryMistake>, line: u64, subject: String, reason: String) {
    found.push(InventoryMistake { file: InventoryFile::Hosts, line, subject, reason });
}

fn known(name: &str) -> bool {
    [MASTERS, WORKERS, ETCD, NEUTRAL, REFLECTORS, BASTION].iter().any(|names| names.contains(&name))
}

fn union(groups: &Groups, names: &[&str]) -> Vec<String> {
    let mut unique = BTreeSet::new();
    let members = names.iter().flat_map(|name| groups.members(name));
    members.filter(|host| unique.insert(*host)).map(str::to_owned).collect()
}

/// Refuses known groups with roles that kubeon does not support.
fn refuse_groups(groups: &Groups, found: &mut Vec<InventoryMistake>) {
    let reasons = [
        (REFLECTORS, "names route reflectors of calico, and no bundle carries calico: leave it empty"),
        (BASTION, "names a host to log in through; kubeon logs in to every host directly: leave it out"),
    ];
    for (names, reason) in reasons {
        for name in names.iter().filter(|name| !groups.members(name).is_empty()) {
            let line = groups.groups.get(*name).map_or(1, |group| group.line);
            report(found, line, format!("group {name}"), reason.to_owned());
        }
    }
}

/// An unknown group is accepted when each of its hosts has a role; otherwise it was meant to give one.
fn unknown_groups(
    groups: &Groups,
    roles: &BTreeSet<&str>,
    found: &mut Vec<InventoryMistake>,
    remarks: &mut Remarks,
) {
    for (name, group) in groups.groups.iter().filter(|(name, _)| !known(name)) {
        let members = groups.members(name);
        let meant = closest(name, [MASTERS, WORKERS, ETCD].concat().into_iter());
        let lost: Vec<&str> = members.iter().filter(|host| !roles.contains(*host)).copied().collect();
        match (meant, lost.first()) {
            (Some(meant), _) => {
                let reason = format!("is unknown; did you mean {meant}?");
                report(found, group.line, format!("group {name}"), reason);
            }
            (None, Some(host)) => {
                let reason = format!(
                    "is unknown, and {host} is in no other: roles are kube_control_plane, kube_node and etcd"
                );
                report(found, group.line, format!("group {name}"), reason);
            }
            (None, None) => {
                remarks.note(format!("group {name}"), "kubeon does not know it: it gives no role of its own")
            }
        }
    }
}
