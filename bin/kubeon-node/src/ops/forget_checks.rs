//! Removes records of checks whose subject the cluster no longer uses.

use kubeon_wire::StepFailure;

use crate::job::{Job, StepEffect};
use crate::journal::{self, Entry};

/// Removes the records of the steps from the journal. A record of something on this host stays: only that may remove it.
///
/// # Errors
/// If the journal cannot be read, or a record cannot be removed.
pub fn run(job: &Job<'_>, steps: &[String]) -> Result<StepEffect, StepFailure> {
    journal::forget(&job.host.root, |entry: &Entry| entry.marks.is_empty() && steps.contains(&entry.id))?;
    Ok(StepEffect { changed: true, ..StepEffect::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Mark;
    use crate::testing::Bench;

    #[test]
    fn only_checks_are_forgotten() {
        let bench = Bench::new();
        let root = &bench.host.root;
        let file = Mark::File { path: "/etc/a".into(), sha256: String::new(), mode: 0o644 };
        for (id, marks) in [("join/check@h", vec![]), ("verify/api@h", vec![]), ("join/file@h", vec![file])] {
            journal::remember(root, &Entry { id: id.into(), digest: "d".into(), marks }).unwrap();
        }
        run(&bench.job(), &["join/check@h".to_owned(), "join/file@h".to_owned()]).unwrap();
        let left = journal::all(root).unwrap().into_iter().map(|entry| entry.unwrap().id);
        assert_eq!(left.collect::<Vec<_>>(), ["join/file@h", "verify/api@h"]);
    }
}
