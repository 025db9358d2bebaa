//! Rules that the compiler does not know. All findings are reported at once.

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

/// How to check.
#[derive(clap::Args)]
pub(crate) struct CheckArguments {
    /// Allow exactly the present findings of the rules that do not hold everywhere yet.
    #[arg(long)]
    update_allowed: bool,
}

/// Runs every check.
///
/// # Errors
/// When a rule is broken, with every place.
pub(crate) fn run(root: &Path, arguments: &CheckArguments) -> Result<()> {
    let sources = Sources::read(root)?;
    let strict = strict(root, &sources)?;
    let counted = counted(&sources)?;
    if arguments.update_allowed {
        allowed::write(root, &counted)?;
    }
    let mut wrong: Vec<String> =
        strict.iter().map(|finding| format!("{}: {}", finding.rule, finding.text)).collect();
    wrong.extend(allowed::compare(&counted, &allowed::read(root)?));
    if !wrong.is_empty() {
        bail!("{} findings\n  {}", wrong.len(), wrong.join("\n  "));
    }
    crate::terminal::say(&format!("check: every rule holds; {} findings are still allowed", counted.len()));
    Ok(())
}

/// The rules that hold everywhere.
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

/// The rules that have findings in the list of those that are still allowed.
fn counted(sources: &Sources) -> Result<Vec<RuleFinding>> {
    let mut findings = names::check(sources)?;
    findings.extend(phrases::check(sources)?);
    findings.extend(types::check(sources));
    findings.extend(cycles::check(sources));
    findings.extend(contracts::check(sources));
    Ok(findings)
}
