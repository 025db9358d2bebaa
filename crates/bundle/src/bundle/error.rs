//! Errors of a bundle.

use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::Version;

use crate::{Arch, BundleRemedy};

/// The reason why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bundle does not exist.
    #[error("there is no bundle for {version} {arch} ({folder})", folder = folder.display())]
    Absent {
        /// The requested version.
        version: Version,
        /// The requested architecture.
        arch: Arch,
        /// The expected folder.
        folder: PathBuf,
    },
    /// A file of the bundle is missing or cannot be read.
    #[error("{path} cannot be read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A file of the bundle does not have the expected shape.
    #[error("{path} is not part of a bundle: {why}", path = path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The bundle has no part or image of that name.
    #[error("the bundle of {version} has no {kind} called {name}; it has {known}")]
    NoSuch {
        /// The bundle's version.
        version: Version,
        /// `part` or `image`.
        kind: &'static str,
        /// The requested name.
        name: String,
        /// The names that exist, as one text.
        known: String,
    },
    /// An image's archive cannot be written.
    #[error("the archive of {image} cannot be written to {path}: {source}", path = path.display())]
    Archive {
        /// The image.
        image: String,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl BundleError {
    /// What a user can do about it, if there is something.
    #[must_use]
    pub fn remedy(&self) -> Option<BundleRemedy> {
        match self {
            Self::Absent { version, .. } => Some(BundleRemedy::Build(*version)),
            _ => None,
        }
    }
}

pub(crate) fn shape(path: &Path, why: impl ToString) -> BundleError {
    BundleError::Shape { path: path.to_owned(), why: why.to_string() }
}
