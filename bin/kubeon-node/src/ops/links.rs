//! Points symbolic links at their targets.

use kubeon_wire::{Link, StepFailure};

use crate::durable::point_link;
use crate::job::{Effect, Job};
use crate::journal::Mark;

/// Points the links that differ.
///
/// # Errors
/// When a link cannot be made; those before it in the list are in place then.
pub fn run(job: &Job<'_>, links: &[Link]) -> Result<Effect, StepFailure> {
    let mut effect = Effect::default();
    for link in links {
        effect.changed |= point_link(&job.host.root.given(&link.path)?, &link.target)?;
        effect.marks.push(Mark::Link { path: link.path.clone(), target: link.target.clone() });
    }
    Ok(effect)
}
