//! Everything over a real sshd on loopback. Where there is none, or no right to start one, the tests say so and pass.

mod exec;
mod login;
mod session;
mod support;
