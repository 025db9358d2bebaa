//! Everything that is installed into a meta cluster, as data.
//!
//! ```text
//!                       ┌─► objects ──────► `kubeon meta install`, deploy/kubeon.yaml, kustomize
//!   InstallOptions ─────┤
//!                       └─► the same objects, with marks ──► deploy/chart
//! ```
//!
//! One source: what the manifest, the chart and kustomize say can only differ in what a person sets. Pure: nothing here
//! reads a file or asks a cluster.

pub mod chart;
pub mod kustomize;
pub mod manifest;
pub mod monitoring;
pub mod names;
mod objects;
mod options;
pub mod policies;

pub use objects::{Part, config, deployment, part, rbac, webhook};
pub use options::{BUNDLE_IMAGE, InstallOptions, OPERATOR_IMAGE, RUNNER_IMAGES};

use serde_json::Value;

/// Why nothing could be generated.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The definitions of the kinds.
    #[error("generating the definitions of the kinds")]
    Definitions(#[from] kubeon_api::GenerateError),
    /// An object that does not become YAML.
    #[error("writing {kind} {name} as YAML")]
    Yaml {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The writer's error.
        #[source]
        source: Box<serde_saphyr::ser::Error>,
    },
    /// A mark of the chart that no template took the place of.
    #[error("the chart's template {file} still holds the mark {mark}")]
    Mark {
        /// The template.
        file: String,
        /// The mark.
        mark: String,
    },
}

impl InstallError {
    /// A word for labels and machines.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Definitions(_) => "definitions",
            Self::Yaml { .. } => "yaml",
            Self::Mark { .. } => "chart",
        }
    }
}

/// All objects, in the order in which they are to be applied: what others refer to comes first.
///
/// # Errors
/// When the types do not become definitions.
pub fn objects(options: &InstallOptions) -> Result<Vec<Value>, InstallError> {
    let mut all = vec![objects::namespace(options)];
    for part in Part::ALL {
        all.extend(part.objects(options)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
