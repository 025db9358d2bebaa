//! kubectl: the bundle's where it is at hand, else the one in PATH. It applies objects as people do, so this program need
//! not link a client of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::cli_error::CliError;
use crate::context::Context;

/// Longest that one command may take beyond what it was told to wait for.
const LIMIT: Duration = Duration::from_secs(3700);

/// kubectl, going to one cluster.
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Finds the program.
    ///
    /// # Errors
    /// Refuses when there is none.
    pub(super) fn at_hand(context: &Context<'_>, kubeconfig: PathBuf) -> Result<Self, CliError> {
        let own = context.environment.state_folder().map(|folder| folder.join("bin/kubectl"));
        let in_path = context.environment.path.iter().map(|folder| folder.join("kubectl"));
        match own.into_iter().chain(in_path).find(|program| program.is_file()) {
            Some(program) => Ok(Self { program, kubeconfig }),
            None => {
                Err(CliError::refused("kubectl is not at hand")
                    .hint("kubeon use NAME puts the bundle's there"))
            }
        }
    }

    /// How it reaches the cluster.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs it and gives back what it printed.
    ///
    /// # Errors
    /// When it cannot be run or does not succeed, with its last words.
    pub(super) async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String, CliError> {
        let shown = format!("kubectl {}", arguments.iter().take(3).copied().collect::<Vec<_>>().join(" "));
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| CliError::failed(format!("cannot run {}: {error}", self.program.display())))?;
        let stdin = child.stdin.take();
        let write = async {
            if let (Some(mut stdin), Some(text)) = (stdin, input) {
                // A program that ended early has said why; what it did not read is of no interest.
                let _ = stdin.write_all(text.as_bytes()).await;
            }
        };
        let (output, ()) =
            tokio::time::timeout(LIMIT, async { tokio::join!(child.wait_with_output(), write) })
                .await
                .map_err(|_| {
                    CliError::failed(format!("{shown} gave no answer within {} s", LIMIT.as_secs()))
                })?;
        let output = output.map_err(|error| CliError::failed(format!("{shown}: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.lines().rev().take(8).collect::<Vec<_>>();
        let stop = CliError::failed(format!("{shown} did not succeed ({})", output.status));
        Err(last.into_iter().rev().fold(stop, |stop, line| stop.row("kubectl", line)))
    }
}
