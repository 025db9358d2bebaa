//! Records of the steps of an operation, for people and programs that read them after its end.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};

use crate::HostAddress;

/// One execution of a step on one host. The steps of an operation are stored as lines of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// Its host.
    pub host: HostAddress,
    /// The name of the host; its address if the name is unknown.
    pub name: String,
    /// The stage that it belongs to, such as `etcd`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// Its title.
    pub step: String,
    /// Why it was executed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When it began.
    pub started: MicroTime,
    /// When it ended; absent for a step that was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<MicroTime>,
    /// Its result.
    pub result: StepResult,
    /// Why it failed, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepResult {
    /// It changed its host.
    Changed,
    /// There was nothing to change.
    UpToDate,
    /// It failed.
    Failed,
    /// It failed and was tried again.
    Retried,
    /// The operation ended first.
    Interrupted,
}

impl StepResult {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "Changed",
            Self::UpToDate => "UpToDate",
            Self::Failed => "Failed",
            Self::Retried => "Retried",
            Self::Interrupted => "Interrupted",
        }
    }
}
