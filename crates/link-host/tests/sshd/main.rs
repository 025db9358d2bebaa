//! Tests with a real sshd on loopback. They fail without root, `unshare` or sshd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod exec;
mod jump;
mod lab;
mod login;
mod session;
mod support;
