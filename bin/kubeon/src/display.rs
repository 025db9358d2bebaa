//! What a person sees while steps are done: a moving board on a terminal, one line a step elsewhere.
//!
//! ```text
//!   Plan ──► Board ◄── RunEvent (from apply)          board.rs: what is known, no clock, no terminal
//!              │
//!              ├──► lines(now, width)                  lines.rs: text, pure
//!              ├──► events.rs                          lines of JSON, pure
//!              └──► live.rs draws them · plain.rs writes one line for what ended
//! ```

pub mod board;
pub mod estimate;
pub mod events;
pub mod lines;
pub mod live;
pub mod plain;
pub mod plan;
pub mod spinner;

pub use live::Display;

#[cfg(test)]
mod tests;
