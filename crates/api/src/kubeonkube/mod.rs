//! The kinds of group `kubeonkube.clay.io`: a [`Cluster`] says where hosts are and how to log in, a
//! [`ClusterOperation`] is one recorded change of it, done by one Job.
//!
//! Field names, defaults and the words of the status are those of kube-on-kube (contract A); what came later stands
//! beside them.

#![allow(clippy::duplicated_attributes, reason = "it takes the arguments of printer columns for attributes")]

mod cluster;
mod operation;
mod reference;
mod rules;

pub use cluster::{Cluster, ClusterCondition, ClusterSpec, ClusterStatus, RecordedResult};
pub use operation::{
    Action, ActionSource, ActionType, ClusterOperation, ClusterOperationSpec, ClusterOperationStatus,
    Finding, FindingSeverity, HookAction, HookMoment, OperationResult, Steps,
};
pub use reference::DataRef;

#[cfg(test)]
mod tests;
