//! Points symbolic links at their targets.

use kubeon_wire::{Link, StepFailure};

use crate::durable::{point_link, sync_folders_of};
use crate::job::{Job, StepEffect};
use crate::journal::Mark;

/// Changes the links that differ.
///
/// # Errors
/// If a link cannot be created. Links before it in the list are already changed.
pub fn run(job: &Job<'_>, links: &[Link]) -> Result<StepEffect, StepFailure> {
    let mut effect = StepEffect::default();
    let mut places = Vec::new();
    for link in links {
        let place = job.host.root.given(&link.path)?;
        if point_link(&place, &link.target)? {
            places.push(place);
        }
        effect.marks.push(Mark::Link { path: link.path.clone(), target: link.target.clone() });
    }
    sync_folders_of(&places)?;
    effect.changed = !places.is_empty();
    Ok(effect)
}
