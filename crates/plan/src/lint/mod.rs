//! Rules that every plan must keep. They are checked after planning and again right before `apply`, where a
//! fatal finding stops the reconcile.

mod address;
mod api_servers;
mod drain;
mod finding;
mod kubelets;
mod needs;
mod order;
mod quorum;
mod rolling;
mod secrets;
mod unknown;

use crate::input::Snapshot;
use crate::output::Plan;
pub use finding::{LintFinding, Severity};

type Rule = fn(&Plan, &Snapshot) -> Vec<LintFinding>;

const RULES: &[Rule] = &[
    order::check,
    drain::check,
    quorum::check,
    api_servers::check,
    kubelets::check,
    rolling::check,
    secrets::check,
    unknown::check,
    address::check,
    one_address_one_name,
];

/// Checks a plan against every rule.
#[must_use]
pub fn lint(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    RULES.iter().flat_map(|rule| rule(plan, snapshot)).collect()
}

/// No two hosts have the same name: their nodes would overwrite each other.
fn one_address_one_name(plan: &Plan, _: &Snapshot) -> Vec<LintFinding> {
    let mut names = std::collections::BTreeMap::new();
    plan.hosts
        .iter()
        .filter_map(|(address, host)| names.insert(&host.name, address).map(|other| (host, address, other)))
        .map(|(host, address, other)| {
            LintFinding::fatal(
                "duplicate-name",
                format!("{address} and {other} are both named {}", host.name),
            )
        })
        .collect()
}
