//! The result of a rule.

use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The plan must not be applied.
    Fatal,
    /// The user should know; the plan may be applied.
    Warn,
}

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LintFinding {
    /// Its severity.
    pub severity: Severity,
    /// The rule, such as `quorum`.
    pub rule: String,
    /// One sentence that names the step or host.
    pub text: String,
}

impl LintFinding {
    pub(crate) fn fatal(rule: &str, text: String) -> Self {
        Self { severity: Severity::Fatal, rule: rule.to_owned(), text }
    }
}
