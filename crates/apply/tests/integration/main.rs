//! A plan is executed on scripted hosts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod order;
mod support;
mod telling;
mod trouble;
