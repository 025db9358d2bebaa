//! The messages of the REST server: what clients send and get. No behaviour.

mod cluster;
mod operation;
mod page;
mod problem;
pub mod v1;

pub use cluster::{ClusterDetail, ClusterView, ConditionView, HostView};
pub use operation::{OperationDetail, OperationView, StepCount, StepList, StepView};
pub use page::Page;
pub use problem::Problem;
