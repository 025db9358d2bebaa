//! Runs kubectl on this machine: the kubectl of the bundle if it is linked, else the kubectl in `PATH`. The
//! engine links no API client.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_process::{ProgramError, ProgramRun};

use crate::environment::EngineEnvironment;
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;

/// Time limit of a command. It is longer than the longest wait of a command.
const TIMEOUT: Duration = Duration::from_secs(3700);
/// Maximum number of lines of standard error in an error.
const ERROR_LINES: usize = 8;

/// kubectl for one cluster.
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Finds the program.
    ///
    /// # Errors
    /// Refuses when kubectl is not found.
    pub fn find(environment: &EngineEnvironment, kubeconfig: PathBuf) -> Result<Self, EngineError> {
        let linked = environment.state_folder.as_ref().map(|folder| folder.join("bin/kubectl"));
        let in_path = environment.path.iter().map(|folder| folder.join("kubectl"));
        match linked.into_iter().chain(in_path).find(|program| program.is_file()) {
            Some(program) => Ok(Self { program, kubeconfig }),
            None => {
                Err(EngineError::refused("kubectl was not found in PATH").remedy(EngineRemedy::LinkKubectl))
            }
        }
    }

    /// The kubeconfig of the cluster.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl and returns its standard output.
    ///
    /// # Errors
    /// When kubectl cannot be run or fails, with the end of its standard error.
    pub async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String, EngineError> {
        let shown = format!("kubectl {}", arguments.iter().take(3).copied().collect::<Vec<_>>().join(" "));
        // Ctrl-C of the terminal must reach kubectl too.
        let mut program = ProgramRun::new(&self.program, TIMEOUT).in_our_group();
        program.command().arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        if let Some(text) = input {
            program = program.input(text);
        }
        let output = tokio::task::spawn_blocking(move || program.run())
            .await
            .map_err(|error| EngineError::failed(format!("{shown}: {error}")))?
            .map_err(|error| failure(&shown, &error))?;
        if output.success() {
            return Ok(output.stdout);
        }
        let lines: Vec<&str> = output.stderr.lines().collect();
        let last = &lines[lines.len().saturating_sub(ERROR_LINES)..];
        let error = EngineError::failed(format!("{shown} did not succeed ({})", output.status));
        Err(last.iter().fold(error, |error, line| error.row("kubectl", *line)))
    }
}

fn failure(shown: &str, error: &ProgramError) -> EngineError {
    match error {
        ProgramError::Timeout { limit, .. } => {
            EngineError::failed(format!("{shown} gave no answer within {} s", limit.as_secs()))
        }
        other => EngineError::failed(chain(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::error::ErrorCategory;

    fn kubectl(folder: &Path, script: &str) -> Kubectl {
        let program = folder.join("kubectl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let environment = EngineEnvironment { path: vec![folder.to_owned()], ..EngineEnvironment::default() };
        Kubectl::find(&environment, "/kubeconfig".into()).unwrap()
    }

    #[tokio::test]
    async fn passes_the_kubeconfig_and_the_input() {
        let folder = tempfile::tempdir().unwrap();
        let output =
            kubectl(folder.path(), "echo \"$@\"; cat").run(&["apply", "-f", "-"], Some("text")).await;
        assert_eq!(output.unwrap(), "--kubeconfig /kubeconfig apply -f -\ntext");
    }

    #[tokio::test]
    async fn an_error_has_the_last_lines_of_standard_error() {
        let folder = tempfile::tempdir().unwrap();
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i >&2; done; exit 1";
        let error = kubectl(folder.path(), script).run(&["get", "nodes"], None).await.unwrap_err();
        assert_eq!(error.title, "kubectl get nodes did not succeed (exit status: 1)");
        let lines: Vec<_> = error.rows.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!((lines.len(), lines[0], lines[7]), (8, "line 3", "line 10"));
    }

    #[test]
    fn a_missing_kubectl_is_refused() {
        let none = Kubectl::find(&EngineEnvironment::default(), "/kubeconfig".into()).err().unwrap();
        assert_eq!(none.category, ErrorCategory::Refused);
    }
}
