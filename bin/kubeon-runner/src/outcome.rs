//! The result of the work: one exit code, one reason.

use kubeon_api::clip;
use rustix::process::Signal;

use crate::reaper::ProcessEnd;
use crate::shutdown::ShutdownRequest;
use crate::tail::Tail;

/// The kubelet's limit for a termination message, in bytes.
const MESSAGE: usize = 4096;
/// The longest reason in it, in bytes.
const REASON: usize = 2048;

/// How the work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkResult {
    /// It succeeded.
    Succeeded,
    /// A signal stopped it.
    Terminated,
    /// It failed.
    Failed,
}

impl WorkResult {
    /// The reason of the condition.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Terminated => "Terminated",
            Self::Failed => "Failed",
        }
    }
}

/// The result of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkOutcome {
    /// The exit code.
    pub code: u8,
    /// The reason for a failure; none after a success.
    pub reason: Option<String>,
    /// `terminated` or `interrupted`, when a signal stopped the work.
    pub terminated: Option<&'static str>,
    /// The admin kubeconfig of a cluster that was created.
    pub kubeconfig: Option<String>,
}

impl WorkOutcome {
    /// The work succeeded.
    #[must_use]
    pub(crate) fn succeeded() -> Self {
        Self { code: 0, reason: None, terminated: None, kubeconfig: None }
    }

    /// The work failed.
    #[must_use]
    pub(crate) fn failed(code: u8, reason: impl Into<String>) -> Self {
        Self { code: code.max(1), reason: Some(reason.into()), ..Self::succeeded() }
    }

    /// A program ended. After a shutdown request the work counts as stopped, with any exit code.
    #[must_use]
    pub(crate) fn of(
        ending: ProcessEnd,
        shutdown: Option<ShutdownRequest>,
        reason: impl FnOnce() -> String,
    ) -> Self {
        match (shutdown, ending) {
            (Some(request), _) => Self::stopped(request),
            (None, ProcessEnd::Code(0)) => Self::succeeded(),
            (None, other) => Self::failed(other.code(), reason()),
        }
    }

    /// A signal stopped the work.
    #[must_use]
    pub(crate) fn stopped(request: ShutdownRequest) -> Self {
        let word = if request.signal == Signal::INT { "interrupted" } else { "terminated" };
        Self { code: request.code(), reason: Some(word.to_owned()), terminated: Some(word), kubeconfig: None }
    }

    /// How the work ended.
    #[must_use]
    pub(crate) fn result(&self) -> WorkResult {
        match (self.code, self.terminated) {
            (0, _) => WorkResult::Succeeded,
            (_, Some(_)) => WorkResult::Terminated,
            _ => WorkResult::Failed,
        }
    }

    /// The termination message for the kubelet: the reason, the current step, and the last lines of the output.
    #[must_use]
    pub(crate) fn message(&self, at: Option<&str>, steps: &str, stderr: &Tail, stdout: &Tail) -> String {
        let Some(reason) = &self.reason else { return format!("succeeded: {steps}\n") };
        let at = at.map(|at| format!(" at {at}")).filter(|_| !reason.contains('\n'));
        let mut text = format!("{}{}\n", clip(reason, REASON).trim_end(), at.unwrap_or_default());
        for (name, tail) in [("standard error", stderr), ("standard output", stdout)] {
            let title = format!("--- last lines of {name}:\n");
            let lines = tail.last(MESSAGE.saturating_sub(text.len() + title.len()));
            if !lines.is_empty() {
                text.push_str(&title);
                text.push_str(&lines);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_reason_step_and_last_lines_within_the_kubelets_limit() {
        let (stderr, stdout) = (Tail::default(), Tail::default());
        for number in 0..200 {
            stderr.push(&format!("{number} {}", "ä".repeat(150)));
            stdout.push("out");
        }
        let outcome = WorkOutcome::failed(2, "the script ended with exit code 2");
        let text = outcome.message(Some("TASK [etcd]"), "3/…", &stderr, &stdout);
        assert!(text.len() <= MESSAGE, "{}", text.len());
        assert!(text.starts_with(
            "the script ended with exit code 2 at TASK [etcd]\n--- last lines of standard error:\n"
        ));
        assert!(text.contains("199 ä"));
    }

    #[test]
    fn standard_output_gets_the_remaining_bytes() {
        let (stderr, stdout) = (Tail::default(), Tail::default());
        stderr.push("warning");
        stdout.push("fatal: [h1]: FAILED!");
        let text = WorkOutcome::failed(2, "x").message(None, "", &stderr, &stdout);
        assert_eq!(
            text,
            "x\n--- last lines of standard error:\nwarning\n--- last lines of standard output:\nfatal: [h1]: FAILED!\n"
        );
    }

    #[test]
    fn a_failure_never_has_the_code_of_success() {
        assert_eq!(WorkOutcome::failed(0, "state was not saved").code, 1);
    }
}
