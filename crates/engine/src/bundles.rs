//! The bundles of this machine.

use kubeon_api::Version;
use kubeon_bundle::{Arch, Bundle, BundleError, BundleStore, Catalogue};

use crate::environment::EngineEnvironment;
use crate::error::{EngineError, chain};

/// Where bundles and what they are made of are.
///
/// # Errors
/// Refuses when the environment names no folder.
pub fn store(environment: &EngineEnvironment) -> Result<BundleStore, EngineError> {
    let Some(cache) = &environment.cache else {
        return Err(EngineError::refused("HOME is not set: set KUBEON_CACHE to a folder for bundles"));
    };
    let store = BundleStore::at(cache);
    Ok(match &environment.bundles {
        Some(bundles) => store.with_bundles(bundles),
        None => store,
    })
}

/// The bundle of a version.
///
/// # Errors
/// Refuses when there is none or it is damaged, with the command that makes it: no host has been touched yet.
pub fn find(environment: &EngineEnvironment, version: Version) -> Result<Bundle, EngineError> {
    store(environment)?.find(version, Arch::native()).map_err(|error| match &error {
        BundleError::Absent { .. } => EngineError::refused(error.to_string()),
        _ => EngineError::refused(format!("the bundle of {version} is damaged"))
            .row("cause", chain(&error))
            .hint(format!("build it again with: kubeon bundle build {version}")),
    })
}

/// The catalogue that is built into this program.
///
/// # Errors
/// When it contradicts itself.
pub fn catalogue() -> Result<Catalogue, EngineError> {
    Catalogue::embedded().map_err(|error| EngineError::failed(chain(&error)))
}
