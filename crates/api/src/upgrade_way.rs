//! The versions on the way of an upgrade. The programs of a cluster may be one minor version apart, so an upgrade visits
//! every minor version.

use crate::names::Version;

/// Why there is no way from one version to another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// The wanted version is older.
    #[error("is older than {0}: a downgrade is not possible")]
    Downgrade(Version),
    /// The wanted version cannot be installed.
    #[error("is not in the catalogue; it holds {0}")]
    Unknown(String),
    /// The wanted version has another major version.
    #[error("has another major version than {0}")]
    OtherMajor(Version),
    /// No version of a minor version between them can be installed.
    #[error("needs v{0}.{1} on the way, which is not in the catalogue")]
    Gap(u32, u32),
}

/// The versions from `now` to `wanted`: the newest known patch of each minor version between, then the wanted one.
///
/// # Errors
/// [`NoWay`].
pub fn upgrade_way(now: Version, wanted: Version, known: &[Version]) -> Result<Vec<Version>, NoWay> {
    if wanted < now {
        return Err(NoWay::Downgrade(now));
    }
    if !known.contains(&wanted) {
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        return Err(NoWay::Unknown(known.join(", ")));
    }
    if wanted.major != now.major {
        return Err(NoWay::OtherMajor(now));
    }
    let newest = |minor: u32| {
        let of_minor = known.iter().filter(|version| version.major == now.major && version.minor == minor);
        of_minor.max().copied().ok_or(NoWay::Gap(now.major, minor))
    };
    let between: Result<Vec<Version>, NoWay> = (now.minor + 1..wanted.minor).map(newest).collect();
    Ok(between?.into_iter().chain([wanted]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn way(now: &str, wanted: &str, known: &[&str]) -> Result<String, String> {
        let known: Vec<Version> = known.iter().map(|text| version(text)).collect();
        let way = upgrade_way(version(now), version(wanted), &known).map_err(|error| error.to_string())?;
        Ok(way.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    const KNOWN: [&str; 5] = ["v1.34.9", "v1.35.6", "v1.35.7", "v1.36.3", "v1.37.2"];

    #[test]
    fn each_minor_version_is_visited() {
        assert_eq!(way("v1.34.9", "v1.37.2", &KNOWN).unwrap(), "v1.35.7 v1.36.3 v1.37.2");
        assert_eq!(way("v1.35.6", "v1.35.7", &KNOWN).unwrap(), "v1.35.7");
        assert_eq!(way("v1.36.3", "v1.37.2", &KNOWN).unwrap(), "v1.37.2");
    }

    #[test]
    fn a_way_that_cannot_be_gone_is_refused() {
        let refusal = |now, wanted, known: &[&str]| way(now, wanted, known).unwrap_err();
        assert_eq!(
            refusal("v1.36.3", "v1.35.7", &KNOWN),
            "is older than v1.36.3: a downgrade is not possible"
        );
        assert!(
            refusal("v1.36.3", "v1.38.0", &KNOWN).starts_with("is not in the catalogue; it holds v1.34.9")
        );
        assert_eq!(
            refusal("v1.34.9", "v1.36.3", &["v1.34.9", "v1.36.3"]),
            "needs v1.35 on the way, which is not in the catalogue"
        );
        assert_eq!(refusal("v1.36.3", "v2.0.0", &["v2.0.0"]), "has another major version than v1.36.3");
    }
}
