//! Errors of the catalogue.

use kubeon_api::Version;

/// The reason why the catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A YAML file does not have the expected shape.
    #[error("catalogue/{file} cannot be read: {source}")]
    Parse {
        /// Path inside `catalogue/`.
        file: String,
        /// The parser's error.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A file that another one refers to is missing.
    #[error("catalogue/{0} is missing")]
    Missing(String),
    /// The data contradict each other.
    #[error("catalogue: {0}")]
    Contradiction(String),
    /// The version is not in the catalogue.
    #[error("Kubernetes {version} is not in the catalogue; it holds {known}")]
    UnknownVersion {
        /// The requested version.
        version: Version,
        /// The versions in the catalogue, as one text.
        known: String,
    },
}
