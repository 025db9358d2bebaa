//! Members of etcd that exist are never changed two at a time: each change waits for the one before.

use super::{Finding, reaches};
use crate::input::{Seen, Snapshot};
use crate::output::{Plan, Step};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<Finding> {
    let existed = |step: &&Step| {
        let facts = snapshot.hosts.get(&step.host).and_then(Seen::fresh);
        facts.is_some_and(|facts| facts.journal.iter().any(|entry| entry.id == step.id))
    };
    let answers = snapshot.hosts.values().filter_map(Seen::fresh).filter_map(|facts| facts.cluster.as_ref());
    let quorum = answers
        .into_iter()
        .any(|seen| seen.etcd_members.values().filter(|good| **good).count() * 2 > seen.etcd_members.len());
    if !quorum {
        return Vec::new();
    }
    let changes: Vec<&Step> =
        plan.steps.iter().filter(|step| step.id.starts_with("etcd/member@")).filter(existed).collect();
    changes
        .windows(2)
        .filter(|pair| !reaches(plan, pair[1], &pair[0].id))
        .map(|pair| {
            Finding::fatal(
                "quorum",
                format!("{} and {} would change members at the same time", pair[0].id, pair[1].id),
            )
        })
        .collect()
}
