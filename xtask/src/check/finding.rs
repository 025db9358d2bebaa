//! A finding: one violation of a rule.

/// A finding. Equal findings have equal texts, so the text contains no line number.
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
