//! The operator's program against a real API server, through a proxy that fails on demand. Jobs are ended by the tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail loudly")]

mod bad_input;
mod deaths;
mod events;
mod faults;
mod http;
mod installed;
mod kubernetes_cluster;
mod lab;
mod leadership;
mod lifecycle;
mod lives;
mod malformed;
mod metrics;
mod prometheus;
mod side_by_side;
mod traces;
