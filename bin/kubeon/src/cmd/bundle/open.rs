//! Opens a bundle for the commands.

use std::path::Path;

use kubeon_api::Version;
use kubeon_bundle::{Arch, Bundle, BundleError};
use kubeon_engine::bundles::store;
use kubeon_engine::error::chain;

use crate::cli_error::CliError;
use crate::context::Context;
use crate::remedies;

pub(super) fn to_cli_error(error: BundleError) -> CliError {
    let shown = match &error {
        BundleError::Absent { .. } => CliError::refused(error.to_string()),
        _ => CliError::failed(chain(&error)),
    };
    shown.next(error.remedy().as_ref().map(remedies::bundle))
}

/// Opens a bundle by version, by version and architecture as in `v1.36.3-arm64`, or by folder.
pub(super) fn open_bundle(context: &Context<'_>, text: &str) -> Result<Bundle, CliError> {
    if Path::new(text).is_dir() {
        return Bundle::open(Path::new(text)).map_err(to_cli_error);
    }
    let (version, arch) = match text.rsplit_once('-').map(|(version, arch)| (version, arch.parse())) {
        Some((version, Ok(arch))) => (version, arch),
        _ => (text, Arch::native()),
    };
    let version = version
        .parse::<Version>()
        .map_err(|error| CliError::refused(format!("{error}, and there is no folder with that name")))?;
    store(&context.engine_environment())?.find(version, arch).map_err(to_cli_error)
}
