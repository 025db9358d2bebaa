//! Tests the program kubeon-runner as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test reports the line")]

mod callback;
mod kubeon;
mod meta;
mod output;
mod process;
mod rollback;
mod support;
mod traces;
