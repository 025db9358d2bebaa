//! The findings of a precheck, for people and for the status.

use kubeon_api::HostAddress;
use kubeon_api::kubeonkube::{Finding, FindingSeverity};
use kubeon_wire::{PrecheckReport, PrecheckResult, PrecheckSeverity};

/// The most findings in the status, and the most characters of each.
const MOST_FINDINGS: usize = 256;
const MOST_CHARACTERS: usize = 1024;

/// Every check that failed, for the status, whose size is limited.
pub(super) fn for_status(report: &PrecheckReport) -> Vec<Finding> {
    let finding = |(host, check): (HostAddress, &PrecheckResult)| Finding {
        host: host.to_string(),
        check: check.check.clone(),
        severity: match check.severity {
            PrecheckSeverity::Error => FindingSeverity::Error,
            PrecheckSeverity::Warning => FindingSeverity::Warning,
        },
        ignored: check.ignored,
        message: check.message.trim_end().chars().take(MOST_CHARACTERS).collect(),
    };
    failed(report).take(MOST_FINDINGS).map(finding).collect()
}

/// Every check that failed, with its host.
fn failed(report: &PrecheckReport) -> impl Iterator<Item = (HostAddress, &PrecheckResult)> {
    let all = report.hosts.iter().flat_map(|host| host.checks.iter().map(move |check| (host.host, check)));
    all.filter(|(_, check)| !check.ok)
}

/// `10.0.0.2 : message`, for checks that block the operation or for those that do not.
pub(super) fn lines(report: &PrecheckReport, blocking: bool) -> Vec<String> {
    let wrong = failed(report).filter(|(_, check)| {
        let blocks = check.severity == PrecheckSeverity::Error && !check.ignored;
        blocks == blocking
    });
    wrong.map(|(host, check)| format!("{host} : {}", check.message.trim_end())).collect()
}
