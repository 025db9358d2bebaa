//! Why a bundle could not be made.

use std::io;
use std::path::{Path, PathBuf};

use kubeon_process::ProgramError;

use crate::{Arch, BundleError};

/// Why a bundle could not be built. Components that were finished before stay in the cache.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A source that is not supported yet.
    #[error("--from {0} is not there yet; use --from go-modules, or --from DIR with the parts as files")]
    NotYet(String),
    /// An unknown source.
    #[error("--from {0:?} is neither go-modules nor a folder that exists")]
    UnknownSource(String),
    /// A build for another architecture.
    #[error(
        "a bundle for {wanted} is built on a {wanted} machine; this one is {native}. Or bring its parts: --from DIR"
    )]
    ForeignArch {
        /// The architecture asked for.
        wanted: Arch,
        /// This machine's.
        native: Arch,
    },
    /// A tool is not installed.
    #[error("{component} needs {tool}, which is not installed; install it with: apt-get install {package}")]
    MissingTool {
        /// What cannot be built without it.
        component: String,
        /// The program or file.
        tool: String,
        /// The Debian package.
        package: String,
    },
    /// A command failed.
    #[error("{component}: cannot {action}: {source}{hint}")]
    Command {
        /// What was being made.
        component: String,
        /// What was tried: `fetch the modules`.
        action: &'static str,
        /// How the program ended.
        #[source]
        source: Box<ProgramError>,
        /// Empty, or the way out.
        hint: &'static str,
    },
    /// Something that was fetched or made is not what it should be.
    #[error("{component}: {why}")]
    Unexpected {
        /// What was being made.
        component: String,
        /// What is wrong, and the way out.
        why: String,
    },
    /// A folder given as source lacks files.
    #[error("{folder} lacks {count} of the parts: {missing}", folder = folder.display(), count = missing.split(", ").count())]
    Lacking {
        /// The folder.
        folder: PathBuf,
        /// The names, as one text.
        missing: String,
    },
    /// A file or folder could not be worked with.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// What was made cannot be opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A thread ended without a result, which is a fault of this program.
    #[error("a build thread ended without a result; run again with -v and report it")]
    ThreadDied,
}

/// Turns a system error into ours: `.map_err(at("write", path))`.
pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::File { action, path, source }
}

const OLD_GO: &str =
    "\nthe installed Go is too old for this component; install a newer one (backports, or go.dev)";
const NO_PROXY: &str =
    "\nthe module proxy does not answer; set GOPROXY to one that does, or bring the parts: --from DIR";
const OLD_LISTS: &str = "\nthe package lists are missing or old; renew them with: apt-get update";
const NO_SPACE: &str =
    "\nthe cache folder needs about 5 GiB while building; set KUBEON_CACHE to a larger disk";

/// Texts in the output of programs that have a remedy, and that remedy.
const WAYS_OUT: [(&str, &str); 10] = [
    ("no space left on device", NO_SPACE),
    ("No space left on device", NO_SPACE),
    ("requires go >=", OLD_GO),
    ("unknown directive: tool", OLD_GO),
    ("Unable to locate package", OLD_LISTS),
    ("no installation candidate", OLD_LISTS),
    ("404  Not Found", OLD_LISTS),
    ("GOPROXY=off", NO_PROXY),
    ("dial tcp", NO_PROXY),
    ("proxy.golang.org", NO_PROXY),
];

/// The remedy for a program's error output; empty when none is known.
pub(super) fn way_out(output: &str) -> &'static str {
    WAYS_OUT.iter().find(|(sign, _)| output.contains(sign)).map_or("", |(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_way_out() {
        assert!(way_out("Get \"https://proxy.golang.org/x\": dial tcp: lookup failed").contains("GOPROXY"));
        assert!(way_out("E: Failed to fetch x  404  Not Found [IP: 10.0.0.1 80]").contains("apt-get update"));
        assert_eq!(way_out("undefined: x"), "");
    }
}
