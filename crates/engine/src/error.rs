//! Errors of the engine: a category for programs, a title and rows for people, and a remedy as data.

use std::fmt::{self, Write as _};

use kubeon_plan::{Note, PlanError, PlanRefused, Refusal};
use kubeon_reconcile::ReconcileError;
use kubeon_store::StoreError;
use kubeon_wire::PrecheckReport;

use crate::remedy::{EngineRemedy, RefusedInput};

/// The category of an error: whether hosts may have been written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCategory {
    /// An action failed; hosts may have been written to.
    Failed,
    /// Refused before the first effect on a host.
    Refused,
    /// The caller cancelled the action.
    Interrupted,
}

/// The reasons of a refusal as data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalReasons {
    /// The checks of the hosts, if a failed check prevents the change.
    pub report: Option<PrecheckReport>,
    /// All other reasons.
    pub others: Vec<Refusal>,
    /// The refused inputs that are not part of the declaration of a cluster, each with its reason.
    pub inputs: Vec<(RefusedInput, String)>,
}

impl RefusalReasons {
    /// All reasons: the failed checks, then the others.
    #[must_use]
    pub fn all(&self) -> Vec<Refusal> {
        let checks = self.report.iter().flat_map(PrecheckReport::refusals);
        checks.chain(self.others.iter().cloned()).collect()
    }
}

/// An error of the engine. The caller decides how it is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct EngineError {
    /// The category.
    pub category: ErrorCategory,
    /// The reason in one line.
    pub title: String,
    /// Details: subject and text.
    pub rows: Vec<(String, String)>,
    /// The reasons of a refusal as data. The caller renders them; `rows` does not contain them.
    pub refused: Option<Box<RefusalReasons>>,
    /// Warnings that belong to the error.
    pub warnings: Vec<String>,
    /// What a user can do about it. The caller renders it; neither `title` nor `rows` contain it.
    pub remedy: Option<Box<EngineRemedy>>,
}

impl EngineError {
    /// An error with a title and no details.
    pub fn new(category: ErrorCategory, title: impl Into<String>) -> Self {
        Self {
            category,
            title: title.into(),
            rows: Vec::new(),
            refused: None,
            warnings: Vec::new(),
            remedy: None,
        }
    }

    /// A refusal before the first effect on a host.
    pub fn refused(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Refused, title)
    }

    /// A failed action.
    pub fn failed(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Failed, title)
    }

    /// Adds a detail.
    #[must_use]
    pub fn row(mut self, subject: impl Into<String>, text: impl Into<String>) -> Self {
        self.rows.push((subject.into(), text.into()));
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Option<EngineRemedy>>) -> Self {
        self.remedy = remedy.into().map(Box::new);
        self
    }

    /// A refusal of inputs.
    pub fn inputs(title: impl Into<String>, inputs: Vec<(RefusedInput, String)>) -> Self {
        let mut error = Self::refused(title);
        error.refused = Some(Box::new(RefusalReasons { inputs, ..RefusalReasons::default() }));
        error
    }

    /// A refusal of one input.
    pub fn input(title: impl Into<String>, input: RefusedInput, reason: impl Into<String>) -> Self {
        Self::inputs(title, vec![(input, reason.into())])
    }

    /// A refusal with all its reasons.
    pub fn refusals(cluster: &str, refusals: Vec<Refusal>, notes: &[Note]) -> Self {
        let count = refusals.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut error = Self::refused(format!("{cluster} cannot be planned, {count} reason{plural}"));
        error.refused = Some(Box::new(RefusalReasons { others: refusals, ..RefusalReasons::default() }));
        error.warnings = notes.iter().map(note_text).collect();
        error
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        for refusal in self.refused.iter().flat_map(|reasons| reasons.all()) {
            write!(f, "\n  {} {}  {}", refusal.field, refusal.value, refusal.reason)?;
        }
        for (input, reason) in self.refused.iter().flat_map(|reasons| &reasons.inputs) {
            write!(f, "\n  {input}  {reason}")?;
        }
        self.rows.iter().try_for_each(|(subject, text)| write!(f, "\n  {subject}  {text}"))
    }
}

/// A note in one line.
pub fn note_text(note: &Note) -> String {
    match note.host {
        Some(host) => format!("{host}: {}", note.text),
        None => note.text.clone(),
    }
}

impl From<PlanError> for EngineError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Refused(refused) => refused.into(),
            PlanError::Internal { .. } => Self::failed(error.to_string()),
        }
    }
}

impl From<PlanRefused> for EngineError {
    fn from(refused: PlanRefused) -> Self {
        Self::refusals(&refused.cluster, refused.refusals, &refused.notes)
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        let remedy = error.remedy().cloned().map(EngineRemedy::Store);
        let error = match &error {
            StoreError::File { .. } | StoreError::WrongLock { .. } => Self::failed(chain(&error)),
            _ => Self::refused(error.to_string()),
        };
        error.remedy(remedy)
    }
}

impl From<ReconcileError> for EngineError {
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Refused(error) => error.into(),
            ReconcileError::Unsafe { cluster, findings } => {
                let title = format!("the plan of {cluster} is not safe to apply; nothing was written");
                let rows = findings.into_iter().map(|finding| (finding.rule, finding.text)).collect();
                Self { rows, ..Self::failed(title) }
            }
        }
    }
}

impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

/// The error and its sources, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            let _ = write!(text, ": {cause}");
        }
        source = error.source();
    }
    text
}
