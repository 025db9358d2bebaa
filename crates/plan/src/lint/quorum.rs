//! Existing etcd members are changed one after another. They may be repaired in parallel only if the quorum
//! is known to be lost already.

use kubeon_api::{HostAddress, HostRole};

use super::finding::LintFinding;
use super::needs::unordered;
use crate::context::records;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, Step};
use crate::quorum::{Quorum, is_member, quorum};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let facts = |address: &HostAddress| snapshot.hosts.get(address).and_then(Observation::fresh);
    let existed = |step: &&Step| facts(&step.host).is_some_and(|facts| records(&facts.journal, &step.id));
    let masters = plan.hosts.iter().filter(|(_, host)| host.fence.role == HostRole::Master);
    if quorum(masters.filter_map(|(address, host)| Some((&host.name, facts(address)?)))) == Quorum::Lost {
        return Vec::new();
    }
    let changes: Vec<&Step> = plan.steps.iter().filter(|step| is_member(&step.id)).filter(existed).collect();
    unordered(plan, &changes)
        .map(|(one, other)| {
            let text = format!("{} and {} would change members at the same time", one.id, other.id);
            LintFinding::fatal("quorum", text)
        })
        .collect()
}
