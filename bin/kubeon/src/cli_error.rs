//! How a command ends when it does not end well: one text for people, one code for programs.

use std::fmt;

use kubeon_engine::error::{EngineError, ErrorCategory};
use kubeon_plan::{Note, Refusal};
use kubeon_store::StoreError;

use crate::refusal_flags;

/// The exit code of an error; 0 is for done.
pub(crate) fn exit_code(category: ErrorCategory) -> u8 {
    match category {
        ErrorCategory::Failed => 1,
        ErrorCategory::Refused => 2,
        // By Ctrl-C or SIGTERM: 128 and the number of SIGINT.
        ErrorCategory::Interrupted => 130,
    }
}

/// Why a command ended, what to look at, and what to type next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    /// What it says about the hosts; it decides the exit code.
    pub category: ErrorCategory,
    /// The first line, without `error: `; empty when everything was said already.
    pub title: String,
    /// What it is about, and what about it.
    pub rows: Vec<(String, String)>,
    /// The reasons of a refusal as data, for programs.
    pub refusals: Box<[Refusal]>,
    /// Warnings that go with it.
    pub warnings: Vec<String>,
    /// The last line: what to type.
    pub hint: Option<String>,
}

impl CliError {
    /// Ends with one line.
    pub(crate) fn new(category: ErrorCategory, title: impl Into<String>) -> Self {
        Self {
            category,
            title: title.into(),
            rows: Vec::new(),
            refusals: Box::default(),
            warnings: Vec::new(),
            hint: None,
        }
    }

    /// Refused before the first effect.
    pub(crate) fn refused(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Refused, title)
    }

    /// Failed on the way.
    pub(crate) fn failed(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Failed, title)
    }

    /// Everything was said already: only the exit code is left.
    pub(crate) fn silent(category: ErrorCategory) -> Self {
        Self::new(category, "")
    }

    /// With a line on a subject.
    #[must_use]
    pub(crate) fn row(mut self, subject: impl Into<String>, text: impl Into<String>) -> Self {
        self.rows.push((subject.into(), text.into()));
        self
    }

    /// With a last line that can be pasted.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Everything but the hint, for programs: the first line without `error: `, then a line for each row and warning.
    pub(crate) fn reason(&self) -> String {
        let text = Self { hint: None, ..self.clone() }.to_string();
        text.trim_start_matches("error: ").trim_end().to_owned()
    }

    /// The command that goes on, where the hint names one.
    pub(crate) fn next(&self) -> Option<String> {
        let (_, rest) = self.hint.as_ref()?.split_once("kubeon ")?;
        Some(format!("kubeon {rest}"))
    }

    /// Refused for all these reasons at once.
    pub(crate) fn refusals(cluster: &str, refusals: Vec<Refusal>, notes: &[Note]) -> Self {
        EngineError::refusals(cluster, refusals, notes).into()
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        let EngineError { category, mut title, rows, refused, warnings, mut hint } = error;
        let reasons = refused.map(|reasons| *reasons).unwrap_or_default();
        if let Some(report) = &reasons.report {
            title = refusal_flags::failed_checks(report);
            hint = hint.or_else(|| refusal_flags::ignore_hint(report));
        }
        let rows = reasons.others.iter().map(refusal_flags::row).chain(rows).collect();
        let refusals = reasons.all().into();
        Self { category, title, rows, refusals, warnings, hint }
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
        match &self.hint {
            Some(hint) => writeln!(f, "{hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kubeon_plan::{RefusedField, Remedy};

    use super::*;

    #[test]
    fn aligns_reasons_and_says_warnings_last() {
        let refusals = vec![
            Refusal::new(RefusedField::Worker, "172.30.0.11", "is a master already: a host has one role"),
            Refusal::new(RefusedField::PodCidr, "10.64.0.0/12", "overlaps the service range 10.64.0.0/12")
                .with(Remedy::Change(RefusedField::ServiceCidr)),
        ];
        let notes =
            [Note { host: None, text: "2 masters survive no failure that 1 does not; use 1, 3 or 5".into() }];
        assert_eq!(
            CliError::refusals("demo", refusals, &notes).to_string(),
            "error: demo cannot be planned, 2 reasons\n\
             \x20 -w 172.30.0.11           is a master already: a host has one role\n\
             \x20 --pod-cidr 10.64.0.0/12  overlaps the service range 10.64.0.0/12 (--svc-cidr)\n\
             warning: 2 masters survive no failure that 1 does not; use 1, 3 or 5\n"
        );
    }

    #[test]
    fn indents_further_lines_of_a_row() {
        let stop = CliError::failed("x").row("log", "one\ntwo").hint("continue with: kubeon create demo");
        assert_eq!(stop.to_string(), "error: x\n  log  one\n       two\ncontinue with: kubeon create demo\n");
    }

    #[test]
    fn programs_are_told_reason_and_next_command_apart() {
        let stop = CliError::failed("step 3 failed")
            .row("cause", "no room")
            .hint("continue with: kubeon create demo");
        assert_eq!(stop.reason(), "step 3 failed\n  cause  no room");
        assert_eq!(stop.next().as_deref(), Some("kubeon create demo"));
        assert_eq!(CliError::silent(ErrorCategory::Failed).reason(), "");
    }

    #[test]
    fn a_broken_pipe_is_silent() {
        let stop = CliError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(stop.to_string(), "");
    }
}
