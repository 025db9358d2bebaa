//! Remedies for errors of bundles and builds, as data. The caller describes them in its own terms.

use kubeon_api::Version;

/// What a user can do about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleRemedy {
    /// Build the missing bundle of this version.
    Build(Version),
    /// Build the damaged bundle of this version again.
    BuildAgain(Version),
    /// Name a source: the official releases, a mirror, the module proxy or a folder with the parts as files.
    ChooseSource,
    /// Provide the parts as files in a folder.
    ProvideParts,
    /// Take the parts from another source.
    UseAnotherSource,
    /// Install this Debian package.
    InstallPackage(String),
    /// Install a newer Go.
    InstallNewerGo,
    /// Use another module proxy, or provide the parts as files in a folder.
    UseAnotherProxy,
    /// Renew the package lists of the distribution.
    RenewPackageLists,
    /// Move the cache to a larger disk.
    MoveCache,
    /// Run the build again with more output, and report the bug.
    ReportBug,
}
