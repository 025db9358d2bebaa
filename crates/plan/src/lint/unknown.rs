//! What was not seen is not known to be absent: no destructive step goes to a host that was not seen.

use super::Finding;
use crate::input::{Seen, Snapshot};
use crate::output::Plan;

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<Finding> {
    plan.steps
        .iter()
        .filter(|step| step.destructive && snapshot.hosts.get(&step.host).and_then(Seen::fresh).is_none())
        .map(|step| {
            Finding::fatal("unknown", format!("{} destroys on {}, which was not seen", step.id, step.host))
        })
        .collect()
}
