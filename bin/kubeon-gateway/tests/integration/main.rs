//! The gateway in front of a real API server: callers, both versions, streams, hostile input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod callers;
mod client;
mod description;
mod hostile;
mod kubelet;
mod limits;
mod logs;
mod measure;
mod oidc;
mod provider;
mod random_requests;
mod real_provider;
mod streams;
mod support;
mod v1;
mod v1_callback;
mod v2;
mod v2_writes;
