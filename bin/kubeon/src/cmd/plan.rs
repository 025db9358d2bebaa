//! `kubeon plan`, and `--dry-run` of other commands.

use std::time::{Duration, Instant};

use kubeon_api::HostAddress;
use kubeon_engine::no_secrets::NoSecrets;
use kubeon_link_host::SshHosts;
use kubeon_plan::{Intent, Plan};
use kubeon_ports::ProbeHost;
use tokio_util::sync::CancellationToken;

use crate::args::cluster::{ClusterArgs, PlanArgs};
use crate::args::{Format, FormatFlag};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::display::plan as text;
use crate::output::{CommandResult, words};
use crate::target::{self, AskedBy};
use kubeon_engine::artifacts::artifacts;
use kubeon_engine::bundles;
use kubeon_engine::checked::{Checked, PrecheckProbe};
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::contact::ContactPurpose;
use kubeon_engine::engine::Engine;
use kubeon_engine::error::note_text;
use kubeon_engine::host_keys::HostKeyOptions;
use kubeon_engine::pre_apply_hook::PreApplyWait;
use kubeon_engine::run::Run;

/// Shows what would be done.
pub(super) async fn run(context: &Context<'_>, args: &PlanArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let target = target::find(&engine, &args.cluster, AskedBy::Plan)?;
    let command = create_command(context, &target, &args.cluster, "plan");
    create(context, &engine, target, &args.cluster.contact.options(), command, &args.format).await
}

/// What to type to have it done, where `typed` is the command that was typed.
pub(super) fn create_command(
    context: &Context<'_>,
    target: &ClusterTarget,
    args: &ClusterArgs,
    typed: &str,
) -> String {
    let again = || context.again("create", &target.spec.name);
    let by_name = args.file.is_none() && args.inventory.inventory.is_none();
    if by_name && !args.take_back && target.known && target.state.spec == *target.spec {
        return again();
    }
    context.typed_as(typed, "create").unwrap_or_else(again)
}

/// Shows what `create` would do.
///
/// # Errors
/// As `create` up to its first effect.
pub(super) async fn create(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    options: &HostKeyOptions,
    command: String,
    format: &FormatFlag,
) -> Result<(), CliError> {
    // Fail early, as `create` does: without the keys no change is possible.
    engine.look_for_keys(&target.state)?;
    let bundle = bundles::find(&engine.environment, target.spec.version)?;
    for note in &target.notes {
        context.output.warn(&note_text(note));
    }
    let logins = engine.logins(&target.logins)?;
    let contact = engine.contact(&target.spec.name, logins, options, ContactPurpose::Look).await?;
    let begin = Instant::now();
    let intent = target.intent(artifacts(&bundle));
    let probe = PrecheckProbe::about(&intent, &contact.hosts, &[]);
    let cancellation = CancellationToken::new();
    let run = observing(engine, &probe, &contact.hosts, intent.hosts().collect(), &cancellation);
    let plan = Checked::new(&intent).look(&run).await?.plan().clone();
    show(context, &plan, Some(&intent), begin.elapsed(), &command, format.output)
}

fn observing<'a>(
    engine: &'a Engine<'_>,
    probe: &'a dyn ProbeHost,
    hosts: &'a SshHosts,
    addresses: Vec<HostAddress>,
    cancellation: &'a CancellationToken,
) -> Run<'a> {
    Run {
        hosts: addresses,
        probe,
        act: hosts,
        secrets: &NoSecrets,
        blobs: &NoSecrets,
        cancellation,
        output: engine.output,
        hold: PreApplyWait::Nothing,
    }
}

/// Writes a plan.
///
/// # Errors
/// When it cannot be written.
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
    let people = matches!(format, Format::Table | Format::Wide);
    let answer = CommandResult::new(plan, text::table(plan, format == Format::Wide), names)?;
    if !people {
        return output.result(&answer.text(format)?);
    }
    if plan.steps.is_empty() {
        let (hosts, facts) = (words::count(plan.hosts.len(), "host"), words::count(plan.facts, "fact"));
        let took = words::time(took);
        return output
            .result(&format!("{}: nothing to do ({hosts}, {facts}, checked in {took})\n", plan.cluster));
    }
    let head =
        intent.map_or_else(|| format!("{}  {}\n", plan.cluster, plan.version), |intent| head(plan, intent));
    output.result(&format!("{head}{}", answer.text(format)?))?;
    output.result(&format!("{} Nothing was written. Apply with: {command}\n", text::summary(plan)))
}

/// `demo  v1.36.3  1 master, 2 workers, nothing installed yet`.
fn head(plan: &Plan, intent: &Intent) -> String {
    let (masters, workers) = (intent.spec.masters.len(), intent.spec.workers.len());
    let up_to_date = match plan.up_to_date {
        0 => "nothing installed yet".to_owned(),
        1 => "1 step is up to date".to_owned(),
        n => format!("{n} steps are up to date"),
    };
    let workers = if workers == 0 { String::new() } else { format!("{}, ", words::count(workers, "worker")) };
    let masters = words::count(masters, "master");
    format!("{}  {}  {masters}, {workers}{up_to_date}\n", plan.cluster, plan.version)
}
