//! `kubeon config`: reads and changes the settings of a cluster.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use kubeon_engine::cluster_config::{changed, document, field, set};
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::{Engine, StoredCluster};
use serde_json::{Map, Value};

use crate::args::Format;
use crate::args::common_change::CommonChangeFlags;
use crate::args::config::{ConfigCommand, ConfigEditArgs, ConfigGetArgs, ConfigSetArgs};
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::context::Context;

/// Runs a command of `kubeon config`.
pub(super) async fn run(context: &Context<'_>, command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Get(args) => get(context, args),
        ConfigCommand::Set(args) => change_fields(context, args).await,
        ConfigCommand::Edit(args) => edit(context, args).await,
    }
}

fn get(context: &Context<'_>, args: &ConfigGetArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let all = document(&engine.find(Some(&args.name))?.spec.settings)?;
    let value = match &args.field {
        None => Value::Object(all),
        Some(path) => field(&all, path).cloned().unwrap_or_default(),
    };
    let text = match (args.format.output, &value) {
        (Format::Json, value) => format!("{value:#}\n"),
        (_, Value::Null) => String::new(),
        (Format::Table | Format::Wide | Format::Name, Value::String(text)) => format!("{text}\n"),
        (_, value) => yaml(value)?,
    };
    context.output.result(&text)
}

fn yaml(value: &Value) -> Result<String, CliError> {
    let text = serde_saphyr::to_string(value);
    text.map_err(|error| CliError::failed(format!("cannot write the settings as YAML: {error}")))
}

async fn change_fields(context: &Context<'_>, args: &ConfigSetArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let mut all = document(&state.spec.settings)?;
    for assignment in &args.assignments {
        set(&mut all, assignment)?;
    }
    let plain = || format!("kubeon config set {} {}", args.name, args.assignments.join(" "));
    let command = context.typed_as("config", "config").unwrap_or_else(plain);
    show_or_make(context, &engine, state, all, &args.change, command).await
}

async fn edit(context: &Context<'_>, args: &ConfigEditArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let before = yaml(&Value::Object(document(&state.spec.settings)?))?;
    let text = edited(context, engine.store.base(), &before)?;
    if text == before {
        return context.output.result(&format!("{}: nothing was changed\n", args.name));
    }
    let all: Map<String, Value> = serde_saphyr::from_str(&text)
        .map_err(|error| CliError::refused("the settings are no YAML").row("cause", error.to_string()))?;
    let command = format!("kubeon config edit {}", args.name);
    show_or_make(context, &engine, state, all, &args.change, command).await
}

/// The text after the user changed it in an editor.
fn edited(context: &Context<'_>, folder: &Path, text: &str) -> Result<String, CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("cannot edit a file: {error}"));
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let editor = &context.environment.editor;
    // As in other programs, the variable is a command line.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {editor} \"$1\""), "sh"]).arg(file.path());
    let status = command.status().map_err(failed)?;
    if !status.success() {
        return Err(CliError::refused(format!("{editor} ended with {status}; nothing was changed")));
    }
    std::fs::read_to_string(file.path()).map_err(failed)
}

async fn show_or_make(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: StoredCluster,
    settings: Map<String, Value>,
    flags: &CommonChangeFlags,
    command: String,
) -> Result<(), CliError> {
    let spec = changed(&state, settings)?;
    let target = ClusterTarget::changed(engine, state, spec, flags.target_options()?)?;
    let format = flags.format.output;
    if flags.dry_run {
        return plan::create(context, engine, target, &flags.contact.options(), command, format).await;
    }
    let flags = ChangeFlags {
        command: "kubeon config",
        host_keys: flags.contact.options(),
        pre_apply_wait: flags.pre_apply_wait.wait(),
        yes: true,
        approved: None,
        format,
    };
    make(context, engine, target, &flags).await
}
