//! Connects the output of the engine to the output of this program.

use kubeon_apply::RunObserver;
use kubeon_engine::error::EngineError;
use kubeon_engine::output::EngineOutput;
use kubeon_engine::remedy::EngineRemedy;
use kubeon_plan::Plan;
use kubeon_wire::Progress;

use crate::display::Display;
use crate::output::CliOutput;
use crate::remedies;

impl EngineOutput for CliOutput {
    fn info(&self, line: &str) {
        Self::info(self, line);
    }

    fn detail(&self, level: u8, line: &str) {
        Self::detail(self, level, line);
    }

    fn warn(&self, line: &str) {
        Self::warn(self, line);
    }

    fn progress(&self, progress: &Progress) {
        Self::progress(self, progress);
    }

    fn remedy_text(&self, remedy: &EngineRemedy) -> String {
        remedies::engine(remedy).phrase()
    }

    fn can_ask(&self) -> bool {
        self.can_ask
    }

    fn confirm(&self, question: &str) -> Result<bool, EngineError> {
        Ok(self.ask(question)?)
    }

    fn ask_secret(&self, what: &str) -> Result<String, EngineError> {
        Ok(rpassword::prompt_password(format!("{what}: "))?)
    }

    fn observe(&self, plan: &Plan) -> Box<dyn RunObserver> {
        Box::new(Display::begin(plan, self))
    }
}
