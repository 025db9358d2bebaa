//! The operator: raises business clusters from a meta cluster.
//!
//! ```text
//!   watches ──► World ──wakes──► Queue ──► worker: one lane's turn ──► Hands ──► API server
//!                 ▲                          │  kubeon_operations decides       │
//!                 └────────── answers of its own writes ◄───────────────────────┘
//! ```
//!
//! Decisions are `kubeon_operations`'; here they meet the API server. Lanes work side by side, one turn of a lane at a time.
//! Admission reviews are answered aside, by every replica, also those that do not lead.

mod admission;
pub mod args;
mod cache;
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
mod queue;
mod reconcile;
mod refusals;
mod request_priority;
mod run;
mod spans;
mod unreadable;
mod watches;

pub use admission::Admission;
pub use run::{OperatorOptions, run};
