//! Executes plans on simulated hosts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod events;
mod faults;
mod order;
mod support;
