//! The adapter of the Kubernetes API against a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail loudly")]

mod events;
mod example;
mod silence;
