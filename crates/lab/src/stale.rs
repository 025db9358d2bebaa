//! Unfinished base root file systems whose build was killed. They belong to no lab; `down` of any lab removes them.

use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::PathBuf,
};

use crate::{Error, Leftover, Places, Result, mounts};

/// Extensions of an unfinished build and of the lock file that its builder holds.
const BUILDING: &str = "building";
const LOCK: &str = "lock";

/// The unfinished builds that no command works on.
pub(crate) fn builds(places: &Places) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for_each_build(places, |path| {
        found.push(path);
        Ok(())
    })?;
    Ok(found)
}

/// Removes the unfinished builds that no command works on.
pub(crate) fn remove(places: &Places) -> Result<()> {
    for_each_build(places, |path| {
        if let Some(point) = mounts::below(&path)?.into_iter().next() {
            return Err(Error::Remaining(vec![Leftover::Mount(point)]));
        }
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
            _ => Ok(()),
        }
    })
}

/// Calls `act` for each unfinished build and holds the lock of the build, so that no command starts it.
fn for_each_build(places: &Places, mut act: impl FnMut(PathBuf) -> Result<()>) -> Result<()> {
    let entries = match fs::read_dir(&places.cache) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("list", &places.cache)(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == BUILDING)) {
        let lock = path.with_extension(LOCK);
        let file = File::create(&lock).map_err(Error::file("create", &lock))?;
        match file.try_lock() {
            Ok(()) => act(path)?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(Error::file("lock", lock)(source)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn only_builds_without_a_builder_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(folder.path(), folder.path());
        assert_eq!(builds(&places).unwrap(), Vec::<PathBuf>::new());
        let place = |name: &str| places.cache.join(name);
        for name in ["base-1", "base-2.building", "base-3.building"] {
            fs::create_dir_all(place(name).join("etc")).unwrap();
        }
        let building = File::create(place("base-3.lock")).unwrap();
        building.lock().unwrap();
        assert_eq!(builds(&places).unwrap(), [place("base-2.building")]);
        remove(&places).unwrap();
        assert!(!place("base-2.building").exists());
        assert!(place("base-1").exists() && place("base-3.building").exists());
        drop(building);
        // A child that another test starts owns a copy of the lock until its exec.
        let is_removed = || {
            remove(&places).unwrap();
            !place("base-3.building").exists()
        };
        assert!((0..1_000).any(|_| is_removed() || {
            thread::sleep(Duration::from_millis(10));
            false
        }));
    }
}
