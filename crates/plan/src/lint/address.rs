//! Every host has a unique address, and every hosts file maps the name of a host to its address.

use kubeon_api::HostAddress;
use kubeon_wire::Op;

use super::finding::LintFinding;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, Step};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let texts = one_machine(plan, snapshot)
        .into_iter()
        .chain(plan.steps.iter().flat_map(|step| wrong_entries(step, plan)));
    texts.map(|text| LintFinding::fatal("address", text)).collect()
}

/// Two addresses of the plan that belong to the same machine: it would get two etcd members and two kubelets.
fn one_machine(plan: &Plan, snapshot: &Snapshot) -> Vec<String> {
    let mut texts = Vec::new();
    for address in plan.hosts.keys() {
        let Some(facts) = snapshot.hosts.get(address).and_then(Observation::fresh) else { continue };
        let others = facts.addresses.iter().map(|ip| HostAddress::from(*ip)).filter(|other| other > address);
        let others = others.filter(|other| plan.hosts.contains_key(other));
        texts.extend(others.map(|other| format!("{address} and {other} are addresses of one host")));
    }
    texts
}

/// Hosts entries that map a host's name to the address of another host.
fn wrong_entries(step: &Step, plan: &Plan) -> Vec<String> {
    let Op::Hosts { entries } = &step.op else { return Vec::new() };
    let name = |ip| plan.hosts.get(&HostAddress::from(ip)).map(|host| host.name.as_str());
    let mut texts = Vec::new();
    for entry in entries {
        let Some(own) = name(entry.address) else { continue };
        let others = entry.names.iter().filter(|other| {
            *other != own && plan.hosts.values().any(|host| host.name.as_str() == other.as_str())
        });
        texts.extend(others.map(|other| {
            format!("{} maps {other} to {}, which is the address of {own}", step.id, entry.address)
        }));
    }
    texts
}
