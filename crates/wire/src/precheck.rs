//! What was found about hosts before anything is done to them.

use kubeon_api::{ClusterName, HostAddress, HostRole, Refusal, Remedy};
use serde::{Deserialize, Serialize};

/// Every host, side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecheckReport {
    /// The cluster that they are meant for.
    pub cluster: ClusterName,
    /// Whether no check of severity `error` failed that was not ignored.
    pub ok: bool,
    /// How many failed checks of severity `error` stand in the way.
    pub errors: u32,
    /// How many other checks failed.
    pub warnings: u32,
    /// Every host once, by address.
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

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecheckHost {
    /// Its address.
    pub host: HostAddress,
    /// Its name as a node, where it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it does for the cluster.
    pub role: HostRole,
    /// Whether nothing stands in the way here.
    pub ok: bool,
    /// Every check, in a fixed order. A host that cannot be looked at has only the first ones.
    pub checks: Vec<PrecheckResult>,
}

/// One check on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecheckResult {
    /// Its name, under which it may be ignored: `kernel`.
    pub check: String,
    /// How bad it is when it fails.
    pub severity: PrecheckSeverity,
    /// Whether it holds, or nothing could be told against it.
    pub ok: bool,
    /// Whether it failed and somebody said that this does not matter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// What was found, in a few words; empty where nothing could be told.
    pub found: String,
    /// What is wanted, in a few words.
    pub wanted: String,
    /// What is wrong; empty when it holds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What a person can do about it, where there is something that an entry point can name.
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

/// How bad it is when a check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PrecheckSeverity {
    /// Nothing is done to any host.
    Error,
    /// A person should know.
    Warning,
}
