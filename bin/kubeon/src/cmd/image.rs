//! `kubeon image`: loads images in parallel into the nodes that do not have them.

mod outcome;

use std::path::{Path, PathBuf};

use kubeon_api::ClusterName;
use kubeon_engine::engine::Engine;
use kubeon_engine::image_load::{ImageLoader, LoadableArchive};

use crate::args::Format;
use crate::args::bundle::{ImageArgs, ImageCommand, ImageLoad};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::display::spinner::Spinner;
use crate::output::{CommandResult, TextTable};

/// Runs a subcommand of `kubeon image`.
pub(super) async fn run(context: &Context<'_>, args: &ImageArgs) -> Result<(), CliError> {
    match &args.command {
        None => crate::help::help(context.output, &["image"]),
        Some(ImageCommand::Load(args)) => load(context, args).await,
    }
}

async fn load(context: &Context<'_>, args: &ImageLoad) -> Result<(), CliError> {
    let engine = context.engine()?;
    let (files, cluster) = split_arguments(&engine, &args.words)?;
    let archives = files.iter().cloned().map(LoadableArchive::read).collect::<Result<Vec<_>, _>>()?;
    let state = engine.find(cluster.as_deref())?;
    let access = args.login.access(&args.contact);
    let mut loader = ImageLoader::query(&engine, &state, &archives, &access).await?;
    let is_text = matches!(args.format.output, Format::Table | Format::Wide);
    let mut outcomes = Vec::new();
    // A failed archive does not stop the other archives. All failures are reported at the end.
    for file in &archives {
        let loaded = if args.dry_run {
            loader.preview(file)
        } else {
            loader.load(file, &Spinner::new(context.output)).await
        };
        if is_text {
            context.output.result(&format!("{}\n", outcome::text(&loaded, args.dry_run)))?;
        }
        outcomes.push(loaded);
    }
    if args.dry_run {
        context.output.info("Nothing was written.");
    }
    if !is_text {
        let complete = outcomes.iter().filter(|loaded| loaded.is_everywhere());
        let images = complete.flat_map(|loaded| loaded.images.clone()).collect();
        context
            .output
            .result(&CommandResult::new(&outcomes, TextTable::new(&[]), images)?.text(args.format.output)?)?;
    }
    outcome::end(&outcomes, args.dry_run, &retry_command(context, &files, &state.name))
        .map_err(|error| error.remedy(loader.remedy().as_ref()))
}

/// The command that repeats the load. It skips nodes that have the images.
fn retry_command(context: &Context<'_>, files: &[PathBuf], cluster: &ClusterName) -> String {
    let plain = || {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        format!("kubeon image load {} {cluster}", files.join(" "))
    };
    context.typed_as("image load", "image load").unwrap_or_else(plain)
}

/// Splits the arguments into files and cluster. The last argument is a cluster if a cluster of that name is
/// stored, or if no such file exists.
fn split_arguments(
    engine: &Engine<'_>,
    words: &[PathBuf],
) -> Result<(Vec<PathBuf>, Option<String>), CliError> {
    let mut files = words.to_vec();
    let cluster = match files.last() {
        Some(last) if files.len() > 1 && (!last.exists() || is_known(engine, last)) => {
            files.pop().map(|word| word.display().to_string())
        }
        _ => None,
    };
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => Err(CliError::refused(format!("there is no image archive {}", missing.display()))),
        None => Ok((files, cluster)),
    }
}

fn is_known(engine: &Engine<'_>, word: &Path) -> bool {
    word.to_str().is_some_and(|name| engine.find(Some(name)).is_ok())
}
