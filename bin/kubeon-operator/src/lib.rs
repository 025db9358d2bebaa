//! The operator in the meta cluster: creates business clusters from custom resources.
//!
//! ```text
//!   watches ─► ObjectCache ─► Queue ─► reconcile of one key ─► KubeWriter ─► API server
//!                   ▲                                              │
//!                   └────────── answers to its own writes ◄────────┘
//! ```
//!
//! `kubeon_operations` decides; this crate observes and writes through the API server. Several keys are
//! reconciled at the same time, each by one worker. Every replica answers admission reviews, not only the
//! leader.

mod admission;
pub mod args;
mod cache;
mod cluster_api;
mod context;
mod execute;
mod health;
mod initial_lists;
mod job_rate;
mod location;
mod log_follower;
#[cfg(test)]
mod measure;
mod metrics;
mod observation;
mod observer;
mod operation_limit;
mod queue;
mod reconcile;
mod refusals;
mod request_priority;
mod run;
mod spans;
mod uninstall;
mod unreadable;
mod watches;

pub use admission::Admission;
pub use run::{OperatorOptions, run};
pub use uninstall::check_uninstall;
