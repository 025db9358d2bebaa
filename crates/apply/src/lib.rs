//! Writes: executes the steps of a plan on all hosts in parallel and returns the outcome.
//!
//! ```text
//!   Plan ──► order.rs   which steps may start now (needs done, host open, free capacity on the host)
//!              │
//!              ▼
//!            attempt.rs  one step: resolve secrets ─► send ─► retry if the failure allows it
//!              │           (forwarding.rs: a part may come from another host)
//!              │
//!              ▼
//!            host_connection.rs   one session per host: opened once, and again when it breaks
//!              │
//!              ▼
//!            Outcome     Done | Failed | Skipped for every step       RunEvent ──► RunObserver, during the run
//! ```
//!
//! This crate makes no decision about the desired state: the plan is complete. Only this crate resolves
//! references to secrets, and their text is sent to the host and nowhere else.

mod arrival;
mod attempt;
mod backoff;
mod forwarding;
mod host_connection;
mod order;
mod payload;
mod run;
mod run_event;

pub use payload::HostPorts;
pub use run::{SHUTDOWN_TIMEOUT, STEPS_AT_ONCE, run};
pub use run_event::{RunEvent, RunObserver};
