//! Removes a service that the cluster no longer uses.

use std::path::PathBuf;

use kubeon_wire::StepFailure;

use super::service;
use crate::durable::remove_file;
use crate::job::{Job, StepEffect};
use crate::journal::{self, Entry, Mark};
use crate::units;

/// Stops the unit and removes it, its files, and what the journal records of them: a later step that writes them again must run.
/// The records are removed last, so that an interrupted removal is repeated.
///
/// # Errors
/// If the unit does not stop, or a file cannot be removed.
pub fn run(job: &Job<'_>, name: &str, files: &[String]) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    units::check_name(name)?;
    let places: Vec<PathBuf> = files.iter().map(|path| root.given(path)).collect::<Result<_, _>>()?;
    let mut changed = service::stop(job, &[name.to_owned()])?.changed;
    if units::remove(root, name)? {
        changed = true;
        job.host.services.reload()?;
    }
    for place in &places {
        changed |= remove_file(place)?;
    }
    units::forget(root, name)?;
    let concerns = |mark: &Mark| match mark {
        Mark::Unit { name: unit, .. } => unit == name,
        Mark::File { path, .. } => files.contains(path),
        _ => false,
    };
    journal::forget(root, |entry: &Entry| entry.marks.iter().any(concerns))?;
    Ok(StepEffect { changed, ..StepEffect::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    const UNIT: &str = "[Service]\nExecStart=/x\n[Install]\nWantedBy=multi-user.target\n";
    const NAME: &str = "haproxy.service";

    #[test]
    fn nothing_of_the_service_stays() {
        let bench = Bench::new();
        let root = &bench.host.root;
        bench.write("/etc/haproxy.cfg", "a");
        bench.write("/etc/other", "kept");
        let entry = |id: &str, mark: Mark| Entry { id: id.into(), digest: "d".into(), marks: vec![mark] };
        let file = |path: &str| Mark::File { path: path.into(), sha256: String::new(), mode: 0o644 };
        let started = service::run(
            &bench.job(),
            &service::Service { name: NAME, unit: UNIT, watches: &[], ready: &[] },
        );
        journal::remember(root, &entry("join/haproxy@h", started.unwrap().marks.remove(0))).unwrap();
        journal::remember(root, &entry("join/config@h", file("/etc/haproxy.cfg"))).unwrap();
        journal::remember(root, &entry("join/other@h", file("/etc/other"))).unwrap();
        bench.calls();

        let remove = || run(&bench.job(), NAME, &["/etc/haproxy.cfg".to_owned()]).unwrap().changed;
        assert!(remove());
        assert_eq!(bench.calls(), ["stop haproxy.service", "reload"]);
        assert!(!units::file(root, NAME).exists() && !root.at("/etc/haproxy.cfg").exists());
        let link = root.at("/etc/systemd/system/multi-user.target.wants").join(NAME);
        assert!(!link.is_symlink());
        assert_eq!(bench.read("/etc/other"), "kept");
        let left: Vec<_> = journal::all(root).unwrap().into_iter().map(|entry| entry.unwrap().id).collect();
        assert_eq!(left, ["join/other@h"]);
        assert_eq!(units::remembered(root).unwrap(), Vec::<String>::new());

        assert!(!remove(), "the second time nothing changes");
        assert_eq!(bench.calls(), Vec::<String>::new());
    }

    #[test]
    fn other_paths_are_refused() {
        let bench = Bench::new();
        assert!(run(&bench.job(), "../x.service", &[]).is_err());
        assert!(run(&bench.job(), NAME, &["/etc/../passwd".to_owned()]).is_err());
    }
}
