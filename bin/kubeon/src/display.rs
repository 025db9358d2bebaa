//! The progress of a run: a redrawn view on a terminal, one line per step elsewhere.
//!
//! ```text
//!   Plan ──► RunProgress ◄── RunEvent (from apply)          progress_view.rs: state, no clock, no terminal
//!              │
//!              ├──► lines(now, width)                  lines.rs: text, pure
//!              ├──► events.rs                          lines of JSON, pure
//!              └──► live.rs draws the lines · plain.rs writes one line per event
//! ```

pub(crate) mod estimate;
pub(crate) mod events;
pub(crate) mod lines;
pub(crate) mod live;
pub(crate) mod plain;
pub(crate) mod plan;
pub(crate) mod progress_state;
pub(crate) mod progress_view;
pub(crate) mod spinner;

pub(crate) use live::Display;

#[cfg(test)]
mod tests;
