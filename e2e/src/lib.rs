//! Tools of the end-to-end tests: running programs, the lab's hosts, and the image of `lab-client`.
//!
//! ```text
//!   tests/*.rs ──►  TestLab (kubeon lab …)  ──►  kubeon create …  ──►  kubectl …  ──►  pods of lab-client
//! ```

pub mod ansible;
pub mod certificates;
pub mod host_snapshot;
pub mod image;
pub mod killed;
pub mod lab;
pub mod links;
pub mod machine_state;
pub mod probe;
pub mod program;
pub mod published;
pub mod running;
pub mod writer;
