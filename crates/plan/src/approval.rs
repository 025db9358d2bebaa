//! What an approved plan permits.

use std::collections::HashMap;

use crate::output::{Plan, Step};
use crate::step_id::StepId;

impl Plan {
    /// The steps of this plan that an approved plan does not contain with the same content, in order. Steps that are not needed
    /// any more do not count: an approved change that was interrupted continues.
    #[must_use]
    pub fn unapproved(&self, approved: &Self) -> Vec<UnapprovedStep<'_>> {
        let known: HashMap<&StepId, &Step> = approved.steps.iter().map(|step| (&step.id, step)).collect();
        let difference = self.steps.iter().filter_map(|step| match known.get(&step.id) {
            None => Some(UnapprovedStep::New(step)),
            // Any master may execute a step about the whole cluster, so the host does not count.
            Some(other) if step.op != other.op || step.digest != other.digest => {
                Some(UnapprovedStep::Changed(step))
            }
            Some(_) => None,
        });
        difference.collect()
    }
}

/// A step that an approved plan does not permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnapprovedStep<'a> {
    /// The approved plan has no such step.
    New(&'a Step),
    /// The step of the approved plan has another content.
    Changed(&'a Step),
}

#[cfg(test)]
mod tests {
    use crate::sim::{artifacts, bare, cluster};
    use crate::{Intent, Observation, Snapshot, plan, validate};

    use super::*;

    fn plan_of(uid: &str, kernel: &str) -> Plan {
        let spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
        let version = spec.version;
        let intent = Intent::new(validate(spec, &[version]).unwrap().0, uid, 0, artifacts("v1.36.3"));
        let mut worker = bare("h2");
        kernel.clone_into(&mut worker.kernel);
        let hosts = [("10.0.0.1", bare("h1")), ("10.0.0.2", worker)];
        let hosts = hosts.map(|(host, facts)| (host.parse().unwrap(), Observation::Fresh(facts)));
        plan(&intent, &Snapshot { taken_at: 0, hosts: hosts.into() }).unwrap()
    }

    #[test]
    fn a_plan_permits_itself_and_what_is_left_of_it() {
        let approved = plan_of("u", "6.1.0");
        assert!(approved.unapproved(&approved).is_empty());
        let mut rest = approved.clone();
        rest.steps.drain(..rest.steps.len() / 2);
        assert!(rest.unapproved(&approved).is_empty());
        let json = serde_json::to_string(&approved).unwrap();
        assert!(approved.unapproved(&serde_json::from_str(&json).unwrap()).is_empty(), "after it was stored");
    }

    #[test]
    fn new_and_changed_steps_are_not_permitted() {
        let now = plan_of("u", "6.1.0");
        let mut approved = now.clone();
        let removed = approved.steps.pop().unwrap();
        "other".clone_into(&mut approved.steps[0].digest);
        let first = now.steps.first().unwrap();
        assert_eq!(
            now.unapproved(&approved),
            [UnapprovedStep::Changed(first), UnapprovedStep::New(now.steps.last().unwrap())]
        );
        assert_eq!(removed.id, now.steps.last().unwrap().id);
    }

    #[test]
    fn the_same_cluster_on_other_hosts_is_another_plan() {
        // A worker with an old kernel has no nftables mode, so its proxy is configured in another way.
        let (approved, now) = (plan_of("u", "6.1.0"), plan_of("u", "5.10.0"));
        assert!(!now.unapproved(&approved).is_empty());
        assert!(!plan_of("v", "6.1.0").unapproved(&approved).is_empty(), "of another identity");
    }
}
