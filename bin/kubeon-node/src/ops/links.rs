//! Points symbolic links at their targets. Files that kubeon did not create are kept.

use std::fs;
use std::path::Path;

use kubeon_wire::{Link, StepFailure};

use crate::durable::{lstat, point_link, sync_folders_of};
use crate::failure::Doing;
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::paths;

/// Changes the links that differ. A file of the owner in the place of a link is kept, with a note; the program
/// of the bundle is then available at the target of the link only.
///
/// # Errors
/// If a link cannot be created. Links before it in the list are already changed.
pub fn run(job: &Job<'_>, links: &[Link]) -> Result<StepEffect, StepFailure> {
    let mut effect = StepEffect::default();
    let mut places = Vec::new();
    for link in links {
        let place = job.host.root.given(&link.path)?;
        if !link.path.starts_with(paths::STATE) && belongs_to_owner(&place)? {
            job.note(format!(
                "{} was not created by kubeon and is kept; the program of the cluster is {}",
                link.path, link.target
            ));
            continue;
        }
        if point_link(&place, &link.target)? {
            places.push(place);
        }
        effect.marks.push(Mark::Link { path: link.path.clone(), target: link.target.clone() });
    }
    sync_folders_of(&places)?;
    effect.changed = !places.is_empty();
    Ok(effect)
}

/// Whether something is in this place that kubeon did not create: anything but a link into kubeon's folder.
fn belongs_to_owner(place: &Path) -> Result<bool, StepFailure> {
    match lstat(place)? {
        None => Ok(false),
        Some(found) if found.is_symlink() => {
            Ok(!fs::read_link(place).doing("read", place)?.starts_with(paths::STATE))
        }
        Some(_) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Bench;

    const PROGRAM: &str = "/var/lib/kubeon/current/kubectl/bin/kubectl";

    fn kubectl() -> [Link; 1] {
        [Link { path: "/usr/local/bin/kubectl".into(), target: PROGRAM.into() }]
    }

    #[test]
    fn a_file_or_link_of_the_owner_is_kept_with_a_note() {
        let bench = Bench::new();
        bench.write("/usr/local/bin/kubectl", "theirs");
        let effect = run(&bench.job(), &kubectl()).unwrap();
        assert_eq!((effect.changed, &effect.marks[..]), (false, &[][..]), "a kept file is no drift");
        assert_eq!(bench.read("/usr/local/bin/kubectl"), "theirs");
        assert!(
            bench.output().contains("/usr/local/bin/kubectl was not created by kubeon"),
            "{}",
            bench.output()
        );

        let place = bench.host.root.at("/usr/local/bin/kubectl");
        fs::remove_file(&place).unwrap();
        symlink("/opt/kubectl", &place).unwrap();
        assert!(!run(&bench.job(), &kubectl()).unwrap().changed);
        assert_eq!(fs::read_link(&place).unwrap(), Path::new("/opt/kubectl"));
    }

    #[test]
    fn a_link_of_an_older_version_is_replaced() {
        let bench = Bench::new();
        let place = bench.host.root.at("/usr/local/bin/kubectl");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink("/var/lib/kubeon/parts/old/bin/kubectl", &place).unwrap();
        assert!(run(&bench.job(), &kubectl()).unwrap().changed);
        assert_eq!(fs::read_link(&place).unwrap(), Path::new(PROGRAM));
        assert!(!run(&bench.job(), &kubectl()).unwrap().changed);
    }

    #[test]
    fn whatever_is_in_the_place_of_the_link_to_a_version_is_replaced() {
        let bench = Bench::new();
        bench.write("/var/lib/kubeon/current/etcd", "x");
        let link =
            Link { path: "/var/lib/kubeon/current/etcd".into(), target: "/var/lib/kubeon/parts/1".into() };
        assert!(run(&bench.job(), &[link]).unwrap().changed);
    }
}
