//! The order in which nodes that work are interrupted: the masters one after another, then a limited number of workers
//! at a time. The next node is interrupted only after the one before it proved that it works again.
//!
//! Only steps that restart something wait. Files and parts are written on all hosts at once, and hosts that run no node
//! yet are created as fast as before. A node that another run interrupted is in no list: so every node of the cluster
//! proves that it works before any other is interrupted.
//!
//! If the kubelet of a node changes to another minor version, the masters have two places in the order: first their control planes,
//! one after another, then their nodes. A kubelet that does not run starts only after these control planes, which do not wait for it.

mod api_stop;
mod drain;
mod group;
pub(crate) mod part;
pub(crate) mod restart;

use std::collections::{HashMap, HashSet};

use kubeon_api::HostAddress;
use kubeon_wire::{Check, Facts, Op};

use crate::context::{ObservedHost, PlanContext};
use crate::desired::join::{self, ready_id};
use crate::desired::kubelet_version::may_change_minor;
use crate::desired::verify;
use crate::output::{RollingGroup, RollingPart, Step};
use crate::sort;
use crate::step_id::StepId;
use drain::Drains;
use group::{RestartGroup, control_planes_first, groups};
use part::is_control_plane;
use restart::{interrupts, takes_effect};

/// Seconds for a proof: a kubelet renews its Lease every ten seconds.
const PROOF_SECONDS: u32 = 120;

/// Orders the steps that interrupt nodes, and adds the proofs. Returns the steps and the order of the hosts.
pub(crate) fn order(context: &PlanContext<'_>, mut steps: Vec<Step>) -> (Vec<Step>, Vec<RollingGroup>) {
    let facts: HashMap<HostAddress, &Facts> =
        context.hosts.iter().map(|host| (host.address(), host.facts)).collect();
    let is_interruption = |step: &Step| facts.get(&step.host).is_some_and(|facts| interrupts(step, facts));
    let groups = groups_of(context, &steps, is_interruption);
    let is_kubelet = |step: &Step| is_interruption(step) && join::is_kubelet(&step.id);
    let kubelets: HashSet<HostAddress> =
        steps.iter().filter(|step| is_kubelet(step)).map(|step| step.host).collect();
    let drains = Drains::of(context, &groups, |host| kubelets.contains(&host));
    if groups.iter().all(|group| group.held.is_empty()) {
        steps.extend(drains.steps(context, &HashMap::new()));
        return (steps, Vec::new());
    }
    let held: HashSet<HostSide> = groups.iter().flat_map(held_sides).collect();
    let waits = |step: &Step| held.contains(&(step.host, is_control_plane(step))) && is_interruption(step);
    api_stop::add(context, &mut steps, &waits);
    let proofs = proofs(context, &groups, &steps);
    steps.extend(proofs);
    cut_needs_on_later_hosts(&mut steps, &levels(&groups), &waits);
    let mut gates = gates(&groups);
    for gate in gates.values_mut() {
        let after: Vec<StepId> = gate.iter().filter_map(|proof| drains.after(proof)).collect();
        gate.extend(after);
    }
    let is_apart = groups.iter().any(|group| group.part == RollingPart::ControlPlane);
    for step in steps.iter_mut().filter(|step| waits(step)) {
        let side = is_control_plane(step);
        step.needs.extend(gates.get(&(step.host, side)).into_iter().flatten().cloned());
        step.needs.extend(drains.before(step.host).filter(|_| !(side && is_apart)));
        step.needs.sort_unstable();
        step.needs.dedup();
    }
    let of_nodes = gates.into_iter().filter(|((_, side), _)| !*side);
    steps.extend(drains.steps(context, &of_nodes.map(|((host, _), gate)| (host, gate)).collect()));
    (
        sort::by_needs(steps),
        groups.iter().filter(|group| !group.held.is_empty()).map(RestartGroup::planned).collect(),
    )
}

/// The hosts that are interrupted, by the steps that do so.
fn groups_of<'c>(
    context: &'c PlanContext<'c>,
    steps: &[Step],
    is_interruption: impl Fn(&Step) -> bool,
) -> Vec<RestartGroup<'c>> {
    let mut interrupted: HashMap<HostAddress, usize> = HashMap::new();
    let (mut planes, mut nodes) = (HashSet::new(), HashSet::new());
    for step in steps.iter().filter(|step| is_interruption(step)) {
        *interrupted.entry(step.host).or_default() += 1;
        let side = if is_control_plane(step) { &mut planes } else { &mut nodes };
        side.insert(step.host);
    }
    // A stopped program that starts is no interruption, but the next control plane waits for it, too.
    let starts = steps.iter().filter(|step| takes_effect(step) && is_control_plane(step));
    planes.extend(starts.map(|step| step.host).filter(|host| interrupted.contains_key(host)));
    let changed: HashSet<HostAddress> = steps.iter().map(|step| step.host).collect();
    let [masters, workers] = groups(context, &interrupted, &changed);
    let kubelets: HashSet<HostAddress> =
        steps.iter().filter(|step| join::is_kubelet(&step.id)).map(|step| step.host).collect();
    let mut changed_kubelets = context.hosts.iter().filter(|host| kubelets.contains(&host.address()));
    let minor = changed_kubelets.any(|host| may_change_minor(context, host));
    if minor && context.masters().nth(1).is_some() {
        let [first, second] = control_planes_first(&masters, &planes, &nodes);
        return vec![first, second, workers];
    }
    vec![masters, workers]
}

/// A host, and whether its control plane is meant or its node.
type HostSide = (HostAddress, bool);

/// What is interrupted in order on the hosts of the group.
fn held_sides<'g>(group: &'g RestartGroup<'_>) -> impl Iterator<Item = HostSide> + 'g {
    let sides = group.part.sides();
    group.held.iter().flat_map(move |host| sides.iter().map(move |side| (host.address(), *side)))
}

/// The position of each host in the order. Hosts with the same position may be interrupted at the same time.
fn levels(groups: &[RestartGroup<'_>]) -> HashMap<HostSide, usize> {
    let (mut levels, mut next) = (HashMap::new(), 0);
    for group in groups {
        for side in group.part.sides() {
            levels.extend(group.first.iter().map(|host| ((host.address(), *side), next)));
            let positions = group.held.iter().enumerate();
            levels.extend(
                positions.map(|(index, host)| ((host.address(), *side), next + 1 + index / group.at_once)),
            );
        }
        next += 1 + group.held.len().div_ceil(group.at_once);
    }
    levels
}

/// The proofs that must be there before a host is interrupted.
fn gates(groups: &[RestartGroup<'_>]) -> HashMap<HostSide, Vec<StepId>> {
    let mut gates: HashMap<HostSide, Vec<StepId>> = HashMap::new();
    let mut last: Vec<StepId> = Vec::new();
    for group in groups {
        let heads = group.at_once.min(group.held.len());
        for (index, host) in group.held.iter().enumerate() {
            let before: Vec<StepId> = match index.checked_sub(group.at_once) {
                Some(before) => vec![group.proof_id(group.held[before])],
                // Each chain waits for its share of the hosts that are not interrupted.
                None => {
                    let share = group.first.iter().skip(index).step_by(heads);
                    last.iter().cloned().chain(share.map(|host| group.proof_id(host))).collect()
                }
            };
            gates.extend(group.part.sides().iter().map(|side| ((host.address(), *side), before.clone())));
        }
        if group.held.is_empty() {
            // They wait for nothing, so what comes next waits for the group before, too.
            last.extend(group.first.iter().map(|host| group.proof_id(host)));
        } else {
            let chains = &group.held[group.held.len() - heads..];
            last = chains.iter().map(|host| group.proof_id(host)).collect();
        }
    }
    gates
}

/// Removes needs on interruptions of hosts that come later. What these steps need of such a host runs there already,
/// with its old content.
fn cut_needs_on_later_hosts(
    steps: &mut [Step],
    levels: &HashMap<HostSide, usize>,
    waits: &impl Fn(&Step) -> bool,
) {
    let indexes: HashMap<StepId, usize> =
        steps.iter().enumerate().map(|(index, step)| (step.id.clone(), index)).collect();
    let level = |step: &Step| {
        let is_proof = verify::is_node_proof(&step.id) || verify::is_control_plane_proof(&step.id);
        let ordered = waits(step) || is_proof;
        levels.get(&(step.host, is_control_plane(step))).copied().filter(|_| ordered)
    };
    let own: Vec<Option<usize>> = steps.iter().map(level).collect();
    // The lowest position among the steps that need a step.
    let mut before: Vec<usize> = vec![usize::MAX; steps.len()];
    for index in (0..steps.len()).rev() {
        let limit = own[index].unwrap_or(before[index]);
        steps[index].needs.retain(|need| {
            let Some(need) = indexes.get(need).copied() else { return true };
            if own[need].is_some_and(|level| level > limit) {
                return false;
            }
            before[need] = before[need].min(limit);
            true
        });
    }
}

/// The proof of every host of the groups. It comes after everything that starts or selects a program there.
fn proofs(context: &PlanContext<'_>, groups: &[RestartGroup<'_>], steps: &[Step]) -> Vec<Step> {
    let mut starts: HashMap<HostAddress, Vec<&Step>> = HashMap::new();
    for step in steps.iter().filter(|step| takes_effect(step)) {
        starts.entry(step.host).or_default().push(step);
    }
    let planned: HashSet<&StepId> = steps.iter().map(|step| &step.id).collect();
    let proof = |group: &RestartGroup<'_>, host: &ObservedHost<'_>, interrupted: bool| {
        let of_host = starts.get(&host.address()).into_iter().flatten();
        // A node works only if its control plane does, too.
        let all = group.part != RollingPart::ControlPlane;
        let own = of_host.filter(|step| all || is_control_plane(step));
        let mut needs: Vec<StepId> = own.map(|step| step.id.clone()).collect();
        needs.extend(Some(ready_id(&host.name)).filter(|ready| all && planned.contains(ready)));
        needs.sort_unstable();
        if !all {
            return control_plane_proof(host, needs);
        }
        let kubelet = join::kubelet_id(host);
        let version = planned.contains(&kubelet).then_some(context.node_version());
        node_proof(host, interrupted, verify::node_works(context, host, version), needs)
    };
    let all = groups.iter().flat_map(|group| {
        let first = group.first.iter().map(move |host| (group, *host, false));
        first.chain(group.held.iter().map(move |host| (group, *host, true)))
    });
    all.map(|(group, host, interrupted)| proof(group, host, interrupted)).collect()
}

fn node_proof(host: &ObservedHost<'_>, interrupted: bool, check: Check, needs: Vec<StepId>) -> Step {
    let (more, why) = if interrupted {
        (" after its restart", "the next node waits for it")
    } else {
        ("", "no other node is interrupted before")
    };
    let title = format!("node {} works{more}", host.name);
    proof(host, verify::node_id(&host.name), (title, why), check, needs)
}

fn control_plane_proof(host: &ObservedHost<'_>, needs: Vec<StepId>) -> Step {
    let title = format!("the control plane on {} works", host.name);
    let why = "no other master and no kubelet is interrupted before";
    proof(host, verify::control_plane_id(&host.name), (title, why), verify::control_plane_works(), needs)
}

fn proof(
    host: &ObservedHost<'_>,
    id: StepId,
    (title, why): (String, &str),
    check: Check,
    needs: Vec<StepId>,
) -> Step {
    Step {
        stage: id.stage(),
        id,
        host: host.address(),
        title,
        why: why.to_owned(),
        needs,
        digest: String::new(),
        timeout_seconds: PROOF_SECONDS,
        tries: 1,
        journal: false,
        record_in: None,
        destructive: false,
        op: Op::Await { checks: vec![check] },
    }
}
