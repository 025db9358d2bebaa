//! Runs programs to their end, with a time limit, a process group, an input and bounded output, or in the background. No
//! async runtime.
//!
//! ```text
//!   ProgramRun ─► stdin thread, two reader threads, one thread that waits for the exit ─► channel ─► run()
//!                                    at the limit: SIGTERM, grace period, SIGKILL to the whole group
//! ```
//!
//! `process-wrap` is not used: its blocking variant has no wait with a deadline, and the process group itself is one
//! call of the standard library.

mod background;
mod error;
mod foreground;
mod output;
mod program;

pub use background::BackgroundProgram;
pub use error::ProgramError;
pub use foreground::ProgramStopper;
pub use output::{OutputPipe, OutputTail, ProgramOutput};
pub use program::{ProgramRun, die_with_parent, find_on_path, find_program};
