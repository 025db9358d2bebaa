//! Asks a program of Kubernetes whether it knows its feature gates. Neither `--help` nor a list in it answers that: the help comes
//! before the gates are read, and names no gate that is generally available.

use kubeon_api::clip;
use kubeon_process::ProgramOutput;
use kubeon_wire::{Category, StepFailure};

use crate::command::{run, step_failure};
use crate::failure::of;
use crate::job::Job;

/// The program that prints its version before it reads its gates. It reads the gates before its configuration.
const KUBELET: &str = "kubelet";
/// A file that cannot exist.
const NO_FILE: &str = "/dev/null/none";

/// What programs write about a gate that they do not know, or cannot set.
const COMPLAINTS: [&str; 2] = ["unrecognized feature gate", "cannot set feature gate"];

/// Checks that a program knows its feature gates. The programs of the control plane set them before they print their version. The
/// kubelet gets a configuration that does not exist, so that it ends after it has set them.
///
/// # Errors
/// With what the program says about them, or if it cannot be asked.
pub(super) fn known(job: &Job<'_>, program: &str, arguments: &[String]) -> Result<(), StepFailure> {
    let place = job.host.root.given(program)?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let last = if name == KUBELET { format!("--config={NO_FILE}") } else { "--version".to_owned() };
    let all: Vec<&str> = arguments.iter().map(String::as_str).chain([last.as_str()]).collect();
    let done = run(&place.to_string_lossy(), &all, None, job.deadline).map_err(step_failure)?;
    let complaint = complaint(&done);
    let ended_after_gates = done.success() || (name == KUBELET && done.stderr.contains(NO_FILE));
    if complaint.is_none() && ended_after_gates {
        return Ok(());
    }
    let said = complaint.unwrap_or_else(|| done.last_line());
    Err(of(Category::Unsupported, format!("{name} does not take the declared feature gates: {said}")))
}

/// The complaint without what the logger writes around it.
fn complaint(done: &ProgramOutput) -> Option<String> {
    done.stderr.lines().find_map(|line| {
        let start = COMPLAINTS.iter().find_map(|words| line.find(words))?;
        Some(clip(line.get(start..)?.trim_end_matches('"'), 300).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Bench;

    fn ask(name: &str, script: &str) -> Result<(), StepFailure> {
        let bench = Bench::new();
        let program = format!("/var/lib/kubeon/parts/d/bin/{name}");
        bench.write(&program, script);
        fs::set_permissions(bench.host.root.at(&program), fs::Permissions::from_mode(0o755)).unwrap();
        known(&bench.job(), &program, &["--feature-gates=A=true".to_owned()])
    }

    #[test]
    fn the_control_plane_is_asked_for_its_version() {
        ask("kube-scheduler", "#!/bin/sh\ntest \"$*\" = '--feature-gates=A=true --version'\n").unwrap();
        let unknown = "#!/bin/sh\necho 'E1130 00:22:15.494218   15816 run.go:72] \"command failed\" \
                       err=\"unrecognized feature gate: A\"' >&2\nexit 1\n";
        let failure = ask("kube-apiserver", unknown).unwrap_err();
        assert_eq!(failure.category, Category::Unsupported);
        assert_eq!(
            failure.cause,
            "kube-apiserver does not take the declared feature gates: unrecognized feature gate: A"
        );
    }

    #[test]
    fn the_kubelet_ends_at_a_configuration_that_does_not_exist() {
        let known = "#!/bin/sh\ntest \"$*\" = '--feature-gates=A=true --config=/dev/null/none' || exit 2\n\
                     echo 'failed to load kubelet config file, path: /dev/null/none' >&2\nexit 1\n";
        ask("kubelet", known).unwrap();
        let locked = "#!/bin/sh\necho 'err=\"failed to set feature gates from initial flags-based config: cannot set feature \
                      gate A to false, feature is locked to true\"' >&2\nexit 1\n";
        let failure = ask("kubelet", locked).unwrap_err();
        let text = "kubelet does not take the declared feature gates: cannot set feature gate A to false, feature is locked to true";
        assert_eq!(failure.cause, text);
        let broken = ask("kubelet", "#!/bin/sh\necho 'cannot load a library' >&2\nexit 127\n").unwrap_err();
        assert!(broken.cause.ends_with(": cannot load a library"), "{broken}");
    }
}
