//! What a person sees while steps are done: a moving view on a terminal, one line a step elsewhere.
//!
//! ```text
//!   Plan ──► RunProgress ◄── RunEvent (from apply)          progress_view.rs: what is known, no clock, no terminal
//!              │
//!              ├──► lines(now, width)                  lines.rs: text, pure
//!              ├──► events.rs                          lines of JSON, pure
//!              └──► live.rs draws them · plain.rs writes one line for what ended
//! ```

pub mod estimate;
pub mod events;
pub mod lines;
pub mod live;
pub mod plain;
pub mod plan;
pub mod progress_state;
pub mod progress_view;
pub mod spinner;

pub use live::Display;

#[cfg(test)]
mod tests;
