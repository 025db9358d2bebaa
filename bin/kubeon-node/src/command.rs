//! Runs programs of the host.

use std::time::Instant;

use kubeon_process::{ProgramError, ProgramOutput, ProgramRun};
use kubeon_wire::{Category, StepFailure};

use crate::failure::{failed, of, plain};

/// The search path for programs: the default path of a login without a shell often has no `sbin` folders. The
/// last folder contains the bundle's programs, for hosts without their own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/var/lib/kubeon/tools";

/// Runs a program with `input` on its standard input until `deadline`.
///
/// # Errors
/// If it cannot be started or does not end in time. An exit code other than 0 is not an error.
pub fn run(
    program: &str,
    arguments: &[&str],
    input: Option<String>,
    deadline: Instant,
) -> Result<ProgramOutput, ProgramError> {
    let mut run = ProgramRun::new(program, deadline.saturating_duration_since(Instant::now()));
    if let Some(input) = input {
        run = run.input(input);
    }
    run.command().args(arguments).env("PATH", PATH).env("LC_ALL", "C.UTF-8").env("SYSTEMD_COLORS", "0");
    run.run()
}

/// Converts the error of a program to the failure of a step.
#[must_use]
pub fn step_failure(error: ProgramError) -> StepFailure {
    match error {
        ProgramError::Missing { program, .. } => {
            of(Category::Unsupported, format!("the host has no program {program}"))
        }
        ProgramError::Timeout { program, .. } => {
            of(Category::Timeout, format!("{program} did not finish in time"))
        }
        ProgramError::Start { program, source } => {
            failed(format!("cannot start {program}: {}", plain(&source)))
        }
        failure @ (ProgramError::Failed { .. } | ProgramError::Stopped { .. }) => failed(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_the_missing_program() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let failure = step_failure(run("no-such-program", &[], None, deadline).unwrap_err());
        assert_eq!(failure.category, Category::Unsupported);
        assert!(failure.cause.contains("no-such-program"), "{failure}");
    }

    #[test]
    fn a_program_that_runs_past_the_deadline_is_a_timeout() {
        let deadline = Instant::now() + Duration::from_millis(100);
        let failure = step_failure(run("sleep", &["60"], None, deadline).unwrap_err());
        assert_eq!(failure.category, Category::Timeout);
    }
}
