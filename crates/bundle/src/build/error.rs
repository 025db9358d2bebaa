//! Errors of a build.

use std::io;
use std::path::{Path, PathBuf};

use kubeon_process::ProgramError;

use super::published::PublishedError;
use crate::{BundleError, BundleRemedy};

/// The reason why a bundle could not be built. Finished components stay in the cache.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An unknown source.
    #[error("{0:?} is neither official, go-modules, the address of a mirror nor a folder that exists")]
    UnknownSource(String),
    /// A tool is not installed.
    #[error("{component} needs {tool}, which is not installed")]
    MissingTool {
        /// The component that needs it.
        component: String,
        /// The program or file.
        tool: String,
        /// The Debian package.
        package: String,
    },
    /// This machine is neither Debian nor Ubuntu.
    #[error("{component}: {tool} is missing: the build needs Debian or Ubuntu")]
    NotDebian {
        /// The component.
        component: String,
        /// The missing program.
        tool: &'static str,
    },
    /// A command failed.
    #[error("{component}: cannot {action}: {source}")]
    Command {
        /// The component.
        component: String,
        /// The action that failed: `fetch the modules`.
        action: &'static str,
        /// The error of the program.
        #[source]
        source: Box<ProgramError>,
    },
    /// A fetched or built file is not as expected.
    #[error("{component}: {why}")]
    Unexpected {
        /// The component.
        component: String,
        /// The cause.
        why: String,
    },
    /// A published file cannot be used.
    #[error("{component}: {source}")]
    Published {
        /// The component.
        component: String,
        /// The cause.
        #[source]
        source: Box<PublishedError>,
    },
    /// A folder given as source lacks files.
    #[error("{folder} lacks {count} of the parts: {names}", folder = folder.display(), count = missing.len(), names = missing.join(", "))]
    MissingFiles {
        /// The folder.
        folder: PathBuf,
        /// The names of the missing files.
        missing: Vec<String>,
    },
    /// An operation on a file or folder failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// The action, a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The built bundle cannot be opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A thread ended without a result, which is a bug of this program.
    #[error("a build thread ended without a result")]
    ThreadDied,
}

/// Turns a system error into a [`BuildError`]: `.map_err(at("write", path))`.
pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::File { action, path, source }
}

/// Texts in the output of programs, and the remedy for each.
const REMEDIES: [(&str, BundleRemedy); 10] = [
    ("no space left on device", BundleRemedy::MoveCache),
    ("No space left on device", BundleRemedy::MoveCache),
    ("requires go >=", BundleRemedy::InstallNewerGo),
    ("unknown directive: tool", BundleRemedy::InstallNewerGo),
    ("Unable to locate package", BundleRemedy::RenewPackageLists),
    ("no installation candidate", BundleRemedy::RenewPackageLists),
    ("404  Not Found", BundleRemedy::RenewPackageLists),
    ("GOPROXY=off", BundleRemedy::UseAnotherProxy),
    ("dial tcp", BundleRemedy::UseAnotherProxy),
    ("proxy.golang.org", BundleRemedy::UseAnotherProxy),
];

/// The remedy for the error output of a program, if one is known.
fn remedy_of(output: &str) -> Option<BundleRemedy> {
    REMEDIES.iter().find(|(text, _)| output.contains(text)).map(|(_, remedy)| remedy.clone())
}

impl BuildError {
    /// What a user can do about it, if something is known.
    #[must_use]
    pub fn remedy(&self) -> Option<BundleRemedy> {
        match self {
            Self::UnknownSource(_) => Some(BundleRemedy::ChooseSource),
            Self::NotDebian { .. } => Some(BundleRemedy::ProvideParts),
            Self::MissingTool { package, .. } => Some(BundleRemedy::InstallPackage(package.clone())),
            Self::Command { source, .. } => remedy_of(&source.to_string()),
            Self::Published { source, .. } => source.remedy(),
            Self::Bundle(error) => error.remedy(),
            Self::ThreadDied => Some(BundleRemedy::ReportBug),
            Self::Unexpected { .. } | Self::MissingFiles { .. } | Self::File { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_remedy_in_the_output_of_a_program() {
        let of = remedy_of;
        let proxy = "Get \"https://proxy.golang.org/x\": dial tcp: lookup failed";
        assert_eq!(of(proxy), Some(BundleRemedy::UseAnotherProxy));
        let lists = "E: Failed to fetch x  404  Not Found [IP: 10.0.0.1 80]";
        assert_eq!(of(lists), Some(BundleRemedy::RenewPackageLists));
        assert_eq!(of("undefined: x"), None);
    }
}
