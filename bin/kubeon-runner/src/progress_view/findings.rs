//! The findings of a precheck, as text and for the status.

use kubeon_api::kubeonkube::{Finding, FindingSeverity};
use kubeon_api::{HostAddress, Refusal, Remedy, clip};
use kubeon_wire::{PrecheckReport, PrecheckResult, PrecheckSeverity};
use serde::Serialize;

/// The longest text of a finding or refusal in bytes.
const LONGEST_TEXT: usize = 1024;
/// The most bytes of all findings in the status, and of all refusals. With the conditions the status stays below 32 KiB.
const FINDINGS: usize = 8 * 1024;
const REFUSALS: usize = 8 * 1024;

/// Every check that failed, for the status, whose size is limited. Those that block the operation come first; the log of the Job
/// has all.
pub(super) fn for_status(report: &PrecheckReport) -> Vec<Finding> {
    let finding = |(host, check): (HostAddress, &PrecheckResult)| Finding {
        host: host.to_string(),
        check: check.check.clone(),
        severity: match check.severity {
            PrecheckSeverity::Error => FindingSeverity::Error,
            PrecheckSeverity::Warning => FindingSeverity::Warning,
        },
        ignored: check.ignored,
        message: clip(&describe(check), LONGEST_TEXT).to_owned(),
    };
    let (blocking, others): (Vec<_>, Vec<_>) = failed(report).partition(|(_, check)| check.prevents());
    fitting(blocking.into_iter().chain(others).map(finding), FINDINGS)
}

/// The first ones that need no more bytes together, as JSON.
fn fitting<T: Serialize>(all: impl Iterator<Item = T>, bytes: usize) -> Vec<T> {
    let mut left = bytes;
    all.take_while(|one| {
        let size = serde_json::to_vec(one).map_or(usize::MAX, |json| json.len().saturating_add(1));
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    })
    .collect()
}

/// The refusals for the status, whose size is limited. Those with a remedy come first.
pub(super) fn refusals(all: &[Refusal]) -> Vec<Refusal> {
    let clipped = |text: &str| clip(text, LONGEST_TEXT).to_owned();
    let bounded = |refusal: &Refusal| Refusal {
        value: clipped(&refusal.value),
        reason: clipped(&refusal.reason),
        ..refusal.clone()
    };
    let (with, without): (Vec<_>, Vec<_>) = all.iter().partition(|refusal| refusal.remedy.is_some());
    fitting(with.into_iter().chain(without).map(bounded), REFUSALS)
}

/// The text of a refusal for users of custom resources: its first line, then one line for each reason.
pub(super) fn reason(title: &str, refusals: &[Refusal]) -> String {
    let first = title.lines().next().unwrap_or_default();
    let rows = refusals.iter().map(|refusal| {
        let path = refusal.field.path().map(|path| format!("{path} ")).unwrap_or_default();
        let remedy = refusal.remedy.as_ref().map(Remedy::for_objects).unwrap_or_default();
        format!("\n  {path}{}  {}{remedy}", refusal.value, refusal.reason)
    });
    rows.fold(first.to_owned(), |text, row| text + &row)
}

/// The message of a check, with the remedy for users of custom resources.
fn describe(check: &PrecheckResult) -> String {
    let remedy = check.remedy.as_ref().map(Remedy::for_objects).unwrap_or_default();
    format!("{}{remedy}", check.message.trim_end())
}

/// Every check that failed, with its host.
fn failed(report: &PrecheckReport) -> impl Iterator<Item = (HostAddress, &PrecheckResult)> {
    let all = report.hosts.iter().flat_map(|host| host.checks.iter().map(move |check| (host.host, check)));
    all.filter(|(_, check)| !check.ok)
}

/// `10.0.0.2 : message`, for checks that block the operation or for those that do not.
pub(super) fn lines(report: &PrecheckReport, blocking: bool) -> Vec<String> {
    let wrong = failed(report).filter(|(_, check)| check.prevents() == blocking);
    wrong.map(|(host, check)| format!("{host} : {}", describe(check))).collect()
}
