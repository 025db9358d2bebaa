//! Asks a program whether it knows its arguments. It does not start: all programs of Kubernetes and etcd read their whole
//! command line before they print their help and end.

use kubeon_api::clip;
use kubeon_process::ProgramOutput;
use kubeon_wire::{Category, StepFailure};

use crate::command::{run, step_failure};
use crate::failure::of;
use crate::job::Job;

/// What programs write about an argument that they do not know, or about its value.
const COMPLAINTS: [&str; 4] =
    ["unknown flag: ", "flag provided but not defined: ", "invalid argument \"", "invalid value \""];

/// Checks that a program takes the arguments.
///
/// # Errors
/// With what the program says about them, or if it cannot be asked.
pub(super) fn accepted(job: &Job<'_>, program: &str, arguments: &[String]) -> Result<(), StepFailure> {
    let place = job.host.root.given(program)?;
    let all: Vec<&str> = arguments.iter().map(String::as_str).chain(["--help"]).collect();
    let done = run(&place.to_string_lossy(), &all, None, job.deadline).map_err(step_failure)?;
    if done.success() {
        return Ok(());
    }
    let name = program.rsplit('/').next().unwrap_or(program);
    Err(of(
        Category::Unsupported,
        format!("{name} does not take its further arguments: {}", complaint(&done)),
    ))
}

fn complaint(done: &ProgramOutput) -> String {
    let mut lines = done.stderr.lines().chain(done.stdout.lines());
    let found = lines.find(|line| COMPLAINTS.iter().any(|words| line.contains(words)));
    found.map_or_else(|| done.last_line(), |line| clip(line.trim(), 300).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Bench;

    const PROGRAM: &str = "/var/lib/kubeon/parts/d/bin/kubelet";

    fn ask(script: &str) -> Result<(), StepFailure> {
        let bench = Bench::new();
        bench.write(PROGRAM, script);
        let place = bench.host.root.at(PROGRAM);
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        accepted(&bench.job(), PROGRAM, &["--v=4".to_owned()])
    }

    #[test]
    fn a_program_is_asked_with_its_arguments_and_does_not_start() {
        ask("#!/bin/sh\ntest \"$*\" = '--v=4 --help'\n").unwrap();
    }

    #[test]
    fn the_argument_that_a_program_does_not_know_is_named() {
        let usage = "#!/bin/sh\necho 'Usage: kubelet [flags]' >&2\necho 'Error: unknown flag: --nosuch' >&2\n\
                     echo 'see --help' >&2\nexit 1\n";
        let failure = ask(usage).unwrap_err();
        assert_eq!(failure.category, Category::Unsupported);
        assert_eq!(
            failure.cause,
            "kubelet does not take its further arguments: Error: unknown flag: --nosuch"
        );
        let other = ask("#!/bin/sh\necho 'cannot load a library' >&2\nexit 127\n").unwrap_err();
        assert!(other.cause.ends_with(": cannot load a library"), "{other}");
    }
}
