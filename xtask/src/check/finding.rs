//! One broken rule at one place.

/// A finding: equal findings have equal texts, so a text names no line number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleFinding {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

impl RuleFinding {
    pub(crate) fn new(rule: &'static str, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}
