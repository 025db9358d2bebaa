//! Check of the address in the cluster's network: the host has it, and no other host of the cluster has it.

use kubeon_api::Remedy;

use super::rule::{Subject, Verdict};
use crate::cluster_address::{candidates, owns};

/// The host owns its cluster address. A host that is logged in to by the address of a router has another one.
pub(super) fn address(subject: &Subject<'_>) -> Verdict {
    let (spec, facts) = (subject.spec, subject.facts);
    let verdict = Verdict::good(spec.cluster_address().to_string(), "an address of the host itself");
    let others = candidates(facts);
    let foreign = match spec.internal_address {
        Some(internal) if !owns(facts, internal) => Some(format!(
            "does not have the cluster address {internal}; {}",
            choice(facts.addresses.iter().map(ToString::to_string).collect())
        )),
        None if !owns(facts, spec.address) && others.len() != 1 => Some(format!(
            "does not have the address {} itself, so it needs an internal address that the other hosts reach; {}",
            spec.address,
            choice(others.iter().map(ToString::to_string).collect())
        )),
        _ => None,
    };
    let same = subject.host_conflicts.same_cluster_address(spec).map(|other| {
        format!(
            "has the same cluster address {} as {other}; hosts need different ones",
            spec.cluster_address()
        )
    });
    verdict.error(foreign.or(same)).remedy(Remedy::SetInternalAddress(spec.address))
}

fn choice(addresses: Vec<String>) -> String {
    if addresses.is_empty() {
        return "it has no other address".to_owned();
    }
    format!("its own addresses are {}", addresses.join(", "))
}
