//! The folder that is used as `/`: the host itself, or a folder of a test.

use std::path::{Component, Path, PathBuf};

use kubeon_wire::StepFailure;

use crate::failure::failed;

/// The root folder. All paths are resolved by it, so that a root other than `/` protects the host.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// A root at a folder; `/` for a real host.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Whether it is a real host, whose processes, services and network may be changed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Resolves a fixed absolute path.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Resolves a path from outside the program.
    ///
    /// # Errors
    /// If the path is not absolute or contains a component such as `..`.
    pub fn given(&self, path: &str) -> Result<PathBuf, StepFailure> {
        let mut parts = Path::new(path).components();
        let absolute = parts.next() == Some(Component::RootDir);
        if absolute && path.len() > 1 && parts.all(|part| matches!(part, Component::Normal(_))) {
            return Ok(self.at(path));
        }
        Err(failed(format!("the path {path:?} is not absolute or contains `..`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_paths_that_could_leave_the_root() {
        let root = Root::new(Path::new("/scratch"));
        assert_eq!(root.given("/etc/hosts").unwrap(), Path::new("/scratch/etc/hosts"));
        for bad in ["", "/", "etc/hosts", "/etc/../../x", "../x"] {
            assert!(root.given(bad).is_err(), "{bad}");
        }
    }
}
