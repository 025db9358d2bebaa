//! The objects of an installation in a meta cluster, as data.
//!
//! ```text
//!   InstallOptions ──► objects ──► `kubeon meta install`, deploy/kubeon.yaml, deploy/kustomize
//! ```
//!
//! The chart in deploy/chart is written by hand; a test compares its objects with the manifest. The
//! crate reads no file and connects to no cluster.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod kustomize;
pub mod manifest;
pub mod monitoring;
pub mod names;
mod objects;
mod options;
pub mod policies;

pub use objects::gateway::{GATEWAY_IMAGE, GatewayInstallOptions};
pub use objects::{InstallPart, deployment, part, rbac, webhook};
pub use options::{BUNDLE_IMAGE, IMAGE_DIGESTS, InstallOptions, OPERATOR_IMAGE, RUNNER_IMAGE, RUNNER_IMAGES};

use serde_json::Value;

/// Why the objects could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The custom resource definitions.
    #[error("cannot generate the custom resource definitions")]
    Definitions(#[from] kubeon_api::GenerateError),
    /// An object cannot be written as JSON.
    #[error("cannot write an object of the installation as JSON")]
    Json(#[source] serde_json::Error),
    /// An object cannot be written as YAML.
    #[error("cannot write {kind} {name} as YAML")]
    Yaml {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The writer's error.
        #[source]
        source: Box<serde_saphyr::ser::Error>,
    },
}

impl InstallError {
    /// The error category for labels.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Definitions(_) => "definitions",
            Self::Json(_) => "json",
            Self::Yaml { .. } => "yaml",
        }
    }
}

/// All objects in the order of applying: an object comes after those that it refers to.
///
/// # Errors
/// When the custom resource definitions cannot be generated, or an object cannot be written as JSON.
pub fn objects(options: &InstallOptions) -> Result<Vec<Value>, InstallError> {
    let mut all = vec![objects::namespace(options)?];
    for part in InstallPart::ALL {
        all.extend(part.objects(options)?);
    }
    Ok(all)
}

/// All objects of the gateway in the order of applying. The namespace must exist.
///
/// # Errors
/// When an object cannot be written as JSON.
pub fn gateway_objects(options: &GatewayInstallOptions) -> Result<Vec<Value>, InstallError> {
    objects::gateway::objects(options)
}

#[cfg(test)]
mod tests;
