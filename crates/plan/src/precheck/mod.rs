//! Whether hosts can take part, told before anything is done to them: every check on every host, side by side.
//!
//! ```text
//!   Intent, Snapshot ──► HostConflicts (what hosts must not share) ──► rules, one list ──► PrecheckReport
//!                                                                   │
//!                                          plan: refusals, notes ◄──┘
//! ```
//!
//! What a look could not tell is never held against a host. A check has a name, under which it may be ignored.

mod cluster;
mod host_conflicts;
mod machine;
mod network;
mod rule;

use kubeon_api::{HostRole, Refusal, Remedy};
use kubeon_wire::{PrecheckHost, PrecheckReport, PrecheckResult, PrecheckSeverity as Severity};

pub use network::{ConnectionTarget, questions};

use crate::input::{HostSpec, Intent, Seen, Snapshot};
use host_conflicts::HostConflicts;
use rule::Verdict;
pub(crate) use rule::{CheckRule, Subject};

/// Whether the host can be looked at.
const REACH: &str = "reach";
const LOGIN: &str = "login";

/// Every other check, in the order in which they are told. Each table is beside the functions of its rules.
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

/// Checks that cannot be ignored: without them no step can run on a host.
const NOT_TO_BE_IGNORED: [&str; 4] = [REACH, LOGIN, "claim", "system"];

/// Whether a check may be ignored.
///
/// # Errors
/// Why it may not, in one sentence.
pub fn may_be_ignored(check: &str) -> Result<(), String> {
    if NOT_TO_BE_IGNORED.contains(&check) {
        return Err(format!("{check} cannot be ignored: nothing can be done to such a host"));
    }
    if rules().any(|rule| rule.name == check) {
        return Ok(());
    }
    let names = rules().map(|rule| rule.name).filter(|name| !NOT_TO_BE_IGNORED.contains(name));
    Err(format!("{check} is no check; there are {}", names.collect::<Vec<_>>().join(", ")))
}

/// Checks every host of the cluster. Hosts that leave it are not checked.
#[must_use]
pub fn precheck(intent: &Intent, snapshot: &Snapshot) -> PrecheckReport {
    let host_conflicts = HostConflicts::of(intent, snapshot);
    let masters = intent.spec.masters.len();
    let mut hosts: Vec<PrecheckHost> = Vec::new();
    for (index, spec) in intent.spec.hosts().enumerate() {
        let master = index < masters;
        hosts.push(match snapshot.hosts.get(&spec.address) {
            Some(Seen::Fresh(facts)) => {
                host(&Subject { intent, spec, master, facts, host_conflicts: &host_conflicts })
            }
            Some(Seen::Unknown { why, denied }) => unseen(intent, spec, master, why, *denied),
            None => unseen(intent, spec, master, "was not asked", false),
        });
    }
    hosts.sort_by_key(|host| host.host);
    let count = |bad: fn(&PrecheckResult) -> bool| {
        let results = hosts.iter().flat_map(|host| &host.checks).filter(|result| bad(result));
        u32::try_from(results.count()).unwrap_or(u32::MAX)
    };
    let (errors, warnings) = (count(PrecheckResult::prevents), count(|it| !it.ok && !it.prevents()));
    PrecheckReport { cluster: intent.spec.name.clone(), ok: errors == 0, errors, warnings, hosts }
}

/// What one rule says of a host.
pub(crate) fn judge(rule: &CheckRule, subject: &Subject<'_>) -> PrecheckResult {
    let Verdict { severity, found, wanted, message, remedy } = (rule.judge)(subject);
    let ok = message.is_none();
    let ignored = !ok && subject.intent.ignore.contains(rule.name);
    let message = message.unwrap_or_default();
    PrecheckResult { check: rule.name.to_owned(), severity, ok, ignored, found, wanted, message, remedy }
}

/// Runs `each` with every host that was seen.
pub(crate) fn subjects<'a>(intent: &'a Intent, snapshot: &'a Snapshot, mut each: impl FnMut(&Subject<'_>)) {
    let host_conflicts = HostConflicts::of(intent, snapshot);
    let masters = intent.spec.masters.len();
    for (index, spec) in intent.spec.hosts().enumerate() {
        if let Some(facts) = snapshot.hosts.get(&spec.address).and_then(Seen::fresh) {
            each(&Subject { intent, spec, master: index < masters, facts, host_conflicts: &host_conflicts });
        }
    }
}

fn host(subject: &Subject<'_>) -> PrecheckHost {
    let mut checks = vec![seen(REACH, "answers"), seen(LOGIN, "works")];
    checks.extend(rules().map(|rule| judge(rule, subject)));
    let ok = !checks.iter().any(PrecheckResult::prevents);
    let name = host_conflicts::name(subject.spec, subject.facts).unwrap_or_default();
    PrecheckHost { host: subject.spec.address, name, role: HostRole::of(subject.master), ok, checks }
}

fn seen(check: &str, found: &str) -> PrecheckResult {
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

fn unseen(intent: &Intent, spec: &HostSpec, master: bool, why: &str, denied: bool) -> PrecheckHost {
    let left_out = !master && intent.skip_hosts.contains(&spec.address);
    let refusal = unreachable(spec, master, why);
    let failed = PrecheckResult {
        ok: false,
        ignored: left_out,
        found: if denied { "is refused" } else { "does not answer" }.to_owned(),
        message: refusal.reason,
        remedy: refusal.remedy,
        ..seen(if denied { LOGIN } else { REACH }, if denied { "works" } else { "answers" })
    };
    let checks = if denied { vec![seen(REACH, "answers"), failed] } else { vec![failed] };
    let name = spec.name.as_ref().map(ToString::to_string).unwrap_or_default();
    PrecheckHost { host: spec.address, name, role: HostRole::of(master), ok: left_out, checks }
}

/// Refuses a host that cannot be observed, for the reason `why`.
pub(crate) fn unreachable(spec: &HostSpec, master: bool, why: &str) -> Refusal {
    if master {
        let reason = format!("{why}; a master cannot be left out: bring it back or name another");
        return Refusal::host(spec.address, reason);
    }
    let reason = format!("{why}; bring it back, or go on without it");
    Refusal::host(spec.address, reason).with(Remedy::SkipHost(spec.address))
}
