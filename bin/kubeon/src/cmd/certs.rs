//! `kubeon certs`.

use std::time::{Duration, Instant};

use kubeon_api::{ClusterKeys, RotationPhase};
use kubeon_engine::change::prepare;
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::observer_kubeconfig::observer_kubeconfig;
use kubeon_engine::pre_apply_hook::PreApplyWait;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::change::{ChangeFlags, complete};
use crate::args::Format;
use crate::args::certs::{CertsArgs, CertsCommand, ObserverArgs, RotateArgs};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::interrupt;
use crate::output::{CommandResult, TextTable, words};

const COMMAND: &str = "kubeon certs rotate";

/// Runs a command about the keys of a cluster.
pub(super) async fn run(context: &Context<'_>, args: &CertsArgs) -> Result<(), CliError> {
    match &args.command {
        CertsCommand::Rotate(args) => rotate(context, args).await,
        CertsCommand::Observer(args) => observer(context, args),
    }
}

/// Prints the kubeconfig of an observer.
fn observer(context: &Context<'_>, args: &ObserverArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(args.name.as_deref())?;
    context.output.result(&observer_kubeconfig(&engine, &state)?)
}

/// Completes the phases of a rotation, one after another.
async fn rotate(context: &Context<'_>, args: &RotateArgs) -> Result<(), CliError> {
    let begin = Instant::now();
    let engine = context.engine()?;
    let state = engine.find(args.name.as_deref())?;
    engine.confirm_rotation(&state, args.yes)?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    let mut state = engine.begin_rotation(state, COMMAND)?;
    while let Some(phase) = state.keys.rotation() {
        engine.output.info(&announcement(&state, phase));
        state = complete_phase(context, &engine, state, args, &cancellation).await?;
    }
    show(context, &engine, &state, begin.elapsed(), args.format.output)
}

async fn complete_phase(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: StoredCluster,
    args: &RotateArgs,
    cancellation: &CancellationToken,
) -> Result<StoredCluster, CliError> {
    let (keys, name) = (state.keys, state.name.clone());
    let options = TargetOptions {
        logins: LoginRequests::from(&args.login),
        max_unavailable: args.rolling.max_unavailable,
        ..TargetOptions::default()
    };
    let flags = ChangeFlags {
        command: COMMAND,
        host_keys: args.contact.options(),
        pre_apply_wait: PreApplyWait::Nothing,
        yes: true,
        approved: None,
        format: args.format.output,
    };
    let target = ClusterTarget::stored(engine, state, options)?;
    let prepared = prepare(engine, target, &flags.options()).await?;
    let next_command = context.continue_command("certs rotate", &name);
    let cluster = complete(prepared, cancellation, &next_command).await?;
    // The keys do not depend on the routes, so that the rotation goes on.
    if let Some(Err(error)) = &cluster.routes {
        let next = format!("kubeon cloud modify-router {name}");
        context.output.warn(&format!("{}; update them with {next}", error.title));
    }
    Ok(engine.advance_rotation(keys, &cluster, COMMAND)?)
}

fn announcement(state: &StoredCluster, phase: RotationPhase) -> String {
    let what = match phase {
        RotationPhase::Trust => "the new keys are trusted beside the old keys",
        RotationPhase::Reissue => "every certificate is made again with the new keys",
        RotationPhase::Renew => "kubelets, tokens of pods and Secrets change to the new keys",
        RotationPhase::Drop => "the old keys are no longer trusted",
    };
    let all = RotationPhase::ALL;
    let number = all.iter().take_while(|other| **other < phase).count() + 1;
    format!("{}  phase {number} of {}, {phase}: {what}", state.name, all.len())
}

fn show(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    took: Duration,
    format: Format,
) -> Result<(), CliError> {
    let kubeconfig = engine.store.kubeconfig_path(&state.name);
    let result = RotationResult {
        cluster: state.name.to_string(),
        keys: state.keys,
        kubeconfig: kubeconfig.display().to_string(),
        seconds: took.as_secs_f64(),
    };
    let text = match format {
        Format::Table | Format::Wide => result.text(&context.shorten(&kubeconfig), took),
        other => {
            CommandResult::new(&result, TextTable::new(&[]), vec![result.cluster.clone()])?.text(other)?
        }
    };
    context.output.result(&text)
}

/// The result of a rotation.
#[derive(Serialize)]
struct RotationResult {
    cluster: String,
    keys: ClusterKeys,
    kubeconfig: String,
    seconds: f64,
}

impl RotationResult {
    fn text(&self, kubeconfig: &str, took: Duration) -> String {
        let (name, took) = (&self.cluster, words::time(took));
        let number = self.keys.newest();
        format!(
            "{name} has new keys (number {number}), {took}\n\
             \x20 kubeconfig:  {kubeconfig} is new; replace every copy of it\n\
             \x20 pods:        after a leak of a key, restart those that call the API\n"
        )
    }
}
