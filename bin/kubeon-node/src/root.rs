//! The folder that stands for `/`: the host itself, or a folder of a test.

use std::path::{Component, Path, PathBuf};

use kubeon_wire::StepFailure;

use crate::failure::failed;

/// All paths go through here, so that nothing outside can be touched when it is not `/`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// `/` for a real host.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Whether it is a real host, whose processes, services and network may be touched.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The place of an absolute path that this program knows.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The place of a path that came from outside.
    ///
    /// # Errors
    /// When the path is not absolute or has a part such as `..`.
    pub fn given(&self, path: &str) -> Result<PathBuf, StepFailure> {
        let mut parts = Path::new(path).components();
        let absolute = parts.next() == Some(Component::RootDir);
        if absolute && path.len() > 1 && parts.all(|part| matches!(part, Component::Normal(_))) {
            return Ok(self.at(path));
        }
        Err(failed(format!("the path {path:?} is not absolute or holds `..`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_paths_that_could_climb_out() {
        let root = Root::new(Path::new("/scratch"));
        assert_eq!(root.given("/etc/hosts").unwrap(), Path::new("/scratch/etc/hosts"));
        for bad in ["", "/", "etc/hosts", "/etc/../../x", "../x"] {
            assert!(root.given(bad).is_err(), "{bad}");
        }
    }
}
