//! Tests of the program: arguments, files, terminal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "an unexpected result fails the test")]

mod cli;
mod config;
mod destroy;
mod home;
mod inventory;
mod load_balancer;
mod logins;
mod lost_keys;
mod many_hosts;
mod meta_install;
mod meta_restore;
mod observer;
mod request;
mod scale;
mod static_programs;
mod terminal;
