//! The error of a command: a text for people, an exit code for programs.

use std::fmt;

use kubeon_engine::error::{EngineError, ErrorCategory};
use kubeon_engine::remedy::EngineRemedy;
use kubeon_plan::{Note, Refusal};
use kubeon_store::StoreError;

use crate::next_step::NextStep;
use crate::refusal_flags;
use crate::remedies::{self, RenderedRemedy};

/// The exit code of an error. The exit code of success is 0.
pub(crate) fn exit_code(category: ErrorCategory) -> u8 {
    match category {
        ErrorCategory::Failed => 1,
        ErrorCategory::Refused => 2,
        // Ctrl-C or SIGTERM: 128 plus the number of SIGINT.
        ErrorCategory::Interrupted => 130,
    }
}

/// The error of a command: its reason, details, and the next command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    /// The category; it determines the exit code.
    pub category: ErrorCategory,
    /// The first line without `error: `; empty if everything was printed already.
    pub title: String,
    /// Details: subject and text.
    pub rows: Vec<(String, String)>,
    /// The reasons of a refusal as data, for programs.
    pub refusals: Box<[Refusal]>,
    /// Warnings that belong to the error.
    pub warnings: Vec<String>,
    /// The last line: what the user can do next.
    pub next: Option<Box<NextStep>>,
}

impl CliError {
    /// An error with a title and no details.
    pub(crate) fn new(category: ErrorCategory, title: impl Into<String>) -> Self {
        Self {
            category,
            title: title.into(),
            rows: Vec::new(),
            refusals: Box::default(),
            warnings: Vec::new(),
            next: None,
        }
    }

    /// A refusal before the first effect.
    pub(crate) fn refused(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Refused, title)
    }

    /// A failed action.
    pub(crate) fn failed(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Failed, title)
    }

    /// An error that prints nothing and only sets the exit code.
    pub(crate) fn silent(category: ErrorCategory) -> Self {
        Self::new(category, "")
    }

    /// Adds a detail.
    #[must_use]
    pub(crate) fn row(mut self, subject: impl Into<String>, text: impl Into<String>) -> Self {
        self.rows.push((subject.into(), text.into()));
        self
    }

    /// Sets the next step.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<Option<NextStep>>) -> Self {
        self.next = next.into().map(Box::new);
        self
    }

    /// Sets the next command and what it does: `continue with`.
    #[must_use]
    pub(crate) fn next_command(self, purpose: &str, command: impl Into<String>) -> Self {
        self.next(NextStep::command(purpose, command))
    }

    /// Adds a remedy of the engine.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: Option<&EngineRemedy>) -> Self {
        let RenderedRemedy { rows, next } = remedy.map(remedies::engine).unwrap_or_default();
        self.rows.extend(rows);
        self.next = next.map(Box::new).or(self.next);
        self
    }

    /// The text without the next step, for programs: the title, then one line per row and warning.
    pub(crate) fn reason(&self) -> String {
        let text = Self { next: None, ..self.clone() }.to_string();
        text.trim_start_matches("error: ").trim_end().to_owned()
    }

    /// The next command, for programs.
    pub(crate) fn command(&self) -> Option<String> {
        match self.next.as_deref()? {
            NextStep::Command { command, .. } => Some(command.clone()),
            NextStep::Advice(_) => None,
        }
    }

    /// A refusal with all its reasons.
    pub(crate) fn refusals(cluster: &str, refusals: Vec<Refusal>, notes: &[Note]) -> Self {
        EngineError::refusals(cluster, refusals, notes).into()
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        let EngineError { category, mut title, rows, refused, warnings, remedy } = error;
        let mut next = None;
        let reasons = refused.map(|reasons| *reasons).unwrap_or_default();
        if let Some(report) = &reasons.report {
            title = refusal_flags::failed_checks(report);
            next = refusal_flags::ignore_advice(report).map(Box::new);
        }
        let inputs = reasons.inputs.iter().map(|(input, reason)| (remedies::input(input), reason.clone()));
        let others = reasons.others.iter().map(refusal_flags::row);
        let rows = others.chain(inputs).chain(rows).collect();
        let refusals = reasons.all().into();
        Self { category, title, rows, refusals, warnings, next }.remedy(remedy.as_deref())
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::silent(ErrorCategory::Failed);
        }
        Self::failed(error.to_string())
    }
}

/// Widest column of subjects.
const LONGEST_SUBJECT: usize = 44;

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.title.is_empty() {
            return Ok(());
        }
        writeln!(f, "error: {}", self.title)?;
        let length = |row: &(String, String)| console::measure_text_width(&row.0);
        let width = self.rows.iter().map(length).max().unwrap_or(0).min(LONGEST_SUBJECT);
        for (subject, text) in &self.rows {
            let mut lines = text.lines();
            let first = lines.next().unwrap_or_default();
            let fill = width.saturating_sub(console::measure_text_width(subject));
            writeln!(f, "{}", format!("  {subject}{:fill$}  {first}", "").trim_end())?;
            for line in lines {
                writeln!(f, "  {:width$}  {line}", "")?;
            }
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        match &self.next {
            Some(next) => writeln!(f, "{next}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kubeon_plan::{RefusedField, Remedy};

    use super::*;

    #[test]
    fn aligns_reasons_and_prints_warnings_last() {
        let refusals = vec![
            Refusal::new(RefusedField::Worker, "172.30.0.11", "is a master already: a host has one role"),
            Refusal::new(RefusedField::PodCidr, "10.64.0.0/12", "overlaps the service range 10.64.0.0/12")
                .with(Remedy::Change(RefusedField::ServiceCidr)),
        ];
        let notes =
            [Note { host: None, text: "2 masters tolerate no more failures than 1; use 1, 3 or 5".into() }];
        assert_eq!(
            CliError::refusals("demo", refusals, &notes).to_string(),
            "error: demo cannot be planned, 2 reasons\n\
             \x20 -w 172.30.0.11           is a master already: a host has one role\n\
             \x20 --pod-cidr 10.64.0.0/12  overlaps the service range 10.64.0.0/12 (--svc-cidr)\n\
             warning: 2 masters tolerate no more failures than 1; use 1, 3 or 5\n"
        );
    }

    #[test]
    fn indents_further_lines_of_a_row() {
        let error =
            CliError::failed("x").row("log", "one\ntwo").next_command("continue with", "kubeon create demo");
        assert_eq!(
            error.to_string(),
            "error: x\n  log  one\n       two\ncontinue with: kubeon create demo\n"
        );
    }

    #[test]
    fn programs_get_reason_and_next_command_separately() {
        let error = CliError::failed("step 3 failed")
            .row("cause", "no room")
            .next_command("continue with", "kubeon create demo");
        assert_eq!(error.reason(), "step 3 failed\n  cause  no room");
        assert_eq!(error.command().as_deref(), Some("kubeon create demo"));
        assert_eq!(error.next(NextStep::Advice("use --force".to_owned())).command(), None);
        assert_eq!(CliError::silent(ErrorCategory::Failed).reason(), "");
    }

    #[test]
    fn a_broken_pipe_is_silent() {
        let error = CliError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(error.to_string(), "");
    }
}
