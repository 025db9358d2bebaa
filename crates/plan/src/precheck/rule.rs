//! A rule of the precheck: its input and its result.

use kubeon_api::{HostRole, Remedy};
use kubeon_wire::{Facts, PrecheckSeverity as Severity};

use super::host_conflicts::HostConflicts;
use crate::input::{HostSpec, Intent};

/// An observed host, with everything that a rule may read.
pub(crate) struct Subject<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) spec: &'a HostSpec,
    pub(crate) role: HostRole,
    pub(crate) facts: &'a Facts,
    pub(super) host_conflicts: &'a HostConflicts<'a>,
}

/// The result of a rule.
pub(crate) struct Verdict {
    /// The severity of the message. Without a message: the severity that it would have.
    pub(super) severity: Severity,
    pub(super) found: String,
    pub(super) wanted: String,
    pub(super) message: Option<String>,
    pub(super) remedy: Option<Remedy>,
}

impl Verdict {
    pub(super) fn good(found: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            found: found.into(),
            wanted: wanted.into(),
            message: None,
            remedy: None,
        }
    }

    /// Sets the severity to error. With a message, the check fails.
    pub(super) fn error(mut self, message: Option<String>) -> Self {
        self.severity = Severity::Error;
        self.message = message;
        self
    }

    /// With a message, the check warns. An earlier message is kept.
    pub(super) fn warning(mut self, message: Option<String>) -> Self {
        if self.message.is_none() && message.is_some() {
            self.severity = Severity::Warning;
            self.message = message;
        }
        self
    }

    /// Sets the remedy, if there is a message.
    pub(super) fn remedy(self, remedy: Remedy) -> Self {
        Self { remedy: self.message.is_some().then_some(remedy), ..self }
    }
}

/// A check and its function.
pub(crate) struct CheckRule {
    pub(crate) name: &'static str,
    pub(crate) evaluate: fn(&Subject<'_>) -> Verdict,
}

pub(super) const fn rule(name: &'static str, evaluate: fn(&Subject<'_>) -> Verdict) -> CheckRule {
    CheckRule { name, evaluate }
}
