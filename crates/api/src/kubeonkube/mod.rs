//! The kinds of group `kubeonkube.clay.io`: a [`Cluster`] describes hosts and how to log in to them, a
//! [`ClusterOperation`] is one recorded change of it, executed by one Job.
//!
//! Field names, defaults and the values of the status are those of kube-on-kube (contract A). kubeon adds fields to them.

#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the arguments of printer columns for attributes"
)]

mod cluster;
mod operation;
mod reference;
mod rules;

pub use cluster::{Cluster, ClusterCondition, ClusterSpec, ClusterStatus, RecordedResult, RemovedOperation};
pub use operation::{
    Action, ActionSource, ActionType, ClusterOperation, ClusterOperationSpec, ClusterOperationStatus,
    Finding, FindingSeverity, HookAction, HookMoment, OperationResult, Steps,
};
pub use reference::DataRef;

/// The name of the runner's image in the samples of kube-on-kube. It stands for kubeon's own image: kubeon publishes none under it.
pub const RUNNER_ALIAS: &str = "wangzhichidocker/kubeonkube:v0.1";

#[cfg(test)]
mod tests;
