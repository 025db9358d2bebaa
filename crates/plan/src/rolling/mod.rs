//! The order in which nodes that work are interrupted: the masters one after another, then a limited number of workers
//! at a time. The next node is interrupted only after the one before it proved that it works again.
//!
//! Only steps that restart something wait. Files and parts are written on all hosts at once, and hosts that run no node
//! yet are created as fast as before. A node that another run interrupted is in no list: so every node of the cluster
//! proves that it works before any other is interrupted.

mod api_stop;
mod drain;
mod group;
pub(crate) mod restart;

use std::collections::{HashMap, HashSet};

use kubeon_api::HostAddress;
use kubeon_wire::{Facts, Op};

use crate::context::{ObservedHost, PlanContext};
use crate::desired::join::{self, ready_id};
use crate::desired::verify;
use crate::output::{RollingGroup, Step};
use crate::sort;
use crate::step_id::StepId;
use drain::Drains;
use group::{RestartGroup, groups};
use restart::{interrupts, takes_effect};

/// Seconds for a proof: a kubelet renews its Lease every ten seconds.
const PROOF_SECONDS: u32 = 120;

/// Orders the steps that interrupt nodes, and adds the proofs. Returns the steps and the order of the hosts.
pub(crate) fn order(context: &PlanContext<'_>, mut steps: Vec<Step>) -> (Vec<Step>, Vec<RollingGroup>) {
    let facts: HashMap<HostAddress, &Facts> =
        context.hosts.iter().map(|host| (host.address(), host.facts)).collect();
    let is_interruption = |step: &Step| facts.get(&step.host).is_some_and(|facts| interrupts(step, facts));
    let mut interrupted: HashMap<HostAddress, usize> = HashMap::new();
    for step in steps.iter().filter(|step| is_interruption(step)) {
        *interrupted.entry(step.host).or_default() += 1;
    }
    let changed: HashSet<HostAddress> = steps.iter().map(|step| step.host).collect();
    let groups = groups(context, &interrupted, &changed);
    let is_kubelet = |step: &Step| is_interruption(step) && join::is_kubelet(&step.id);
    let kubelets: HashSet<HostAddress> =
        steps.iter().filter(|step| is_kubelet(step)).map(|step| step.host).collect();
    let drains = Drains::of(context, &groups, |host| kubelets.contains(&host));
    if groups.iter().all(|group| group.held.is_empty()) {
        steps.extend(drains.steps(context, &HashMap::new()));
        return (steps, Vec::new());
    }
    let held: HashSet<HostAddress> =
        groups.iter().flat_map(|group| &group.held).map(|host| host.address()).collect();
    api_stop::add(context, &mut steps, &|step| held.contains(&step.host) && is_interruption(step));
    let proofs = proofs(context, &groups, &steps);
    steps.extend(proofs);
    let waits = |step: &Step| held.contains(&step.host) && is_interruption(step);
    cut_needs_on_later_hosts(&mut steps, &levels(&groups), &waits);
    let mut gates = gates(&groups);
    for gate in gates.values_mut() {
        let after: Vec<StepId> = gate.iter().filter_map(|proof| drains.after(proof)).collect();
        gate.extend(after);
    }
    for step in steps.iter_mut().filter(|step| waits(step)) {
        step.needs.extend(gates.get(&step.host).into_iter().flatten().cloned());
        step.needs.extend(drains.before(step.host));
        step.needs.sort_unstable();
        step.needs.dedup();
    }
    steps.extend(drains.steps(context, &gates));
    (
        sort::by_needs(steps),
        groups.iter().filter(|group| !group.held.is_empty()).map(RestartGroup::planned).collect(),
    )
}

/// The position of each host in the order. Hosts with the same position may be interrupted at the same time.
fn levels(groups: &[RestartGroup<'_>]) -> HashMap<HostAddress, usize> {
    let (mut levels, mut next) = (HashMap::new(), 0);
    for group in groups {
        levels.extend(group.first.iter().map(|host| (host.address(), next)));
        let positions = group.held.iter().enumerate();
        levels.extend(positions.map(|(index, host)| (host.address(), next + 1 + index / group.at_once)));
        next += 1 + group.held.len().div_ceil(group.at_once);
    }
    levels
}

/// The proofs that must be there before a host is interrupted.
fn gates(groups: &[RestartGroup<'_>]) -> HashMap<HostAddress, Vec<StepId>> {
    let mut gates: HashMap<HostAddress, Vec<StepId>> = HashMap::new();
    let mut last: Vec<StepId> = Vec::new();
    for group in groups {
        let heads = group.at_once.min(group.held.len());
        for (index, host) in group.held.iter().enumerate() {
            let before = match index.checked_sub(group.at_once) {
                Some(before) => vec![verify::node_id(&group.held[before].name)],
                // Each chain waits for its share of the hosts that are not interrupted.
                None => {
                    let share = group.first.iter().skip(index).step_by(heads);
                    last.iter().cloned().chain(share.map(|host| verify::node_id(&host.name))).collect()
                }
            };
            gates.insert(host.address(), before);
        }
        let end = if group.held.is_empty() { &group.first } else { &group.held };
        let ends = if group.held.is_empty() { end.len() } else { heads };
        if !end.is_empty() {
            last = end[end.len() - ends..].iter().map(|host| verify::node_id(&host.name)).collect();
        }
    }
    gates
}

/// Removes needs on interruptions of hosts that come later. What these steps need of such a host runs there already,
/// with its old content.
fn cut_needs_on_later_hosts(
    steps: &mut [Step],
    levels: &HashMap<HostAddress, usize>,
    waits: &impl Fn(&Step) -> bool,
) {
    let indexes: HashMap<StepId, usize> =
        steps.iter().enumerate().map(|(index, step)| (step.id.clone(), index)).collect();
    let level = |step: &Step| {
        let ordered = waits(step) || verify::is_node_proof(&step.id);
        levels.get(&step.host).copied().filter(|_| ordered)
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

/// The proof of every node of the groups. It comes after everything that starts or selects a program on the host.
fn proofs(context: &PlanContext<'_>, groups: &[RestartGroup<'_>], steps: &[Step]) -> Vec<Step> {
    let mut starts: HashMap<HostAddress, Vec<StepId>> = HashMap::new();
    for step in steps.iter().filter(|step| takes_effect(step)) {
        starts.entry(step.host).or_default().push(step.id.clone());
    }
    let planned: HashSet<&StepId> = steps.iter().map(|step| &step.id).collect();
    let proof = |host: &ObservedHost<'_>, interrupted: bool| {
        let mut needs = starts.get(&host.address()).cloned().unwrap_or_default();
        needs.extend(Some(ready_id(&host.name)).filter(|ready| planned.contains(ready)));
        needs.sort_unstable();
        proof(context, host, interrupted, needs)
    };
    let all = groups.iter().flat_map(|group| {
        let first = group.first.iter().map(|host| (*host, false));
        first.chain(group.held.iter().map(|host| (*host, true)))
    });
    all.map(|(host, interrupted)| proof(host, interrupted)).collect()
}

fn proof(context: &PlanContext<'_>, host: &ObservedHost<'_>, interrupted: bool, needs: Vec<StepId>) -> Step {
    let (more, why) = if interrupted {
        (" after its restart", "the next node waits for it")
    } else {
        ("", "no other node is interrupted before")
    };
    let id = verify::node_id(&host.name);
    Step {
        stage: id.stage(),
        id,
        host: host.address(),
        title: format!("node {} works{more}", host.name),
        why: why.to_owned(),
        needs,
        digest: String::new(),
        timeout_seconds: PROOF_SECONDS,
        tries: 1,
        journal: false,
        record_in: None,
        destructive: false,
        op: Op::Await { checks: vec![verify::node_works(context, host)] },
    }
}
