//! Rules that the compiler does not check. All findings are reported at once.

mod allowed;
mod cargo;
mod contracts;
mod cycles;
mod decisions;
mod finding;
mod generated;
mod layers;
mod lengths;
mod links;
mod lints;
mod module_paths;
mod module_tree;
mod names;
mod phrases;
mod purity;
mod sources;
mod types;

use std::path::Path;

use anyhow::{Result, bail};

use finding::RuleFinding;
use sources::Sources;

/// The arguments of `check`.
#[derive(clap::Args)]
pub(crate) struct CheckArguments {
    /// Allow exactly the current findings of the rules that have a list of allowed findings.
    #[arg(long)]
    update_allowed: bool,
}

/// Runs every check.
///
/// # Errors
/// When a rule is broken, with all findings.
pub(crate) fn run(root: &Path, arguments: &CheckArguments) -> Result<()> {
    let sources = Sources::read(root)?;
    let strict = strict(root, &sources)?;
    let limited = limited(&sources)?;
    if arguments.update_allowed {
        allowed::write(root, &limited)?;
    }
    let mut messages: Vec<String> =
        strict.iter().map(|finding| format!("{}: {}", finding.rule, finding.text)).collect();
    messages.extend(allowed::compare(&limited, &allowed::read(root)?));
    if !messages.is_empty() {
        bail!("{} findings\n  {}", messages.len(), messages.join("\n  "));
    }
    crate::terminal::say(&format!("check: no new findings; {} findings are still allowed", limited.len()));
    Ok(())
}

/// The rules without allowed findings.
fn strict(root: &Path, sources: &Sources) -> Result<Vec<RuleFinding>> {
    let mut findings = layers::check(root)?;
    findings.extend(lengths::check(sources));
    findings.extend(lints::check(sources)?);
    findings.extend(generated::check(root)?);
    findings.extend(decisions::check(sources));
    findings.extend(links::check(sources));
    findings.extend(purity::check(sources));
    Ok(findings)
}

/// The rules with a list of allowed findings.
fn limited(sources: &Sources) -> Result<Vec<RuleFinding>> {
    let mut findings = names::check(sources)?;
    findings.extend(phrases::check(sources)?);
    findings.extend(types::check(sources));
    findings.extend(cycles::check(sources));
    findings.extend(contracts::check(sources));
    Ok(findings)
}
