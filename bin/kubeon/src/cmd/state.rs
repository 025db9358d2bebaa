//! `kubeon state`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use kubeon_api::ClusterName;
use kubeon_engine::engine::Engine;
use kubeon_store::Imported;

use crate::args::state::{ExportArgs, ImportArgs, StateArgs, StateCommand};
use crate::cli_error::CliError;
use crate::context::Context;

/// Exports or imports a state.
pub(super) fn run(context: &Context<'_>, args: &StateArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    match &args.command {
        StateCommand::Export(args) => export(context, &engine, args),
        StateCommand::Import(args) => import(context, &engine, args),
    }
}

fn export(context: &Context<'_>, engine: &Engine<'_>, args: &ExportArgs) -> Result<(), CliError> {
    let name = engine.name(Some(&args.name))?;
    if let Some(path) = &args.file {
        export_to(engine, &name, path)?;
        context.output.info(&format!(
            "the state of {name} is in {}: it contains the keys, keep it secret",
            path.display()
        ));
        return Ok(());
    }
    let out = io::stdout();
    if out.is_terminal() {
        let error =
            CliError::refused("the state is binary and contains keys: it is not printed to a terminal");
        return Err(error.row("instead", format!("kubeon state export {name} {name}.tar.zst")));
    }
    Ok(engine.store.export(&name, out.lock())?)
}

/// Writes the state to a new file, which only its owner can read.
fn export_to(engine: &Engine<'_>, name: &ClusterName, path: &Path) -> Result<(), CliError> {
    // Before the file exists: an unknown cluster leaves no empty file.
    engine.load(name)?;
    let unwritable = |error: io::Error| {
        CliError::refused(format!("cannot create {}", path.display())).row("cause", error.to_string())
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    let written = engine.store.export(name, &file).map_err(CliError::from);
    let written = written.and_then(|()| file.sync_all().map_err(unwritable));
    if written.is_err() {
        // The error of the export matters more than that of the removal.
        fs::remove_file(path).ok();
    }
    written
}

fn import(context: &Context<'_>, engine: &Engine<'_>, args: &ImportArgs) -> Result<(), CliError> {
    let name = engine.name(Some(&args.name))?;
    let file = args.file.as_ref().map(|path| {
        File::open(path).map_err(|error| {
            CliError::refused(format!("cannot read {}", path.display())).row("cause", error.to_string())
        })
    });
    let file = file.transpose()?;
    let lock = engine.store.lock(&name, "kubeon state import")?;
    let imported = match file {
        Some(file) => engine.store.import(&lock, file)?,
        None => engine.store.import(&lock, io::stdin().lock())?,
    };
    context.output.info(&match imported {
        Imported::Taken => format!("the state of {name} is imported"),
        Imported::Equal => format!("the state of {name} is already up to date"),
    });
    Ok(())
}
