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
mod carry;
mod health;
mod listed;
mod metrics;
mod parting;
mod place;
mod queue;
mod refusals;
mod run;
mod shared;
mod spans;
mod starts;
mod tempo;
mod turn;
mod unreadable;
mod watches;
mod world;

pub use admission::Admission;
pub use run::{Options, run};
