//! Nodes that work are interrupted in order: a node only after the one before it proved that it works again.

use std::collections::{BTreeMap, HashMap};

use kubeon_api::HostAddress;

use super::finding::LintFinding;
use crate::desired::verify;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, RollingGroup, RollingPart, Step};
use crate::rolling::restart::{NodeState, interrupts, node_state};
use crate::step_id::StepId;

type Restarts<'p> = BTreeMap<HostAddress, Vec<&'p Step>>;

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let restarts = restarts(plan, snapshot);
    let steps: HashMap<&StepId, &Step> = plan.steps.iter().map(|step| (&step.id, step)).collect();
    let mut texts = Vec::new();
    for (host, interruptions) in &restarts {
        texts.extend(unproven(plan, *host, interruptions, &steps));
    }
    let mut last: (&[HostAddress], RollingPart) = (&[], RollingPart::All);
    for group in &plan.rolling {
        for (index, host) in group.hosts.iter().enumerate() {
            let before = match index.checked_sub(group.at_once) {
                Some(before) => (&group.hosts[before..=before], group.part),
                None => last,
            };
            let interruptions = restarts.get(host).into_iter().flatten().copied();
            let mut own = interruptions.filter(|step| group.part.contains(step));
            texts.extend(own.find_map(|step| out_of_order(plan, step, before)));
        }
        last = (end(group), group.part);
    }
    texts.into_iter().map(|text| LintFinding::fatal("rolling", text)).collect()
}

/// The steps that interrupt nodes that work, by host.
fn restarts<'p>(plan: &'p Plan, snapshot: &Snapshot) -> Restarts<'p> {
    let facts = |host: &HostAddress| snapshot.hosts.get(host).and_then(Observation::fresh);
    let reports =
        || snapshot.hosts.values().filter_map(Observation::fresh).filter_map(|facts| facts.cluster.as_ref());
    let works = |host: &HostAddress| {
        let planned = plan.hosts.get(host)?;
        Some(node_state(&planned.name, facts(host)?, reports()) == NodeState::Works)
    };
    let mut found: Restarts<'_> = BTreeMap::new();
    for step in &plan.steps {
        if facts(&step.host).is_some_and(|facts| interrupts(step, facts)) {
            found.entry(step.host).or_default().push(step);
        }
    }
    found.retain(|host, _| works(host) == Some(true));
    found
}

/// The last hosts of the chains of a group.
fn end(group: &RollingGroup) -> &[HostAddress] {
    &group.hosts[group.hosts.len().saturating_sub(group.at_once)..]
}

/// What is wrong with the proof of a host, and whether the host has a place in the order.
fn unproven(
    plan: &Plan,
    host: HostAddress,
    interruptions: &[&Step],
    steps: &HashMap<&StepId, &Step>,
) -> Option<String> {
    let step = interruptions.first()?;
    if !plan.rolling.iter().any(|group| group.hosts.contains(&host)) {
        return Some(format!("{} interrupts a node that has no place in the order", step.id));
    }
    let Some(proof) = steps.get(&verify::node_id(&plan.hosts.get(&host)?.name)) else {
        return Some(format!("{} interrupts a node that does not prove that it works again", step.id));
    };
    let missing = interruptions.iter().find(|step| !proof.needs.contains(&step.id))?;
    Some(format!("{} may succeed before {}", proof.id, missing.id))
}

/// What is wrong with a step that may run before other hosts proved that they work.
fn out_of_order(plan: &Plan, step: &Step, (before, part): (&[HostAddress], RollingPart)) -> Option<String> {
    let mut proofs = before.iter().filter_map(|host| Some(part.proof_id(&plan.hosts.get(host)?.name)));
    let proof = proofs.find(|proof| !step.needs.contains(proof))?;
    Some(format!("{} may interrupt a node before {proof}", step.id))
}
