//! `kubeon bundle`.

mod archive;
mod open;
mod signature;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use kubeon_api::Version;
use kubeon_bundle::{
    Arch, BuildError, BuildOptions, BuildProgress, BuildState, Bundle, Origin, PartKind, build,
};
use kubeon_engine::bundles::{store, version_of};
use serde::Serialize;

use crate::args::Format;
use crate::args::bundle::{BundleArgs, BundleBuild, BundleCommand, BundleLs, BundleOne, BundleVerify};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::display::spinner::Spinner;
use crate::output::{CommandResult, TextTable, words};
use crate::remedies;
use kubeon_engine::error::chain;
use open::open_bundle;

/// Runs a subcommand of `kubeon bundle`.
pub(crate) async fn run(context: &Context<'_>, args: &BundleArgs) -> Result<(), CliError> {
    match &args.command {
        None => crate::help::help(context.output, &["bundle"]),
        Some(BundleCommand::Build(args)) => build_bundle(context, args).await,
        Some(BundleCommand::Ls(args)) => list(context, args),
        Some(BundleCommand::Inspect(args)) => inspect(context, args),
        Some(BundleCommand::Verify(args)) => verify(context, args).await,
        Some(BundleCommand::Sbom(args)) => {
            let bundle = open_bundle(context, &args.bundle)?;
            context.output.result(&format!("{:#}\n", kubeon_bundle::sbom::spdx(bundle.manifest())))
        }
        Some(BundleCommand::Sign(args)) => signature::sign(context, args),
        Some(BundleCommand::Trust(args)) => signature::trust(context, args),
        Some(BundleCommand::Save(args)) => archive::save(context, args).await,
        Some(BundleCommand::Load(args)) => archive::load(context, args).await,
    }
}

fn build_error(title: CliError, error: &BuildError) -> CliError {
    title.next(error.remedy().as_ref().map(remedies::bundle))
}

/// Builds the bundle of a version.
///
/// # Errors
/// When the version is not in the catalogue, or a part cannot be fetched or built.
pub(super) async fn build_bundle(context: &Context<'_>, args: &BundleBuild) -> Result<(), CliError> {
    let version = version_of(&args.version)?
        .parse::<Version>()
        .map_err(|error| CliError::refused(format!("Input version [{}] error: {error}", args.version)))?;
    let catalogue = kubeon_engine::bundles::catalogue()?;
    let entry = catalogue
        .entry(version)
        .map_err(|error| CliError::refused(format!("[check] Input version[{version}] not support: {error}")))?
        .clone();
    let store = store(&context.engine_environment())?;
    let arch = args.arch.unwrap_or(Arch::native());
    let from = match &args.from {
        Some(from) => from
            .parse()
            .map_err(|error: BuildError| build_error(CliError::refused(error.to_string()), &error))?,
        None => {
            let usual = Origin::usual(&store, version, arch);
            context.output.info(&format!("bundle {version} from {}", usual.name()));
            usual
        }
    };
    let compile_cache = args.compile_cache.clone();
    let options = BuildOptions { from, arch, store, refresh: args.refresh, compile_cache };
    if args.dry_run {
        return show_dry_run(context, &entry, &options, args.format.output);
    }
    let begin = Instant::now();
    let spinner = Arc::new(Spinner::new(context.output));
    let shown = Arc::clone(&spinner);
    let built =
        tokio::task::spawn_blocking(move || build(&entry, &options, &|progress| show(&shown, &progress)))
            .await
            .map_err(|error| CliError::failed(error.to_string()))?;
    drop(spinner);
    let bundle = built.map_err(|error| {
        build_error(CliError::failed(format!("bundle {version}: {}", chain(&error))), &error)
    })?;
    context.output.info(&format!(
        "bundle {version} is ready: {}, {}, {}",
        words::count(bundle.manifest().parts.len(), "part"),
        words::size(bundle.size()),
        words::time(begin.elapsed())
    ));
    if matches!(args.format.output, Format::Table | Format::Wide) {
        return context.output.result(&format!("{}\n", bundle.root().display()));
    }
    let row = row(&bundle, bundle.root().to_owned());
    let names = vec![row.version.clone()];
    context.output.result(&CommandResult::new(&row, TextTable::new(&[]), names)?.text(args.format.output)?)
}

/// A component that would be built.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    component: String,
    version: String,
    expected_seconds: u32,
}

fn show_dry_run(
    context: &Context<'_>,
    entry: &kubeon_bundle::CatalogueEntry,
    options: &BuildOptions,
    format: Format,
) -> Result<(), CliError> {
    let planned: Vec<_> = entry
        .components
        .iter()
        .map(|component| Planned {
            component: component.name.clone(),
            version: component.version.clone(),
            expected_seconds: component.expected_seconds,
        })
        .collect();
    let mut table = TextTable::new(&["COMPONENT", "VERSION", "ABOUT"]);
    for component in &planned {
        let seconds = format!("{} s", component.expected_seconds);
        table.row([component.component.clone(), component.version.clone(), seconds]);
    }
    let names = planned.iter().map(|component| component.component.clone()).collect();
    context.output.result(&CommandResult::new(&planned, table, names)?.text(format)?)?;
    let folder = options.store.folder(entry.kubernetes, options.arch);
    context.output.info(&format!(
        "Nothing was written. Components that are not in the cache would be built into {}",
        folder.display()
    ));
    Ok(())
}

fn show(spinner: &Spinner, progress: &BuildProgress) {
    let name = &progress.component;
    let left = match progress.seconds_left() {
        Some(seconds) if seconds > 0 => format!(", {seconds} s left"),
        _ => String::new(),
    };
    match progress.state {
        BuildState::Queued => {}
        BuildState::Waiting => spinner.progress(name, "waits for another build of this component"),
        BuildState::Fetching => spinner.progress(name, &format!("fetching{left}")),
        BuildState::Building { done, total } if total > 0 => {
            spinner.progress(name, &format!("building {done}/{total} packages{left}"));
        }
        BuildState::Downloading { done, total } => {
            spinner.progress(
                name,
                &format!("downloading {} of {}{left}", words::size(done), words::size(total)),
            );
        }
        BuildState::Building { .. } => spinner.progress(name, &format!("building{left}")),
        BuildState::Linking => spinner.progress(name, &format!("linking{left}")),
        BuildState::Packing => spinner.progress(name, "packing"),
        BuildState::Cached => spinner.end(name, Ok("found in the cache")),
        BuildState::Done => spinner.end(name, Ok("built")),
        BuildState::Failed => spinner.end(name, Err("failed")),
    }
}

#[derive(Serialize)]
struct Row {
    version: String,
    architecture: String,
    parts: usize,
    bytes: u64,
    from: String,
    folder: PathBuf,
}

fn row(bundle: &Bundle, folder: PathBuf) -> Row {
    let manifest = bundle.manifest();
    Row {
        version: manifest.kubernetes.to_string(),
        architecture: manifest.arch.to_string(),
        parts: manifest.parts.len(),
        bytes: bundle.size(),
        from: manifest.created_from.clone(),
        folder,
    }
}

fn list(context: &Context<'_>, args: &BundleLs) -> Result<(), CliError> {
    let store = store(&context.engine_environment())?;
    let found =
        store.list().map_err(|error| CliError::failed(format!("{}: {error}", store.bundles().display())))?;
    let mut rows = Vec::new();
    for (folder, bundle) in found {
        match bundle {
            Ok(bundle) => rows.push(row(&bundle, folder)),
            Err(error) => context.output.warn(&chain(&error)),
        }
    }
    if rows.is_empty() {
        context
            .output
            .info("no bundle on this machine; build one with: kubeon bundle build VERSION (see: kubeon view support)");
    }
    let mut table = TextTable::new(&["VERSION", "ARCH", "PARTS", "SIZE", "FROM"]).wide(&["FOLDER"]);
    for row in &rows {
        let folder = row.folder.display().to_string();
        let (parts, size) = (row.parts.to_string(), words::size(row.bytes));
        table.row([row.version.clone(), row.architecture.clone(), parts, size, row.from.clone(), folder]);
    }
    let names = rows.iter().map(|row| row.version.clone()).collect();
    context.output.result(&CommandResult::new(&rows, table, names)?.text(args.format.output)?)
}

fn inspect(context: &Context<'_>, args: &BundleOne) -> Result<(), CliError> {
    let bundle = open_bundle(context, &args.bundle)?;
    let manifest = bundle.manifest();
    let mut table =
        TextTable::new(&["PART", "KIND", "VERSION", "SIZE", "UNPACKED"]).wide(&["DIGEST", "PROGRAMS"]);
    for part in &manifest.parts {
        let kind = match part.kind {
            PartKind::Program => "program",
            PartKind::Archive => "archive",
            PartKind::Rootfs => "rootfs",
            PartKind::Image => "image",
        };
        table.row([
            part.name.clone(),
            kind.to_owned(),
            part.version.clone(),
            words::size(part.size),
            words::size(part.unpacked_size),
            part.digest.to_string(),
            part.programs.join(" "),
        ]);
    }
    let images: String = manifest.images.iter().map(|image| format!("  {}\n", image.reference)).collect();
    let names = manifest.parts.iter().map(|part| part.name.clone()).collect();
    let answer = CommandResult::new(manifest, table, names)?.footer(format!("images\n{images}"));
    if args.format.output == Format::Table {
        let size = words::size(bundle.size());
        context.output.info(&format!(
            "bundle {} {}, {size}, {}",
            manifest.kubernetes,
            manifest.arch,
            bundle.root().display()
        ));
    }
    context.output.result(&answer.text(args.format.output)?)
}

async fn verify(context: &Context<'_>, args: &BundleVerify) -> Result<(), CliError> {
    let bundle = open_bundle(context, &args.bundle)?;
    let begin = Instant::now();
    let (manifest, checked) = (bundle.manifest().clone(), bundle.clone());
    let result = tokio::task::spawn_blocking(move || checked.verify())
        .await
        .map_err(|error| CliError::failed(error.to_string()))?;
    result.map_err(|error| CliError::failed(error.to_string()).next(remedies::bundle(&error.remedy())))?;
    let signer = signature::signer(context, &bundle, args.key.as_deref())?;
    let line = format!(
        "bundle {} is intact: {} and {} checked against their SHA-256 in {}{}",
        manifest.kubernetes,
        words::count(manifest.parts.len(), "part"),
        words::count(manifest.images.len(), "image"),
        words::time(begin.elapsed()),
        signer.as_ref().map(|name| format!(", signed by {name}")).unwrap_or_default()
    );
    let parts = manifest.parts.len();
    let value =
        serde_json::json!({ "bundle": bundle.root(), "whole": true, "parts": parts, "signedBy": signer });
    let mut table = TextTable::new(&[""]);
    table.row([line]);
    let answer = CommandResult::new(&value, table, vec![manifest.kubernetes.to_string()])?;
    context.output.result(&answer.text(args.format.output)?)
}
