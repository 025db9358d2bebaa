//! What the engine needs of its caller: a place for messages, answers to questions, a view of a run.

use kubeon_apply::RunObserver;
use kubeon_plan::Plan;
use kubeon_wire::Progress;

use crate::error::EngineError;

/// Receives messages and answers questions.
pub trait EngineOutput: Send + Sync {
    /// A line that explains what happens.
    fn say(&self, line: &str);

    /// A line for those who asked for this much detail.
    fn detail(&self, level: u8, line: &str);

    /// A warning.
    fn warn(&self, line: &str);

    /// An event for programs.
    fn progress(&self, progress: &Progress);

    /// Whether questions can be answered.
    fn can_ask(&self) -> bool;

    /// Asks a question that is answered by yes or no; no when it cannot be asked.
    ///
    /// # Errors
    /// When the answer cannot be read.
    fn confirm(&self, question: &str) -> Result<bool, EngineError>;

    /// Asks for a secret without showing it.
    ///
    /// # Errors
    /// When the answer cannot be read.
    fn ask_secret(&self, what: &str) -> Result<String, EngineError>;

    /// Observes the run of a plan until it is dropped.
    fn observe(&self, plan: &Plan) -> Box<dyn RunObserver>;
}

/// Shows nothing and answers no question.
#[cfg(test)]
pub(crate) struct SilentOutput;

#[cfg(test)]
impl EngineOutput for SilentOutput {
    fn say(&self, _: &str) {}
    fn detail(&self, _: u8, _: &str) {}
    fn warn(&self, _: &str) {}
    fn progress(&self, _: &Progress) {}
    fn can_ask(&self) -> bool {
        false
    }
    fn confirm(&self, _: &str) -> Result<bool, EngineError> {
        Ok(false)
    }
    fn ask_secret(&self, what: &str) -> Result<String, EngineError> {
        Err(EngineError::refused(format!("nobody can be asked for {what}")))
    }
    fn observe(&self, _: &Plan) -> Box<dyn RunObserver> {
        Box::new(|_| {})
    }
}
