//! The report of the checks of hosts before they are changed.

use kubeon_api::{ClusterName, HostAddress, HostRole, Refusal, Remedy};
use serde::{Deserialize, Serialize};

/// The results of all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecheckReport {
    /// The cluster that the hosts are checked for.
    pub cluster: ClusterName,
    /// Whether every check of severity `error` succeeded or is ignored.
    pub ok: bool,
    /// The number of failed checks of severity `error` that are not ignored.
    pub errors: u32,
    /// The number of other failed checks.
    pub warnings: u32,
    /// Every host once, sorted by address.
    pub hosts: Vec<PrecheckHost>,
}

impl PrecheckReport {
    /// The failed checks that prevent a change, as refusals of their hosts.
    pub fn refusals(&self) -> impl Iterator<Item = Refusal> {
        self.hosts.iter().flat_map(|host| {
            let prevents = host.checks.iter().filter(|result| result.prevents());
            prevents.map(|result| result.refusal(host.host))
        })
    }
}

/// The results of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecheckHost {
    /// Its address.
    pub host: HostAddress,
    /// The name of its node; empty if it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The role of the host in the cluster.
    pub role: HostRole,
    /// Whether no check of the host prevents a change.
    pub ok: bool,
    /// Every check, in a fixed order. A host that cannot be observed has only the first checks.
    pub checks: Vec<PrecheckResult>,
}

/// The result of one check on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecheckResult {
    /// The name of the check, which is also used to ignore it: `kernel`.
    pub check: String,
    /// The severity if it fails.
    pub severity: PrecheckSeverity,
    /// Whether it succeeded, or the value was not reported.
    pub ok: bool,
    /// Whether it failed and the user chose to ignore it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// The observed value, in a few words; empty if it was not reported.
    pub found: String,
    /// The expected value, in a few words.
    pub wanted: String,
    /// The problem; empty if the check succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What the user can do about it, if a flag or command helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
}

impl PrecheckResult {
    /// Whether the check prevents every change: it failed, is an error and is not ignored.
    #[must_use]
    pub fn prevents(&self) -> bool {
        !self.ok && !self.ignored && self.severity == PrecheckSeverity::Error
    }

    /// The failed check as a refusal of its host.
    #[must_use]
    pub fn refusal(&self, host: HostAddress) -> Refusal {
        Refusal::host(host, &self.message).with(self.remedy.clone())
    }
}

/// The severity of a failed check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PrecheckSeverity {
    /// No host is changed.
    Error,
    /// The user should know; hosts may be changed.
    Warning,
}
