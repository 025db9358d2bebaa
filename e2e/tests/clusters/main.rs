//! Proof on real parts: every module raises hosts of its own in the lab, so that two of them can run at the same time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod cluster;
mod daily;
mod deaths;
mod meta_cluster;
mod newcomer;
mod playbooks;
mod refusals;
mod scale;
