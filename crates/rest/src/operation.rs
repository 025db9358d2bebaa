//! An operation as clients see it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ConditionView;

/// An operation in a list or in an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version of the object: a later one replaces this one.
    pub resource_version: String,
    /// The namespace of its cluster; absent for an operation of a `Cluster`, which has no namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its cluster.
    pub cluster: String,
    /// What it does, such as `scaling-up`.
    pub action: String,
    /// Whether it only plans: `POST …/approve` applies its plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plans: bool,
    /// The operation whose plan it applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approves: Option<String>,
    /// The user who asked for it, as the meta cluster knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// `Waiting`, `Running`, `Succeeded` or `Failed`.
    pub status: String,
    /// The reason for the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepCount>,
    /// The operation that must end first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// When it was requested, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When its Job started, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// When its Job ended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Completed steps of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepCount {
    /// Number of completed steps.
    pub done: i32,
    /// Number of all steps.
    pub total: i32,
    /// The current step: `etcd on h4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
}

/// An operation with its conditions and its Job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationDetail {
    /// What a list shows.
    #[serde(flatten)]
    pub summary: OperationView,
    /// Why it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its Job, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Failed checks and refusals, each as one sentence.
    pub problems: Vec<String>,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
}

/// One page of the steps of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepList {
    /// Whether the operation has ended: no further step follows.
    pub complete: bool,
    /// The steps of this page, in the order of their start.
    pub items: Vec<StepView>,
    /// The value of the parameter `continue` for the next page. The last page has none.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many steps follow after this page.
    #[serde(default)]
    pub remaining: usize,
}

/// One execution of a step on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// The address of its host.
    pub host: String,
    /// The name of its host.
    pub name: String,
    /// The stage that it belongs to, such as `etcd`.
    pub stage: String,
    /// Its title.
    pub step: String,
    /// Why it was executed.
    pub why: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// When it ended, RFC 3339; absent for a step that was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// `Changed`, `UpToDate`, `Failed`, `Retried` or `Interrupted`.
    pub result: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}
