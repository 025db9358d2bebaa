//! Checks hosts before a plan is made. All failed checks of all hosts are reported at once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_api::refusal::FAILED_WITH;
use kubeon_link_host::SshHosts;
use kubeon_plan::precheck::{self, ConnectionTarget, precheck};
use kubeon_plan::{Intent, Plan, PlanError, PlanRefused, Refusal, Snapshot};
use kubeon_ports::ProbeHost;
use kubeon_reconcile::Planned;
use kubeon_wire::{Facts, PrecheckReport, Progress, StepFailure};
use parking_lot::Mutex;

use crate::error::{EngineError, RefusalReasons};
use crate::run::Run;

/// Probes hosts. Each host also tries to connect to the other hosts.
pub struct PrecheckProbe<'a> {
    hosts: &'a SshHosts,
    targets: BTreeMap<HostAddress, Vec<ConnectionTarget>>,
}

impl<'a> PrecheckProbe<'a> {
    /// Probes the connections that the cluster needs, and `further` targets such as a registry that the user
    /// names. No change needs a registry: every image comes from the bundle.
    pub fn new(intent: &Intent, hosts: &'a SshHosts, further: &[ConnectionTarget]) -> Self {
        Self { hosts, targets: precheck::connection_targets(intent, further) }
    }
}

#[async_trait]
impl ProbeHost for PrecheckProbe<'_> {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        let targets = self.targets.get(&host).map(Vec::as_slice).unwrap_or_default();
        self.hosts.facts_with_connections(host, targets).await
    }
}

/// Observes and checks the hosts, and plans; writes nothing. A host that does not own its login address gets its only
/// other address as its internal address. Then the hosts are observed again, because they try to connect to each other at
/// these addresses.
///
/// # Errors
/// Refuses when a check fails, or no plan can be made.
pub async fn observe(intent: &mut Intent, hosts: &SshHosts, run: &Run<'_>) -> Result<Planned, EngineError> {
    let probe = PrecheckProbe::new(intent, hosts, &[]);
    let checked = Checked { detected: Some(Mutex::default()), ..Checked::new(intent) };
    let planned = checked.observe(&Run { probe: &probe, ..run.clone() }).await;
    let detected = checked.detected.map(Mutex::into_inner).unwrap_or_default();
    if detected.is_empty() {
        return planned;
    }
    intent.set_internal_addresses(&detected);
    let probe = PrecheckProbe::new(intent, hosts, &[]);
    Checked::new(intent).observe(&Run { probe: &probe, ..run.clone() }).await
}

/// Makes plans, and stores the report of the checks.
struct Checked<'a> {
    intent: &'a Intent,
    report: Mutex<Option<PrecheckReport>>,
    /// The detected internal addresses, by login address. If there are any, no plan is made. `None` to detect none.
    detected: Option<Mutex<BTreeMap<HostAddress, HostAddress>>>,
}

impl<'a> Checked<'a> {
    /// Creates a planner without a report that detects no addresses.
    fn new(intent: &'a Intent) -> Self {
        Self { intent, report: Mutex::default(), detected: None }
    }

    /// Runs the checks and makes a plan.
    ///
    /// # Errors
    /// When no plan can be made.
    fn plan(&self, snapshot: &Snapshot) -> Result<Plan, PlanError> {
        if let Some(detected) = &self.detected {
            *detected.lock() = self.intent.detect_internal_addresses(snapshot);
            if !detected.lock().is_empty() {
                return Err(self.observe_again().into());
            }
        }
        let report = precheck(self.intent, snapshot);
        *self.report.lock() = Some(report);
        kubeon_plan::plan(self.intent, snapshot)
    }

    /// No plan, and no reason for the user.
    fn observe_again(&self) -> PlanRefused {
        PlanRefused { cluster: self.intent.spec.name.to_string(), refusals: Vec::new(), notes: Vec::new() }
    }

    /// Observes and checks the hosts, and makes a plan. Writes nothing.
    ///
    /// # Errors
    /// Refuses when a check fails, or no plan can be made.
    async fn observe(&self, run: &Run<'_>) -> Result<Planned, EngineError> {
        let planned = run.observe(&|snapshot| self.plan(snapshot)).await;
        let report = self.report.lock().take();
        let Some(report) = report else { return planned };
        let failed = (!report.ok).then(|| refusal(&report, planned.as_ref().err()));
        run.output.progress(&Progress::Precheck { report });
        match failed {
            Some(error) => Err(error),
            None => planned,
        }
    }
}

/// The refusal of a change: the failed checks of `report`, and the reasons of `other` that are not in the
/// report.
pub fn refusal(report: &PrecheckReport, other: Option<&EngineError>) -> EngineError {
    let failed: Vec<Refusal> = report.refusals().collect();
    let others = other.and_then(|other| other.refused.as_ref()).into_iter().flat_map(|reasons| reasons.all());
    let others = others.filter(|refusal| !failed.contains(refusal)).collect();
    let mut error = EngineError::refused(FAILED_WITH);
    error.refused =
        Some(Box::new(RefusalReasons { report: Some(report.clone()), others, inputs: Vec::new() }));
    if let Some(other) = other {
        error.rows.clone_from(&other.rows);
        error.warnings.clone_from(&other.warnings);
        error.remedy.clone_from(&other.remedy);
    }
    error
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::{bare, cluster};
    use kubeon_plan::{Artifacts, Observation, validate};

    use super::*;

    fn report(ignore: &[&str]) -> PrecheckReport {
        let spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
        let version = spec.version;
        let mut intent = Intent::new(validate(spec, &[version]).unwrap().0, "u", 0, Artifacts::default());
        intent.ignore = ignore.iter().map(|&name| name.to_owned()).collect();
        let old = Facts { kernel: "3.9.1".to_owned(), ..bare("h2") };
        let hosts = [("10.0.0.1", bare("h1")), ("10.0.0.2", old)];
        let hosts = hosts.map(|(host, facts)| (host.parse().unwrap(), Observation::Fresh(facts)));
        precheck(&intent, &Snapshot { taken_at: 0, hosts: hosts.into() })
    }

    #[test]
    fn failed_checks_and_other_reasons_are_reported_once_each() {
        let report = report(&[]);
        let failed: Vec<Refusal> = report.refusals().collect();
        let bundle = Refusal::argument("bundle", "is old");
        let other = EngineError::refusals("x", [&failed[..], std::slice::from_ref(&bundle)].concat(), &[]);
        let error = refusal(&report, Some(&other));
        assert_eq!(error.refused.unwrap().all(), [failed, vec![bundle]].concat());
    }
}
