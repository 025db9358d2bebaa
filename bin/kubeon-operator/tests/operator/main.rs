//! The operator's program against a real API server, through a proxy that fails on demand. Jobs are ended by the tests.

mod business;
mod faults;
mod lab;
mod lifecycle;
