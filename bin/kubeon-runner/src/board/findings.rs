//! What a look at the hosts found, for people and for machines.

use kubeon_api::HostAddress;
use kubeon_api::kubeonkube::{Finding, FindingSeverity};
use kubeon_wire::{PrecheckReport, PrecheckResult, PrecheckSeverity};

/// Findings in the status, and characters of each, at most.
const MOST_FINDINGS: usize = 256;
const MOST_WORDS: usize = 1024;

/// Every check that failed, as it stands in the status: bounded, as that is.
pub(super) fn of_machines(report: &PrecheckReport) -> Vec<Finding> {
    let finding = |(host, check): (HostAddress, &PrecheckResult)| Finding {
        host: host.to_string(),
        check: check.check.clone(),
        severity: match check.severity {
            PrecheckSeverity::Error => FindingSeverity::Error,
            PrecheckSeverity::Warning => FindingSeverity::Warning,
        },
        ignored: check.ignored,
        message: check.message.trim_end().chars().take(MOST_WORDS).collect(),
    };
    failed(report).take(MOST_FINDINGS).map(finding).collect()
}

/// Every check that does not hold, with its host.
fn failed(report: &PrecheckReport) -> impl Iterator<Item = (HostAddress, &PrecheckResult)> {
    let all = report.hosts.iter().flat_map(|host| host.checks.iter().map(move |check| (host.host, check)));
    all.filter(|(_, check)| !check.ok)
}

/// `10.0.0.2 : what is wrong`, for checks that stand in the way or for those that do not.
pub(super) fn lines(report: &PrecheckReport, in_the_way: bool) -> Vec<String> {
    let wrong = failed(report).filter(|(_, check)| {
        let stands = check.severity == PrecheckSeverity::Error && !check.ignored;
        stands == in_the_way
    });
    wrong.map(|(host, check)| format!("{host} : {}", check.message.trim_end())).collect()
}
