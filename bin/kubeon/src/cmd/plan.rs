//! `kubeon plan`, and `--dry-run` of other commands.

use std::time::Duration;

use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::Engine;
use kubeon_engine::host_keys::HostKeyOptions;
use kubeon_engine::preview::{PlanPreview, preview};
use kubeon_plan::{Intent, Plan};

use crate::args::Format;
use crate::args::cluster::{ClusterArgs, PlanArgs};
use crate::cli_error::CliError;
use crate::cmd::cloud;
use crate::cmd::open_rotation::mention_open_rotation;
use crate::context::Context;
use crate::display::plan as text;
use crate::output::{CommandResult, words};
use crate::target::{self, AskedBy};

/// Shows the plan.
pub(super) async fn run(context: &Context<'_>, args: &PlanArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let target = target::find(&engine, &args.cluster, AskedBy::Plan)?;
    let command = args.file.applied_by(create_command(context, &target, &args.cluster, "plan"));
    let host_keys = args.cluster.contact.options();
    let plan = shown(context, &engine, target, &host_keys, command, args.format.output).await?;
    Ok(args.file.write(&plan)?)
}

/// The command that applies the plan; `typed` is the name of the typed command.
pub(super) fn create_command(
    context: &Context<'_>,
    target: &ClusterTarget,
    args: &ClusterArgs,
    typed: &str,
) -> String {
    let continue_command = || context.continue_command("create", &target.spec.name);
    let by_name = args.file.is_none() && args.inventory.inventory.is_none();
    if by_name && !args.take_back && target.known && target.state.spec == *target.spec {
        return continue_command();
    }
    context.typed_as(typed, "create").unwrap_or_else(continue_command)
}

/// Shows the plan of a target.
///
/// # Errors
/// The errors of `create` before its first effect.
pub(super) async fn create(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    host_keys: &HostKeyOptions,
    command: String,
    format: Format,
) -> Result<(), CliError> {
    shown(context, engine, target, host_keys, command, format).await.map(drop)
}

/// Shows the plan of a target, and returns it.
///
/// # Errors
/// As for [`create`].
pub(super) async fn shown(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    host_keys: &HostKeyOptions,
    command: String,
    format: Format,
) -> Result<Plan, CliError> {
    let PlanPreview { plan, intent, took, .. } = preview(engine, &target, host_keys).await?;
    show(context, &plan, Some(&intent), took, &command, format)?;
    let name = &target.spec.name;
    mention_open_rotation(context, name, target.state.keys);
    let routes = target.state.cloud_routes.as_ref();
    cloud::mention(context, name, routes, "follow when the change is complete");
    Ok(plan)
}

/// Prints a plan.
///
/// # Errors
/// When it cannot be printed.
pub(super) fn show(
    context: &Context<'_>,
    plan: &Plan,
    intent: Option<&Intent>,
    took: Duration,
    command: &str,
    format: Format,
) -> Result<(), CliError> {
    let output = context.output;
    let names = plan.steps.iter().map(|step| step.id.to_string()).collect();
    let is_text = matches!(format, Format::Table | Format::Wide);
    let answer = CommandResult::new(plan, text::table(plan, format == Format::Wide), names)?;
    if !is_text {
        return output.result(&answer.text(format)?);
    }
    if plan.steps.is_empty() {
        let (hosts, facts) = (words::count(plan.hosts.len(), "host"), words::count(plan.facts, "fact"));
        let took = words::time(took);
        let nothing = if plan.waiting.is_empty() { "nothing to do" } else { "nothing can be done now" };
        let waits = text::waits(plan);
        return output
            .result(&format!("{}: {nothing} ({hosts}, {facts}, checked in {took})\n{waits}", plan.cluster));
    }
    let head = intent.map_or_else(
        || format!("{}  {}\n", plan.cluster, text::versions(plan)),
        |intent| text::head(plan, intent.spec.masters.len(), intent.spec.workers.len()),
    );
    output.result(&format!("{head}{}{}", answer.text(format)?, text::waits(plan)))?;
    output.result(&format!("{} Nothing was written. Apply with: {command}\n", text::summary(plan)))
}
