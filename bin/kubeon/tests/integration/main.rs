//! The program as its user meets it: its arguments, its files, its terminal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod cli;
mod destroy;
mod home;
mod inventory;
mod load_balancer;
mod logins;
mod lost_keys;
mod meta_install;
mod request;
mod static_programs;
mod terminal;
