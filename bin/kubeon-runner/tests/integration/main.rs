//! The program kubeon-runner as a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod callback;
mod kubeon;
mod meta;
mod output;
mod process;
mod support;
mod traces;
