//! What must be true of every plan, whatever made it. Run after planning, and once more right before
//! `apply`, where a fatal finding stops the turn.

mod address;
mod drain;
mod order;
mod quorum;
mod secrets;
mod unknown;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::input::Snapshot;
use crate::output::{Plan, Step};
use crate::step_id::StepId;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The plan must not be applied.
    Fatal,
    /// A person should know.
    Warn,
}

/// Something that must not be in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The rule, such as `quorum`.
    pub rule: String,
    /// One sentence that names the step or host.
    pub text: String,
}

impl Finding {
    pub(crate) fn fatal(rule: &str, text: String) -> Self {
        Self { severity: Severity::Fatal, rule: rule.to_owned(), text }
    }
}

type Rule = fn(&Plan, &Snapshot) -> Vec<Finding>;

const RULES: &[Rule] = &[
    order::check,
    drain::check,
    quorum::check,
    secrets::check,
    unknown::check,
    address::check,
    one_address_one_name,
];

/// Checks a plan against every rule.
#[must_use]
pub fn lint(plan: &Plan, snapshot: &Snapshot) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(plan, snapshot)).collect()
}

/// No two hosts share a name: nodes would overwrite each other.
fn one_address_one_name(plan: &Plan, _: &Snapshot) -> Vec<Finding> {
    let mut names = std::collections::BTreeMap::new();
    plan.hosts
        .iter()
        .filter_map(|(address, host)| names.insert(&host.name, address).map(|other| (host, address, other)))
        .map(|(host, address, other)| {
            Finding::fatal("duplicate-name", format!("{address} and {other} are both named {}", host.name))
        })
        .collect()
}

/// Whether `target` lies before `from` along the needs.
fn reaches(plan: &Plan, from: &Step, target: &StepId) -> bool {
    let (mut open, mut done) = (vec![from], HashSet::new());
    while let Some(step) = open.pop() {
        for need in &step.needs {
            if need == target {
                return true;
            }
            if done.insert(need.as_str()) {
                open.extend(plan.steps.iter().find(|other| &other.id == need));
            }
        }
    }
    false
}
