//! What the end-to-end tests stand on: running programs, the lab's hosts, and an image that holds
//! `lab-client`.
//!
//! ```text
//!   tests/*.rs ──►  TestLab (kubeon lab …)  ──►  kubeon create …  ──►  kubectl …  ──►  pods of lab-client
//! ```

pub mod ansible;
pub mod image;
pub mod lab;
pub mod links;
pub mod machine_state;
pub mod program;
pub mod running;
