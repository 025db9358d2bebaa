//! Everything over a real sshd on loopback. Where there is none, or no right to start one, the tests say so and pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod exec;
mod lab;
mod login;
mod session;
mod support;
