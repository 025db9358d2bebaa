//! The simulated hosts, and every death that they can die.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod crash_anywhere;
mod crash_scaling;
mod harness;
mod precheck;
mod support;
mod world;
