//! The operator's program with a real API server, through a proxy that fails on demand. The tests end the Jobs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail loudly")]

mod bad_input;
mod crashes;
mod events;
mod faults;
mod gitops;
mod history_size;
mod http;
mod installed;
mod kubernetes_cluster;
mod lab;
mod leadership;
mod lifecycle;
mod malformed;
mod metrics;
mod observation;
mod parallel;
mod prometheus;
mod restarts;
mod restored;
mod scenarios;
mod traces;
mod uninstall;
mod upgrade;
