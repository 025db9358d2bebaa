//! `kubeon bundle save` and `load`.

use kubeon_bundle::BundleArchiveError;
use kubeon_bundle::archive::{load as load_archive, save as save_archive};
use kubeon_engine::bundles::store;
use kubeon_engine::error::chain;
use serde_json::json;

use super::open::open_bundle;
use crate::args::Format;
use crate::args::bundle::{BundleLoad, BundleSave};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable, words};

/// Writes a bundle to one file.
pub(super) async fn save(context: &Context<'_>, args: &BundleSave) -> Result<(), CliError> {
    let bundle = open_bundle(context, &args.bundle)?;
    let (version, file) = (bundle.manifest().kubernetes, args.file.clone());
    let saved = tokio::task::spawn_blocking(move || save_archive(&bundle, &file)).await;
    let saved =
        saved.map_err(|error| CliError::failed(error.to_string()))?.map_err(|error| failed(&error))?;
    let (path, size) = (saved.path.display(), words::size(saved.size));
    let line = format!("bundle {version} is in {path}: {size}, sha256 {}", saved.digest);
    let value = json!({ "file": saved.path, "bytes": saved.size, "sha256": saved.digest.as_str() });
    print(context, &value, line, path.to_string(), args.format.output)
}

/// Adds the bundle in a file to this machine.
pub(super) async fn load(context: &Context<'_>, args: &BundleLoad) -> Result<(), CliError> {
    let (store, file) = (store(&context.engine_environment())?, args.file.clone());
    let loaded = tokio::task::spawn_blocking(move || load_archive(&store, &file)).await;
    let bundle =
        loaded.map_err(|error| CliError::failed(error.to_string()))?.map_err(|error| failed(&error))?;
    let manifest = bundle.manifest();
    let (version, arch) = (manifest.kubernetes, manifest.arch);
    let (parts, size) = (words::count(manifest.parts.len(), "part"), words::size(bundle.size()));
    let line = format!("bundle {version} {arch} is ready: {parts} checked against their SHA-256, {size}");
    let value = json!({ "version": version, "architecture": arch, "folder": bundle.root() });
    print(context, &value, line, version.to_string(), args.format.output)
}

fn print(
    context: &Context<'_>,
    value: &serde_json::Value,
    line: String,
    name: String,
    format: Format,
) -> Result<(), CliError> {
    let mut table = TextTable::new(&[""]);
    table.row([line]);
    context.output.result(&CommandResult::new(value, table, vec![name])?.text(format)?)
}

fn failed(error: &BundleArchiveError) -> CliError {
    let shown = CliError::failed(chain(error));
    match error {
        BundleArchiveError::Damaged { .. }
        | BundleArchiveError::Read { .. }
        | BundleArchiveError::Shape { .. } => shown.row(
            "fix",
            "copy the file again, and compare its SHA-256 with what `kubeon bundle save` printed",
        ),
        BundleArchiveError::Foreign { .. } => shown.row("fix", "name a file that `kubeon bundle save` wrote"),
        BundleArchiveError::Write { .. } | BundleArchiveError::Store { .. } => shown,
    }
}
