//! Existing API servers are changed one after another, so that one of them always answers.

use super::finding::LintFinding;
use super::needs::unordered;
use crate::context::records;
use crate::desired::control_plane::is_apiserver;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, Step};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let existed = |step: &&Step| {
        let facts = snapshot.hosts.get(&step.host).and_then(Observation::fresh);
        facts.is_some_and(|facts| records(&facts.journal, &step.id))
    };
    let changes: Vec<&Step> =
        plan.steps.iter().filter(|step| is_apiserver(&step.id)).filter(existed).collect();
    unordered(plan, &changes)
        .map(|(one, other)| {
            let text = format!("{} and {} would change API servers at the same time", one.id, other.id);
            LintFinding::fatal("api-servers", text)
        })
        .collect()
}
