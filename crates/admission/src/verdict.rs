//! The result of a review.

/// One reason to refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The field: `spec.cluster.nodeList[0].ip`; empty for the whole object.
    pub field: String,
    /// The cause and the remedy.
    pub reason: String,
    /// The HTTP code of the API server's answer: 422 for an invalid field, 400, 503.
    pub code: u16,
}

impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.field, self.reason)
        }
    }
}

/// The result of a review: allowed when there is no denial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionVerdict {
    /// Every reason to refuse, in the order of the rules.
    pub denials: Vec<Denial>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl AdmissionVerdict {
    /// Whether the change is allowed.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.denials.is_empty()
    }

    /// Every reason in one line; empty when allowed.
    #[must_use]
    pub fn message(&self) -> String {
        self.denials.iter().map(Denial::to_string).collect::<Vec<_>>().join("; ")
    }

    /// The HTTP code of the refusal.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.denials.first().map_or(200, |denial| denial.code)
    }

    pub(crate) fn deny(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.deny_with(422, field, reason);
    }

    pub(crate) fn deny_with(&mut self, code: u16, field: impl Into<String>, reason: impl Into<String>) {
        self.denials.push(Denial { field: field.into(), reason: reason.into(), code });
    }

    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}
