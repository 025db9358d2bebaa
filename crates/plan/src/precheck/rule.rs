//! A rule of the precheck: what it is asked about, and what it finds.

use kubeon_api::Remedy;
use kubeon_wire::{Facts, PrecheckSeverity as Severity};

use super::host_conflicts::HostConflicts;
use crate::input::{HostSpec, Intent};

/// A host that was seen, and all that is asked about it.
pub(crate) struct Subject<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) spec: &'a HostSpec,
    pub(crate) master: bool,
    pub(crate) facts: &'a Facts,
    pub(super) host_conflicts: &'a HostConflicts<'a>,
}

/// What a rule finds.
pub(crate) struct Verdict {
    /// How bad the message is; where there is none, how bad it could be.
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

    /// With a message, the check fails.
    pub(super) fn error(mut self, message: Option<String>) -> Self {
        self.severity = Severity::Error;
        self.message = message;
        self
    }

    /// With a message, the check warns. An earlier message stays.
    pub(super) fn warning(mut self, message: Option<String>) -> Self {
        if self.message.is_none() && message.is_some() {
            self.severity = Severity::Warning;
            self.message = message;
        }
        self
    }

    /// What a person can do, where there is a message.
    pub(super) fn remedy(self, remedy: Remedy) -> Self {
        Self { remedy: self.message.is_some().then_some(remedy), ..self }
    }
}

/// A check.
pub(crate) struct CheckRule {
    /// Its name.
    pub(crate) name: &'static str,
    pub(crate) judge: fn(&Subject<'_>) -> Verdict,
}

pub(super) const fn rule(name: &'static str, judge: fn(&Subject<'_>) -> Verdict) -> CheckRule {
    CheckRule { name, judge }
}
