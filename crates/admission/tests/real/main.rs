//! Every denial and its message, by real requests to a real API server: schema, policies, webhook and roles as they are
//! installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod certificate;
mod clients;
mod cluster_changes;
mod front_proxy;
mod host_pool;
mod inventories;
mod policies;
mod roles;
mod webhook;
mod world;
