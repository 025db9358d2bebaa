//! The hosts that are interrupted, in order, and those that must work before.

use std::collections::{HashMap, HashSet};

use kubeon_api::{HostAddress, HostRole};

use super::restart::{NodeState, node_state};
use crate::context::{ObservedHost, PlanContext};
use crate::desired::etcd;
use crate::output::{RollingGroup, RollingPart};
use crate::quorum;
use crate::step_id::StepId;

/// Hosts of one role.
pub(super) struct RestartGroup<'c> {
    /// Hosts that prove that they work before another one is interrupted: those that are not interrupted, and those
    /// whose node is not Ready, which have nothing to lose.
    pub(super) first: Vec<&'c ObservedHost<'c>>,
    /// The hosts that are interrupted, in order.
    pub(super) held: Vec<&'c ObservedHost<'c>>,
    /// How many of them may be interrupted at the same time.
    pub(super) at_once: usize,
    /// Which interruptions of them have this order.
    pub(super) part: RollingPart,
}

impl RestartGroup<'_> {
    pub(super) fn planned(&self) -> RollingGroup {
        let hosts = self.held.iter().map(|host| host.address()).collect();
        RollingGroup { hosts, at_once: self.at_once, part: self.part }
    }

    /// The proof of a host of the group.
    pub(super) fn proof_id(&self, host: &ObservedHost<'_>) -> StepId {
        self.part.proof_id(&host.name)
    }
}

/// The masters, then the workers. `interrupted` counts the steps of each host that interrupt its node, `changed` are the
/// hosts with any step.
pub(super) fn groups<'c>(
    context: &'c PlanContext<'c>,
    interrupted: &HashMap<HostAddress, usize>,
    changed: &HashSet<HostAddress>,
) -> [RestartGroup<'c>; 2] {
    let mut masters = group(context, context.masters().collect(), interrupted);
    if etcd::has_lost_quorum(context) && !context.has_external_etcd() {
        masters.at_once = masters.held.len().max(1);
    }
    let mut workers = group(context, context.workers().collect(), interrupted);
    workers.at_once = allowed(context, &mut workers, changed);
    let has_member_down = |host: &ObservedHost<'_>| {
        host.role == context.spec().member_role() && quorum::serves(&host.name, host.facts) == Some(false)
    };
    for group in [&mut masters, &mut workers] {
        // Masters whose etcd member is down come first, as in the order of the members. Then hosts with fewer steps: a
        // run that was killed may have left them in the middle.
        group.held.sort_by_key(|host| (!has_member_down(host), interrupted.get(&host.address())));
    }
    [masters, workers]
}

/// The same masters in two groups: first the control planes of all of them, then their nodes. `planes` are the hosts whose control
/// plane is interrupted, `nodes` those whose node is. A master that is repaired first has its node interrupted in order, too: by then it
/// has something to lose.
pub(super) fn control_planes_first<'c>(
    masters: &RestartGroup<'c>,
    planes: &HashSet<HostAddress>,
    nodes: &HashSet<HostAddress>,
) -> [RestartGroup<'c>; 2] {
    let all = masters.first.iter().chain(&masters.held).copied();
    let (held, first): (Vec<_>, Vec<_>) = all.partition(|host| nodes.contains(&host.address()));
    let held_planes = masters.held.iter().copied().filter(|host| planes.contains(&host.address()));
    let at_once = masters.at_once;
    [
        RestartGroup {
            first: masters.first.clone(),
            held: held_planes.collect(),
            at_once,
            part: RollingPart::ControlPlane,
        },
        RestartGroup { first, held, at_once, part: RollingPart::Node },
    ]
}

fn group<'c>(
    context: &'c PlanContext<'c>,
    hosts: Vec<&'c ObservedHost<'c>>,
    interrupted: &HashMap<HostAddress, usize>,
) -> RestartGroup<'c> {
    let mut group = RestartGroup { first: Vec::new(), held: Vec::new(), at_once: 1, part: RollingPart::All };
    for host in hosts {
        match state(context, host) {
            NodeState::Absent => {}
            NodeState::Works if interrupted.contains_key(&host.address()) => group.held.push(host),
            NodeState::NotReady | NodeState::Works => group.first.push(host),
        }
    }
    group
}

fn state(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> NodeState {
    let reports = context.masters().filter_map(|master| master.facts.cluster.as_ref());
    match node_state(&host.name, host.facts, reports) {
        NodeState::NotReady if lacks_only_etcd(context, host) => NodeState::Works,
        state => state,
    }
}

/// Whether the API server of a master does not serve because etcd on its own hosts has no quorum. It serves again when etcd does, which
/// is before anything restarts on masters.
fn lacks_only_etcd(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    host.role == HostRole::Master && context.has_external_etcd() && etcd::has_lost_quorum(context)
}

/// How many workers may be interrupted at the same time. Workers that do not answer count. Workers that are not Ready
/// and that the plan does not change count too, or, if there are too many of them, all others wait for their proof.
fn allowed(
    context: &PlanContext<'_>,
    workers: &mut RestartGroup<'_>,
    changed: &HashSet<HostAddress>,
) -> usize {
    let limit = context.intent.max_unavailable.of(context.spec().workers.len());
    let away = context.unreachable.iter().filter(|host| host.role == HostRole::Worker).count();
    let is_broken = |host: &&ObservedHost<'_>| {
        !changed.contains(&host.address()) && state(context, host) == NodeState::NotReady
    };
    let broken = workers.first.iter().filter(|host| is_broken(host)).count();
    let counted = if away + broken < limit { broken } else { 0 };
    if counted > 0 {
        workers.first.retain(|host| !is_broken(host));
    }
    limit.saturating_sub(away + counted).max(1)
}
