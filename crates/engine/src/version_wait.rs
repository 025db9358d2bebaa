//! What a change of version waits for. Every master and every host of etcd must have a version before the cluster takes it:
//! one that was left behind would come back two minor versions behind after the next change.

use kubeon_api::{ClusterName, HostRole, Version};
use kubeon_plan::{Plan, UnreachableHost, WaitingStep};

use crate::error::EngineError;
use crate::ready_master::ProbedHost;
use crate::remedy::EngineRemedy;

/// The number of waiting steps that an error names.
const NAMED_STEPS: usize = 6;

/// A change of version whose steps are done, but which hosts or steps are left out of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionWait {
    cluster: ClusterName,
    version: Version,
    /// The masters and the hosts of etcd that did not answer.
    hosts: Vec<UnreachableHost>,
    /// Steps on other hosts that wait for them.
    steps: Vec<WaitingStep>,
}

impl VersionWait {
    /// What the change to the version waits for after this plan; `None` if nothing does. Workers that do not answer may stay behind:
    /// a kubelet may be older than the control plane.
    pub(crate) fn of(plan: &Plan, version: Version) -> Option<Self> {
        let hosts: Vec<UnreachableHost> = members(plan).cloned().collect();
        let waits = !hosts.is_empty() || !plan.waiting.is_empty();
        waits.then(|| Self { cluster: plan.cluster.clone(), version, hosts, steps: plan.waiting.clone() })
    }

    /// The refusal of a change to the version that has not begun.
    pub(crate) fn refusal(self) -> EngineError {
        let title = format!(
            "the change of {} to {} does not begin without {}",
            self.cluster,
            self.version,
            self.names()
        );
        self.explain(EngineError::refused(title), false, false)
    }

    /// The end of a run that can do no more. `can_go_back` tells whether the change can be aborted.
    pub(crate) fn failure(self, can_go_back: bool) -> EngineError {
        let title = format!("the change of {} to {} waits for {}", self.cluster, self.version, self.names());
        self.explain(EngineError::failed(title), true, can_go_back)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        if names.is_empty() { "members of etcd".to_owned() } else { names.join(", ") }
    }

    fn explain(self, mut error: EngineError, begun: bool, can_go_back: bool) -> EngineError {
        for host in &self.hosts {
            let role = if host.role.is_master() { "the master" } else { "the host of etcd" };
            error = error.row(host.name.as_str(), format!("{role} does not answer: {}", host.why));
        }
        for step in self.steps.iter().take(NAMED_STEPS) {
            let for_hosts = self.hosts.iter().filter(|host| step.hosts.contains(&host.address));
            let names: Vec<&str> = for_hosts.map(|host| host.name.as_str()).collect();
            let waits =
                if names.is_empty() { String::new() } else { format!(" waits for {}", names.join(" ")) };
            error = error.row(step.id.to_string(), format!("{}{waits}: {}", step.title, step.risk));
        }
        let more = self.steps.len().saturating_sub(NAMED_STEPS);
        if more > 0 {
            error = error.row("…", format!("{more} more steps wait"));
        }
        let lost = self.hosts.into_iter().next().map(|host| (host.name, host.address));
        error.remedy(EngineRemedy::CompleteWithMember { cluster: self.cluster, lost, begun, can_go_back })
    }
}

/// The masters and the hosts of etcd that did not answer.
fn members(plan: &Plan) -> impl Iterator<Item = &UnreachableHost> {
    plan.unreachable.iter().filter(|host| host.role != HostRole::Worker)
}

/// Refuses to begin a change to the version without a master or a host of etcd.
///
/// # Errors
/// Names the hosts that do not answer.
pub(crate) fn refuse_beginning(plan: &Plan, version: Version) -> Result<(), EngineError> {
    if members(plan).next().is_none() {
        return Ok(());
    }
    VersionWait::of(plan, version).map_or(Ok(()), |wait| Err(wait.refusal()))
}

/// Refuses to begin a change to the version without a master that did not answer, before anything is read or written for it.
///
/// # Errors
/// Names the masters.
pub(crate) fn refuse_silent_masters(
    cluster: &ClusterName,
    version: Version,
    masters: &[ProbedHost],
) -> Result<(), EngineError> {
    let silent = |master: &ProbedHost| {
        let why = master.facts.as_ref().err()?.clone();
        let name = master.name.parse().ok()?;
        Some(UnreachableHost { address: master.host, name, role: HostRole::Master, why })
    };
    let hosts: Vec<UnreachableHost> = masters.iter().filter_map(silent).collect();
    if hosts.is_empty() {
        return Ok(());
    }
    Err(VersionWait { cluster: cluster.clone(), version, hosts, steps: Vec::new() }.refusal())
}

#[cfg(test)]
mod tests {
    use kubeon_wire::Facts;

    use super::*;
    use crate::error::ErrorCategory;
    use crate::testing::planned;

    fn without(role: HostRole) -> Plan {
        let host = UnreachableHost {
            address: "10.0.0.9".parse().unwrap(),
            name: "h9".parse().unwrap(),
            role,
            why: "no route to host".to_owned(),
        };
        Plan { unreachable: vec![host], ..planned() }
    }

    fn version() -> Version {
        "v1.37.2".parse().unwrap()
    }

    #[test]
    fn a_version_waits_for_masters_and_hosts_of_etcd_and_not_for_workers() {
        assert_eq!(VersionWait::of(&planned(), version()), None);
        assert_eq!(VersionWait::of(&without(HostRole::Worker), version()), None);
        refuse_beginning(&without(HostRole::Worker), version()).unwrap();
        for role in [HostRole::Master, HostRole::Etcd] {
            let refusal = refuse_beginning(&without(role.clone()), version()).unwrap_err();
            assert_eq!(refusal.category, ErrorCategory::Refused);
            assert_eq!(refusal.title, "the change of demo to v1.37.2 does not begin without h9");
            let failure = VersionWait::of(&without(role), version()).unwrap().failure(true);
            assert_eq!(failure.category, ErrorCategory::Failed);
            assert_eq!(failure.title, "the change of demo to v1.37.2 waits for h9");
            assert!(failure.rows[0].1.ends_with("does not answer: no route to host"), "{failure}");
        }
    }

    #[test]
    fn a_step_that_waits_keeps_the_version_open() {
        let mut plan = without(HostRole::Master);
        let step = plan.steps[0].clone();
        plan.waiting.push(WaitingStep {
            id: step.id.clone(),
            host: step.host,
            title: "start etcd member h2".to_owned(),
            why: step.why,
            hosts: vec!["10.0.0.9".parse().unwrap()],
            risk: "2 of 3 etcd members can serve".to_owned(),
        });
        let error = VersionWait::of(&plan, version()).unwrap().failure(false);
        let text = "start etcd member h2 waits for h9: 2 of 3 etcd members can serve".to_owned();
        assert_eq!(error.rows[1], (step.id.to_string(), text));
        let lost = Some(("h9".parse().unwrap(), "10.0.0.9".parse().unwrap()));
        let cluster = "demo".parse().unwrap();
        let remedy = EngineRemedy::CompleteWithMember { cluster, lost, begun: true, can_go_back: false };
        assert_eq!(error.remedy.as_deref(), Some(&remedy));
        plan.unreachable.clear();
        assert!(VersionWait::of(&plan, version()).is_some(), "the step still waits");
    }

    #[test]
    fn a_master_that_does_not_answer_is_named_before_anything_is_read() {
        let master = |name: &str, facts| ProbedHost {
            host: "10.0.0.9".parse().unwrap(),
            name: name.to_owned(),
            facts,
        };
        let cluster = "demo".parse().unwrap();
        let serves = master("h1", Ok(Facts::default()));
        assert!(refuse_silent_masters(&cluster, version(), std::slice::from_ref(&serves)).is_ok());
        let silent = master("h9", Err("no route to host".to_owned()));
        let refusal = refuse_silent_masters(&cluster, version(), &[serves, silent]).unwrap_err();
        assert_eq!(refusal.category, ErrorCategory::Refused);
        assert_eq!(refusal.title, "the change of demo to v1.37.2 does not begin without h9");
        assert_eq!(refusal.rows[0].1, "the master does not answer: no route to host");
    }
}
