//! What came of the work: one exit code, one reason.

use rustix::process::Signal;

use crate::family::Ending;
use crate::stop::Told;
use crate::tail::{Tail, clip};

/// What the kubelet takes of a termination message.
const MESSAGE: usize = 4096;
/// Of that, at most for the reason.
const REASON: usize = 2048;

/// What came of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code.
    pub code: u8,
    /// Why not, in words; none when all was done.
    pub reason: Option<String>,
    /// By which signal it was told to stop.
    pub terminated: Option<&'static str>,
    /// The admin kubeconfig of a cluster that was made.
    pub kubeconfig: Option<String>,
}

impl Outcome {
    /// All was done.
    #[must_use]
    pub fn done() -> Self {
        Self { code: 0, reason: None, terminated: None, kubeconfig: None }
    }

    /// It was not.
    #[must_use]
    pub fn failed(code: u8, reason: impl Into<String>) -> Self {
        Self { code: code.max(1), reason: Some(reason.into()), ..Self::done() }
    }

    /// A program ended. One that was told to stop did not do its work, whatever it says.
    #[must_use]
    pub fn of(ending: Ending, told: Option<Told>, reason: impl FnOnce() -> String) -> Self {
        match (told, ending) {
            (Some(told), _) => Self::told(told),
            (None, Ending::Code(0)) => Self::done(),
            (None, other) => Self::failed(other.code(), reason()),
        }
    }

    /// It was told to stop.
    #[must_use]
    pub fn told(told: Told) -> Self {
        let word = if told.signal == Signal::INT { "interrupted" } else { "terminated" };
        Self { code: told.code(), reason: Some(word.to_owned()), terminated: Some(word), kubeconfig: None }
    }

    /// One word for a condition's reason.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.code, self.terminated) {
            (0, _) => "Succeeded",
            (_, Some(_)) => "Terminated",
            _ => "Failed",
        }
    }

    /// What the kubelet is told: the reason, where it was, and the last lines that the work said.
    #[must_use]
    pub fn message(&self, at: Option<&str>, steps: &str, stderr: &Tail, stdout: &Tail) -> String {
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
    fn tells_reason_place_and_last_words_within_the_kubelets_limit() {
        let (stderr, stdout) = (Tail::default(), Tail::default());
        for number in 0..200 {
            stderr.push(&format!("{number} {}", "ä".repeat(150)));
            stdout.push("out");
        }
        let outcome = Outcome::failed(2, "the script ended with exit code 2");
        let text = outcome.message(Some("TASK [etcd]"), "3/…", &stderr, &stdout);
        assert!(text.len() <= MESSAGE, "{}", text.len());
        assert!(text.starts_with(
            "the script ended with exit code 2 at TASK [etcd]\n--- last lines of standard error:\n"
        ));
        assert!(text.contains("199 ä"));
    }

    #[test]
    fn standard_output_has_the_room_that_is_left() {
        let (stderr, stdout) = (Tail::default(), Tail::default());
        stderr.push("warning");
        stdout.push("fatal: [h1]: FAILED!");
        let text = Outcome::failed(2, "x").message(None, "", &stderr, &stdout);
        assert_eq!(
            text,
            "x\n--- last lines of standard error:\nwarning\n--- last lines of standard output:\nfatal: [h1]: FAILED!\n"
        );
    }

    #[test]
    fn a_failure_never_has_the_code_of_success() {
        assert_eq!(Outcome::failed(0, "state was not saved").code, 1);
    }
}
