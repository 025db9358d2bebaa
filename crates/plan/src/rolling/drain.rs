//! Drains around the restart of a kubelet with another minor version: pods are moved before, and may come back after the
//! node proved that it works.
//!
//! The node records the drain and the end of it, so that a later run makes a node schedulable again that an interrupted
//! run drained. A node that a user cordoned stays cordoned.

use std::collections::HashMap;

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::{JournalEntry, Op};
use sha2::{Digest as _, Sha256};

use super::group::RestartGroup;
use crate::context::{ObservedHost, PlanContext};
use crate::desired::join;
use crate::desired::kubelet_version::changes_minor;
use crate::desired::verify;
use crate::output::Step;
use crate::step_id::StepId;

const UNCORDON_SECONDS: u32 = 60;

/// The drains of a plan.
pub(super) struct Drains<'c> {
    /// The nodes that are drained, and whether they are schedulable again afterwards.
    drained: HashMap<HostAddress, (&'c ObservedHost<'c>, bool)>,
    /// Nodes that an earlier run drained and that are not drained again.
    left: Vec<&'c ObservedHost<'c>>,
}

impl<'c> Drains<'c> {
    /// The drains of the hosts that are interrupted. `kubelets` tells whether the kubelet of a host restarts.
    pub(super) fn of(
        context: &'c PlanContext<'c>,
        groups: &[RestartGroup<'c>],
        kubelets: impl Fn(HostAddress) -> bool,
    ) -> Self {
        let evicts = !context.intent.skip_evict && context.spec().nodes().nth(1).is_some();
        let held = groups.iter().flat_map(|group| &group.held);
        let is_drained = |host: &&&ObservedHost<'_>| {
            evicts && kubelets(host.address()) && changes_minor(context, &host.name) && lets_go(context, host)
        };
        let drained: HashMap<_, _> = held
            .filter(is_drained)
            .map(|host| (host.address(), (*host, !cordoned_by_user(context, &host.name))))
            .collect();
        let left = context.hosts.iter().filter(|host| !drained.contains_key(&host.address()));
        let left = left.filter(|host| was_left_drained(context, &host.name)).collect();
        Self { drained, left }
    }

    /// The step that drains a host before it is interrupted.
    pub(super) fn before(&self, host: HostAddress) -> Option<StepId> {
        self.drained.get(&host).map(|(host, _)| drain_id(&host.name))
    }

    /// The step that comes after the proof of a node and before the next one is interrupted.
    pub(super) fn after(&self, proof: &StepId) -> Option<StepId> {
        let mut drained = self.drained.values();
        let (host, _) = drained.find(|(host, again)| *again && verify::node_id(&host.name) == *proof)?;
        Some(join::uncordon_id(&host.name))
    }

    /// The steps. `gates` are the steps before a host may be interrupted.
    pub(super) fn steps(
        &self,
        context: &PlanContext<'_>,
        gates: &HashMap<HostAddress, Vec<StepId>>,
    ) -> Vec<Step> {
        let left: Vec<StepId> = self.left.iter().map(|host| join::uncordon_id(&host.name)).collect();
        let mut steps: Vec<Step> = self.left.iter().map(|host| end_left_drain(context, host)).collect();
        for (address, (host, again)) in &self.drained {
            let before = gates.get(address).into_iter().flatten().chain(&left).cloned().collect();
            steps.push(drain(context, host, *again, before));
            if *again {
                steps.push(uncordon(context, host, vec![verify::node_id(&host.name)]));
            }
        }
        steps.sort_by(|one, other| one.id.cmp(&other.id));
        steps
    }
}

fn drain_id(node: &HostName) -> StepId {
    StepId::of_cluster(join::STAGE, format!("drain-{node}"))
}

/// The records of the last drain of a node and of its end.
fn records<'c>(
    context: &'c PlanContext<'_>,
    node: &HostName,
) -> (Option<&'c JournalEntry>, Option<&'c JournalEntry>) {
    let of = |id: StepId| {
        let text = id.to_string();
        context.cluster_steps().into_iter().flatten().find(|entry| entry.id == text)
    };
    (of(drain_id(node)), of(join::uncordon_id(node)))
}

/// Whether pods can leave the node before it is interrupted: it is Ready, or it will be when the API server of its own host, which is
/// repaired before, answers again.
fn lets_go(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    let is_ready = context.node(&host.name).flatten().is_some_and(|node| node.ready);
    is_ready || host.facts.cluster.as_ref().is_some_and(|own| !own.api_ready)
}

/// Whether an earlier run began to drain the node and did not record that it is schedulable again.
fn was_left_drained(context: &PlanContext<'_>, node: &HostName) -> bool {
    let (drained, again) = records(context, node);
    drained.is_some_and(|drained| again.is_none_or(|again| again.digest != drained.digest))
}

fn cordoned_by_user(context: &PlanContext<'_>, node: &HostName) -> bool {
    let cordoned = context.node(node).flatten().is_some_and(|node| node.unschedulable);
    cordoned && !was_left_drained(context, node)
}

fn drain(context: &PlanContext<'_>, host: &ObservedHost<'_>, recorded: bool, needs: Vec<StepId>) -> Step {
    Step {
        title: format!("drain node {}, as disruption budgets allow", host.name),
        timeout_seconds: context.intent.drain_seconds,
        tries: 1,
        journal: recorded,
        ..step(context, host, drain_id(&host.name), Op::Drain { node: host.name.clone() }, needs)
    }
}

fn uncordon(context: &PlanContext<'_>, host: &ObservedHost<'_>, needs: Vec<StepId>) -> Step {
    let op = Op::Uncordon { node: host.name.clone() };
    Step {
        title: format!("let pods come back to node {}", host.name),
        ..step(context, host, join::uncordon_id(&host.name), op, needs)
    }
}

/// The end of a drain that an earlier run began, maybe on the way to another version: it is recorded as the end of that drain.
fn end_left_drain(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Step {
    let step = uncordon(context, host, Vec::new());
    let digest = records(context, &host.name).0.map(|drained| drained.digest.clone());
    Step { digest: digest.unwrap_or_else(|| step.digest.clone()), ..step }
}

/// A step through the API. The node records it with the version, so that each upgrade drains once.
fn step(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    id: StepId,
    op: Op,
    mut needs: Vec<StepId>,
) -> Step {
    needs.sort_unstable();
    needs.dedup();
    let version = context.node_version();
    Step {
        stage: id.stage(),
        id,
        host: context.executor().address(),
        title: String::new(),
        why: format!("its kubelet changes to {version}"),
        needs,
        digest: hex::encode(Sha256::digest(version.to_string())),
        timeout_seconds: UNCORDON_SECONDS,
        tries: 3,
        journal: true,
        record_in: Some(format!("/api/v1/nodes/{}", host.name)),
        destructive: false,
        op,
    }
}
