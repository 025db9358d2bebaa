//! `down`: removes all objects of a lab from the machine, in every state of the lab.

use std::{fs, io::ErrorKind, path::Path, thread};

use crate::{
    Error, LabName, Leftover, Places, Result,
    cgroup::Cgroups,
    disk::{DISKS, KEY},
    leftovers, mounts, net, process, stale,
    tool::Tool,
};

/// Removes a lab by its name. Tries every step even if one fails, then reports what remains.
pub(crate) fn down(places: &Places, lab: &LabName) -> Result<()> {
    let cgroups = Cgroups::detect()?;
    let dir = places.lab(lab);
    // Processes end first (hosts, the switch, running programs): they use the other objects and create them again.
    // The route is removed after the links, so that no packet for the lab leaves the machine.
    let steps: [&dyn Fn() -> Result<()>; 7] = [
        &|| process::kill_all(&format!("lab {lab}"), || leftovers::processes(lab, &cgroups)),
        &|| unmount(lab, &dir),
        &|| cgroups.remove(lab, ""),
        &|| net::remove_link(lab),
        &|| net::remove_routes(lab),
        &|| remove_files(places, lab),
        &|| stale::remove(places),
    ];
    let mut first = None;
    for step in steps {
        if let Err(error) = step() {
            tracing::warn!("lab {lab}: {error}");
            first.get_or_insert(error);
        }
    }
    let remaining = leftovers::all(places, lab)?;
    match first {
        Some(error) if remaining.is_empty() => Err(error),
        _ if remaining.is_empty() => Ok(()),
        _ => Err(Error::Remaining(remaining)),
    }
}

fn unmount(lab: &LabName, dir: &Path) -> Result<()> {
    for point in mounts::below(dir)? {
        if Tool::of_lab(lab, "umount").args([&point]).run().is_err() {
            // A process outside the lab uses the mount: detach it now; the kernel removes it when that process ends.
            Tool::of_lab(lab, "umount").args(["--lazy"]).args([&point]).run()?;
        }
    }
    Ok(())
}

/// The lab's folder is removed last: while it exists, even without a state file, `ls` lists the lab and `down` can be
/// repeated.
fn remove_files(places: &Places, lab: &LabName) -> Result<()> {
    let dir = places.lab(lab);
    if let Some(point) = mounts::below(&dir)?.into_iter().next() {
        // Removing the files would remove those of the mounted file system.
        return Err(Error::Remaining(vec![Leftover::Mount(point)]));
    }
    remove_disks(&dir)?;
    // The private key is removed first: a private key always has its public key beside it.
    remove_file(&dir.join(KEY))?;
    remove_tree(&dir)?;
    // These succeed only after the last lab is removed.
    let _ = fs::remove_dir(&places.labs).and_then(|()| places.labs.parent().map_or(Ok(()), fs::remove_dir));
    Ok(())
}

/// Removes the disks of all hosts. A rename hides them first, so that no command takes a partly removed disk for a
/// complete one.
fn remove_disks(dir: &Path) -> Result<()> {
    let (disks, hidden) = (dir.join(DISKS), dir.join(DISKS).with_extension("gone"));
    remove_hidden(&hidden)?;
    match fs::rename(&disks, &hidden) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("rename", disks)(error)),
        Ok(()) => remove_hidden(&hidden),
    }
}

fn remove_hidden(hidden: &Path) -> Result<()> {
    let disks: Vec<_> = fs::read_dir(hidden).into_iter().flatten().flatten().map(|e| e.path()).collect();
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let workers: Vec<_> = disks.iter().map(|disk| scope.spawn(move || remove_tree(disk))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(()))).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    remove_tree(hidden)
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        _ => Ok(()),
    }
}

fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_removal_is_completed_without_partial_disks() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        // The first removal was killed after the rename; then another command created new disks.
        file("hosts.gone/h1/upper/etc/hostname");
        file("hosts/h1/upper/etc/hostname");
        remove_disks(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        remove_disks(dir.path()).unwrap();
    }
}
