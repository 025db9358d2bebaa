//! Checks whether hosts can take part in a cluster, before any host is changed. The report holds every check
//! of every host.
//!
//! ```text
//!   Intent, Snapshot ──► HostConflicts (values that must be unique) ──► rules, one list ──► PrecheckReport
//!                                                                      │
//!                                             plan: refusals, notes ◄──┘
//! ```
//!
//! A check does not fail if the probe did not report the value. A user may ignore most checks by name.

mod address;
mod cluster;
mod dns;
mod firewall;
mod host_conflicts;
mod machine;
mod modules;
mod network;
mod rule;

use kubeon_api::HostRole;
use kubeon_wire::{PrecheckHost, PrecheckReport, PrecheckResult, PrecheckSeverity as Severity};

pub use crate::bundle_in_use::CHECK as BUNDLE_CHECK;
pub use network::{ConnectionTarget, connection_targets};

use crate::bundle_in_use;
use crate::input::{HostSpec, Intent, Observation, ObservationFailure, Snapshot};
use crate::node_name::node_name;
use crate::takeover::with_kubeadm_steps;
use crate::unreachable;
use host_conflicts::HostConflicts;
use rule::Verdict;
pub(crate) use rule::{CheckRule, Subject};

/// Whether the host answers, and whether the login works. Hosts that fail one of them have no other checks.
const REACH: &str = "reach";
const LOGIN: &str = "login";

/// Every other check, in the order of the report.
pub(crate) fn rules() -> impl Iterator<Item = &'static CheckRule> {
    let tables = [
        cluster::OWNER,
        machine::MACHINE,
        cluster::IDENTITY,
        network::PORTS,
        machine::NETWORK,
        network::CONNECTIONS,
    ];
    tables.into_iter().flatten()
}

/// Checks that cannot be ignored: if one of them fails, no step can run on the host.
const REQUIRED_CHECKS: [&str; 4] = [REACH, LOGIN, "claim", "system"];

/// Whether a check may be ignored.
///
/// # Errors
/// The reason why it may not be ignored, in one sentence.
pub fn may_be_ignored(check: &str) -> Result<(), String> {
    if REQUIRED_CHECKS.contains(&check) {
        return Err(format!("{check} cannot be ignored: if it fails, no step can run on the host"));
    }
    if check == bundle_in_use::CHECK || rules().any(|rule| rule.name == check) {
        return Ok(());
    }
    let names = rules().map(|rule| rule.name).filter(|name| !REQUIRED_CHECKS.contains(name));
    let names = names.chain([bundle_in_use::CHECK]);
    Err(format!("{check} is not a check; use one of {}", names.collect::<Vec<_>>().join(", ")))
}

/// Checks every host of the cluster. Hosts that leave it are not checked.
#[must_use]
pub fn precheck(intent: &Intent, snapshot: &Snapshot) -> PrecheckReport {
    let snapshot = with_kubeadm_steps(intent, snapshot);
    let snapshot: &Snapshot = &snapshot;
    let host_conflicts = HostConflicts::of(intent, snapshot);
    let mut hosts: Vec<PrecheckHost> = Vec::new();
    for (role, spec) in intent.spec.hosts_with_roles() {
        hosts.push(match snapshot.hosts.get(&spec.address) {
            Some(Observation::Fresh(facts)) => {
                host(&Subject { intent, spec, role, facts, host_conflicts: &host_conflicts })
            }
            _ if intent.unconcerned.contains(&spec.address) => continue,
            Some(Observation::Unknown { why, failure }) => {
                unobserved(intent, snapshot, spec, role, why, *failure)
            }
            None => {
                unobserved(intent, snapshot, spec, role, "was not observed", ObservationFailure::NoAnswer)
            }
        });
    }
    hosts.sort_by_key(|host| host.host);
    let count = |counts: fn(&PrecheckResult) -> bool| {
        let results = hosts.iter().flat_map(|host| &host.checks).filter(|result| counts(result));
        u32::try_from(results.count()).unwrap_or(u32::MAX)
    };
    let (errors, warnings) =
        (count(PrecheckResult::prevents), count(|result| !result.ok && !result.prevents()));
    PrecheckReport { cluster: intent.spec.name.clone(), ok: errors == 0, errors, warnings, hosts }
}

/// The result of one rule for a host.
pub(crate) fn evaluate(rule: &CheckRule, subject: &Subject<'_>) -> PrecheckResult {
    let Verdict { severity, found, wanted, message, remedy } = (rule.evaluate)(subject);
    let ok = message.is_none();
    let ignored = !ok && subject.intent.ignore.contains(rule.name);
    let message = message.unwrap_or_default();
    PrecheckResult { check: rule.name.to_owned(), severity, ok, ignored, found, wanted, message, remedy }
}

/// Calls `each` for every observed host.
pub(crate) fn subjects<'a>(intent: &'a Intent, snapshot: &'a Snapshot, mut each: impl FnMut(&Subject<'_>)) {
    let host_conflicts = HostConflicts::of(intent, snapshot);
    for (role, spec) in intent.spec.hosts_with_roles() {
        if let Some(facts) = snapshot.hosts.get(&spec.address).and_then(Observation::fresh) {
            each(&Subject { intent, spec, role, facts, host_conflicts: &host_conflicts });
        }
    }
}

fn host(subject: &Subject<'_>) -> PrecheckHost {
    let mut checks = vec![passed(REACH, "answers"), passed(LOGIN, "works")];
    checks.extend(rules().map(|rule| evaluate(rule, subject)));
    let ok = !checks.iter().any(PrecheckResult::prevents);
    let name = node_name(subject.spec, subject.facts).map(|name| name.to_string()).unwrap_or_default();
    PrecheckHost { host: subject.spec.address, name, role: subject.role.clone(), ok, checks }
}

fn passed(check: &str, found: &str) -> PrecheckResult {
    PrecheckResult {
        check: check.to_owned(),
        severity: Severity::Error,
        ok: true,
        ignored: false,
        found: found.to_owned(),
        wanted: found.to_owned(),
        message: String::new(),
        remedy: None,
    }
}

fn unobserved(
    intent: &Intent,
    snapshot: &Snapshot,
    spec: &HostSpec,
    role: HostRole,
    why: &str,
    failure: ObservationFailure,
) -> PrecheckHost {
    let denied = failure != ObservationFailure::NoAnswer;
    let assessed = unreachable::assess(intent, snapshot, spec, &role, why, failure);
    let skipped = assessed.is_ok() || role == HostRole::Worker && intent.skip_hosts.contains(&spec.address);
    let (message, remedy) = match assessed {
        Ok(host) => (host.why, None),
        Err(refusal) => (refusal.reason, refusal.remedy),
    };
    let failed = PrecheckResult {
        ok: false,
        ignored: skipped,
        found: if denied { "is refused" } else { "does not answer" }.to_owned(),
        message,
        remedy,
        ..passed(if denied { LOGIN } else { REACH }, if denied { "works" } else { "answers" })
    };
    let checks = if denied { vec![passed(REACH, "answers"), failed] } else { vec![failed] };
    let name = spec.name.as_ref().map(ToString::to_string).unwrap_or_default();
    PrecheckHost { host: spec.address, name, role, ok: skipped, checks }
}
