//! Existing etcd members are changed one after another, also those that join or leave, and none that serves is restarted
//! if the others have no quorum. They may be repaired in parallel only if the quorum is known to be lost already.

use kubeon_api::{HostAddress, HostName, HostRole};
use kubeon_wire::{Facts, Op};

use super::finding::LintFinding;
use super::needs::unordered;
use crate::context::records;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, Step};
use crate::quorum::{Members, Quorum, is_member, serves};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let facts = |address: &HostAddress| snapshot.hosts.get(address).and_then(Observation::fresh);
    let existed = |step: &&Step| facts(&step.host).is_some_and(|facts| records(&facts.journal, &step.id));
    let roles = plan.hosts.values().map(|host| &host.fence.role);
    let mut roles = roles.chain(plan.unreachable.iter().map(|host| &host.role));
    let role = if roles.any(|role| *role == HostRole::Etcd) { HostRole::Etcd } else { HostRole::Master };
    let hosts = plan.hosts.iter().filter(|(_, host)| host.fence.role == role);
    let observed: Vec<(&HostName, &Facts)> =
        hosts.filter_map(|(address, host)| Some((&host.name, facts(address)?))).collect();
    let unreachable = plan.unreachable.iter().filter(|host| host.role == role);
    let members = Members::of(observed.iter().copied(), unreachable.map(|host| host.name.as_str()));
    if members.quorum() == Quorum::Lost {
        return Vec::new();
    }
    let changes = |step: &&Step| is_member(&step.id) && existed(step);
    let changes_members = |step: &&Step| {
        matches!(
            step.op,
            Op::JoinEtcd { .. } | Op::PromoteMember { .. } | Op::MoveMember { .. } | Op::RemoveMember { .. }
        )
    };
    let all: Vec<&Step> = plan.steps.iter().filter(|step| changes(step) || changes_members(step)).collect();
    let at_once = unordered(plan, &all)
        .map(|(one, other)| format!("{} and {} would change members at the same time", one.id, other.id));
    let may_restart = members.may_restart_one();
    let running = plan.steps.iter().filter(changes).filter(|step| {
        let member = step.id.host().and_then(|name| observed.iter().find(|(other, _)| *other == name));
        member.is_some_and(|(name, facts)| serves(name, facts) != Some(false))
    });
    let risky = running.filter(|_| !may_restart).map(|step| {
        let (available, total) = (members.available(), members.total());
        format!("{} would restart a member while only {available} of {total} can serve", step.id)
    });
    at_once.chain(risky).map(|text| LintFinding::fatal("quorum", text)).collect()
}
