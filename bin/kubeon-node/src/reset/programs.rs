//! Runs the programs of the host that a reset needs.

use std::time::{Duration, Instant};

use kubeon_process::{ProgramError, ProgramOutput};
use kubeon_wire::StepFailure;

use crate::command::{run, step_failure};
use crate::failure::failed;

/// The time limit of one program.
pub(super) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a program; `None` if the host does not have it.
pub(super) fn call(
    program: &str,
    arguments: &[&str],
    input: Option<String>,
) -> Result<Option<ProgramOutput>, StepFailure> {
    match run(program, arguments, input, Instant::now() + PROGRAM_TIMEOUT) {
        Ok(done) => Ok(Some(done)),
        Err(ProgramError::Missing { .. }) => Ok(None),
        Err(other) => Err(step_failure(other)),
    }
}

/// Converts an exit code other than 0 to a failure.
pub(super) fn check(done: &ProgramOutput, what: &str) -> Result<(), StepFailure> {
    if done.success() { Ok(()) } else { Err(failed(format!("{what} failed: {}", done.last_line()))) }
}
