//! Why the engine stopped: a category for programs, a title and rows for people, and the command that goes on.

use std::fmt::{self, Write as _};

use kubeon_plan::{Note, PlanError, PlanRefused, Refusal};
use kubeon_reconcile::ReconcileError;
use kubeon_store::StoreError;
use kubeon_wire::PrecheckReport;

/// What an error says about the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCategory {
    /// Something was tried and failed; hosts may have been written to.
    Failed,
    /// Refused before the first effect on a host.
    Refused,
    /// The caller cancelled it.
    Interrupted,
}

/// What a refusal is made of, as data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalReasons {
    /// The checks of the hosts, where a failed check prevents the change.
    pub report: Option<PrecheckReport>,
    /// Every other reason.
    pub others: Vec<Refusal>,
}

impl RefusalReasons {
    /// Every reason: the failed checks, then the others.
    #[must_use]
    pub fn all(&self) -> Vec<Refusal> {
        let checks = self.report.iter().flat_map(PrecheckReport::refusals);
        checks.chain(self.others.iter().cloned()).collect()
    }
}

/// Why something was not done. The caller decides how it is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct EngineError {
    /// What it says about the hosts.
    pub category: ErrorCategory,
    /// The reason in one line.
    pub title: String,
    /// Subjects, and what is wrong with each.
    pub rows: Vec<(String, String)>,
    /// Why it was refused, where the reasons are data. The caller renders them; they are in no row.
    pub refused: Option<Box<RefusalReasons>>,
    /// Warnings that belong to it.
    pub warnings: Vec<String>,
    /// What to do next.
    pub hint: Option<String>,
}

impl EngineError {
    /// An error of one line.
    pub fn new(category: ErrorCategory, title: impl Into<String>) -> Self {
        Self {
            category,
            title: title.into(),
            rows: Vec::new(),
            refused: None,
            warnings: Vec::new(),
            hint: None,
        }
    }

    /// Refused before the first effect on a host.
    pub fn refused(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Refused, title)
    }

    /// Failed after it was tried.
    pub fn failed(title: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Failed, title)
    }

    /// Adds a row.
    #[must_use]
    pub fn row(mut self, subject: impl Into<String>, text: impl Into<String>) -> Self {
        self.rows.push((subject.into(), text.into()));
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Refused for all these reasons at once.
    pub fn refusals(cluster: &str, refusals: Vec<Refusal>, notes: &[Note]) -> Self {
        let count = refusals.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut error = Self::refused(format!("{cluster} cannot be planned, {count} reason{plural}"));
        error.refused = Some(Box::new(RefusalReasons { report: None, others: refusals }));
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
        match &error {
            StoreError::File { .. } | StoreError::WrongLock { .. } => Self::failed(chain(&error)),
            _ => Self::refused(error.to_string()),
        }
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
