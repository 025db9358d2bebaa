//! Writes: carries out a plan, step by step, on all its hosts at once, and tells what came of it.
//!
//! ```text
//!   Plan ──► order.rs   which steps may start now (needs done, host open, room on the host)
//!              │
//!              ▼
//!            attempt.rs  one step: resolve secrets ─► send ─► again, where that may help
//!              │
//!              ▼
//!            connection.rs     one session per host: opened once, opened again when it broke
//!              │
//!              ▼
//!            Outcome     Done | Failed | Skipped for every step       RunEvent ──► RunObserver, as it goes
//! ```
//!
//! Nothing is decided here about what should be: a plan leaves nothing to decide. Only this crate turns a
//! reference to a secret into its text, and that text goes to the host and nowhere else.

mod attempt;
mod host_connection;
mod order;
mod payload;
mod run;
mod run_event;

pub use payload::HostPorts;
pub use run::{SHUTDOWN_TIMEOUT, STEPS_AT_ONCE, run};
pub use run_event::{RunEvent, RunObserver};
