//! The output of the engine, which the caller provides: messages, questions, and a view of runs.

use kubeon_apply::RunObserver;
use kubeon_plan::Plan;
use kubeon_wire::Progress;

use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// Receives messages and answers questions.
pub trait EngineOutput: Send + Sync {
    /// Prints an informational message.
    fn info(&self, line: &str);

    /// Prints a message if the verbosity is at least `level`.
    fn detail(&self, level: u8, line: &str);

    /// Prints a warning.
    fn warn(&self, line: &str);

    /// Emits a progress event for programs.
    fn progress(&self, progress: &Progress);

    /// A remedy in the terms of the caller, as a phrase for a message.
    fn remedy_text(&self, remedy: &EngineRemedy) -> String;

    /// An error with its remedy in one line, for a message that is not an error.
    fn one_line(&self, error: &EngineError) -> String {
        match &error.remedy {
            Some(remedy) => format!("{}; {}", error.title, self.remedy_text(remedy)),
            None => error.title.clone(),
        }
    }

    /// Whether the user can answer questions.
    fn can_ask(&self) -> bool;

    /// Asks a yes-or-no question. Returns false when the user cannot answer.
    ///
    /// # Errors
    /// When the answer cannot be read.
    fn confirm(&self, question: &str) -> Result<bool, EngineError>;

    /// Asks for a secret without echoing it.
    ///
    /// # Errors
    /// When the answer cannot be read.
    fn ask_secret(&self, what: &str) -> Result<String, EngineError>;

    /// Shows the run of a plan until the returned observer is dropped.
    fn observe(&self, plan: &Plan) -> Box<dyn RunObserver>;
}

/// Prints nothing and answers no question.
#[cfg(test)]
pub(crate) struct SilentOutput;

#[cfg(test)]
impl EngineOutput for SilentOutput {
    fn info(&self, _: &str) {}
    fn detail(&self, _: u8, _: &str) {}
    fn warn(&self, _: &str) {}
    fn progress(&self, _: &Progress) {}
    fn remedy_text(&self, remedy: &EngineRemedy) -> String {
        format!("{remedy:?}")
    }
    fn can_ask(&self) -> bool {
        false
    }
    fn confirm(&self, _: &str) -> Result<bool, EngineError> {
        Ok(false)
    }
    fn ask_secret(&self, what: &str) -> Result<String, EngineError> {
        Err(EngineError::refused(format!("cannot ask for {what}")))
    }
    fn observe(&self, _: &Plan) -> Box<dyn RunObserver> {
        Box::new(|_| {})
    }
}
