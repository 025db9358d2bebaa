//! The bundles of this machine.

use kubeon_api::Version;
use kubeon_bundle::{Arch, Bundle, BundleError, BundleRemedy, BundleStore, Catalogue};

use crate::environment::EngineEnvironment;
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;

/// The store of bundles and of their build inputs.
///
/// # Errors
/// Refuses when the environment names no cache folder.
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
/// Refuses when the bundle is missing or damaged, with the remedy. No host was contacted yet.
pub fn find(environment: &EngineEnvironment, version: Version) -> Result<Bundle, EngineError> {
    store(environment)?.find(version, Arch::native()).map_err(|error| match &error {
        BundleError::Absent { .. } => {
            EngineError::refused(error.to_string()).remedy(error.remedy().map(EngineRemedy::Bundle))
        }
        _ => EngineError::refused(format!("the bundle of {version} is damaged"))
            .row("cause", chain(&error))
            .remedy(EngineRemedy::Bundle(BundleRemedy::BuildAgain(version))),
    })
}

/// The catalogue that is built into this program.
///
/// # Errors
/// When the catalogue is inconsistent.
pub fn catalogue() -> Result<Catalogue, EngineError> {
    Catalogue::embedded().map_err(|error| EngineError::failed(chain(&error)))
}
