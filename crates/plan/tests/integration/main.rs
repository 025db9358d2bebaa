//! Golden stories of plans, and the rules that every plan keeps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod lint;
mod network;
mod precheck;
mod scaling;
mod stories;
mod support;
