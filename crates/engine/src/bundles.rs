//! The bundles of this machine.

use jiff::civil::Date;
use kubeon_api::Version;
use kubeon_bundle::catalogue::Channel;
use kubeon_bundle::{Arch, Bundle, BundleError, BundleRemedy, BundleStore, Catalogue};

use crate::environment::EngineEnvironment;
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;
use crate::trusted_signers;

/// The number of days before its end from which a version is warned of.
const WARNED_DAYS: i32 = 60;

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

/// The bundles of a version, one per architecture; that of this machine is the first, if there is one.
///
/// # Errors
/// Refuses when there is none, or one is damaged or not signed by a trusted key, with the remedy. No host was contacted yet.
pub fn find(environment: &EngineEnvironment, version: Version) -> Result<Vec<Bundle>, EngineError> {
    let store = store(environment)?;
    let mut archs = Arch::ALL;
    archs.sort_by_key(|arch| *arch != Arch::native());
    let (mut bundles, mut absent) = (Vec::new(), None);
    for arch in archs {
        match store.find(version, arch) {
            Ok(bundle) => bundles.push(bundle),
            Err(error @ BundleError::Absent { .. }) => {
                absent.get_or_insert(error);
            }
            Err(error) => {
                return Err(EngineError::refused(format!("the bundle of {version} for {arch} is damaged"))
                    .row("cause", chain(&error))
                    .remedy(EngineRemedy::Bundle(BundleRemedy::BuildAgain(version))));
            }
        }
    }
    match absent {
        Some(error) if bundles.is_empty() => {
            return Err(
                EngineError::refused(error.to_string()).remedy(error.remedy().map(EngineRemedy::Bundle))
            );
        }
        _ => bundles.iter().try_for_each(|bundle| trusted_signers::signer(environment, bundle).map(drop))?,
    }
    Ok(bundles)
}

/// The version that a text names: a channel of the catalogue stands for its version. Any other text is returned unchanged.
///
/// # Errors
/// When the catalogue is inconsistent.
pub fn version_of(text: &str) -> Result<String, EngineError> {
    let Ok(channel) = text.parse::<Channel>() else { return Ok(text.to_owned()) };
    let version = catalogue()?.channel(channel);
    version
        .map(|version| version.to_string())
        .ok_or_else(|| EngineError::failed(format!("no channel {channel}")))
}

/// Says that Kubernetes publishes no fixes for the version any more, or soon will not; `today` is the date of this machine.
///
/// # Errors
/// When the catalogue is inconsistent.
pub fn end_of_life_warning(version: Version, today: Date) -> Result<Option<String>, EngineError> {
    let Some(end) = catalogue()?.end_of_life(version) else { return Ok(None) };
    let minor = format!("v{}.{}", version.major, version.minor);
    let left = (end - today).get_days();
    Ok(match left {
        ..0 => {
            Some(format!("Kubernetes {minor} has got no fixes since {end}: plan to move to a newer version"))
        }
        0..WARNED_DAYS => Some(format!("Kubernetes {minor} gets fixes until {end} only")),
        _ => None,
    })
}

/// The catalogue that is built into this program.
///
/// # Errors
/// When the catalogue is inconsistent.
pub fn catalogue() -> Result<Catalogue, EngineError> {
    Catalogue::embedded().map_err(|error| EngineError::failed(chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_stands_for_its_version_and_other_texts_for_themselves() {
        let latest = catalogue().unwrap().versions().last().unwrap().to_string();
        assert_eq!(version_of("latest").unwrap(), latest);
        for text in ["v1.36.3", "newest", ""] {
            assert_eq!(version_of(text).unwrap(), text);
        }
    }

    #[test]
    fn the_end_of_a_version_is_said_before_and_after() {
        let version: Version = "v1.36.3".parse().unwrap();
        let end = catalogue().unwrap().end_of_life(version).unwrap();
        let warning = |days: i64| end_of_life_warning(version, end + jiff::Span::new().days(days)).unwrap();
        assert_eq!(warning(-60), None);
        assert!(warning(-59).unwrap().contains("until 2027-06-28 only"));
        assert!(warning(0).unwrap().contains("until"));
        assert!(warning(1).unwrap().contains("no fixes since 2027-06-28"));
        assert_eq!(end_of_life_warning("v1.20.0".parse().unwrap(), end).unwrap(), None);
    }
}
