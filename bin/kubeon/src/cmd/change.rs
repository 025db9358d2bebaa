//! A change of a cluster and its result, for `create`, `addon` and `delon`.

use std::time::{Duration, Instant};

use kubeon_engine::approved_plan::ApprovedPlan;
use kubeon_engine::change::{ChangeOptions, ChangeOutcome, PreparedChange, ReadyCluster, prepare};
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::Engine;
use kubeon_engine::host_keys::HostKeyOptions;
use kubeon_engine::pre_apply_hook::PreApplyWait;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::args::Format;
use crate::args::common_change::CommonChangeFlags;
use crate::cli_error::CliError;
use crate::cmd::cloud::{self, ChangedRoutes};
use crate::cmd::open_rotation::mention_open_rotation;
use crate::context::Context;
use crate::interrupt;
use crate::output::{CommandResult, TextTable, words};
use crate::report;

/// The flags of a change.
pub(super) struct ChangeFlags {
    /// The command that holds the lock.
    pub command: &'static str,
    /// Which host keys are accepted.
    pub host_keys: HostKeyOptions,
    /// The condition to wait for before the first effect on a host.
    pub pre_apply_wait: PreApplyWait,
    /// Whether workers may be removed without confirmation.
    pub yes: bool,
    /// The only plan that may be applied.
    pub approved: Option<ApprovedPlan>,
    /// Format of the result.
    pub format: Format,
}

impl ChangeFlags {
    /// The flags of a change that removes no host.
    pub(super) fn of(command: &'static str, flags: &CommonChangeFlags) -> Self {
        Self {
            command,
            host_keys: flags.contact.options(),
            pre_apply_wait: flags.pre_apply_wait.wait(),
            yes: true,
            approved: None,
            format: flags.format.output,
        }
    }

    /// The options for the engine.
    pub(super) fn options(&self) -> ChangeOptions<'_> {
        ChangeOptions {
            command: self.command,
            host_keys: &self.host_keys,
            pre_apply_wait: self.pre_apply_wait.clone(),
            yes: self.yes,
            approved: self.approved.as_ref(),
        }
    }
}

/// Makes the change and prints its result.
///
/// # Errors
/// When the change is refused or not complete.
pub(super) async fn make(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    flags: &ChangeFlags,
) -> Result<(), CliError> {
    let begin = Instant::now();
    let (name, keys) = (target.spec.name.clone(), target.state.keys);
    let next_command = context.continue_command("create", &name);
    let prepared = prepare(engine, target, &flags.options()).await?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    let cluster = complete(prepared, &cancellation, &next_command).await?;
    show(context, &cluster, begin.elapsed(), flags.format)?;
    mention_open_rotation(context, &name, keys);
    if let Some(version) = cluster.open_upgrade {
        context.output.info(&format!(
            "{name}: the change to {version} is not complete: kubeon resume {name} goes on, or kubeon abort {name} goes back, \
             while that is possible"
        ));
    }
    match cluster.routes {
        Some(Err(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes a prepared change.
///
/// # Errors
/// When the change is refused, or is not complete: `next_command` continues it.
pub(super) async fn complete(
    prepared: PreparedChange<'_>,
    cancellation: &CancellationToken,
    next_command: &str,
) -> Result<ReadyCluster, CliError> {
    match prepared.make(cancellation).await? {
        ChangeOutcome::Incomplete(reconciled) => {
            Err(report::incomplete(&reconciled, cancellation.is_cancelled(), next_command))
        }
        ChangeOutcome::Ready(cluster) => Ok(*cluster),
    }
}

fn show(
    context: &Context<'_>,
    cluster: &ReadyCluster,
    took: Duration,
    format: Format,
) -> Result<(), CliError> {
    let result = ChangeResult {
        cluster: cluster.spec.name.to_string(),
        version: cluster.spec.version.to_string(),
        changed: cluster.changed,
        nodes: cluster.nodes,
        of: cluster.spec.hosts().count(),
        left: cluster.left.clone(),
        kubeconfig: cluster.kubeconfig.display().to_string(),
        routes: cluster
            .routes
            .as_ref()
            .and_then(|routes| routes.as_ref().ok())
            .copied()
            .map(ChangedRoutes::from),
        seconds: took.as_secs_f64(),
        awaits_network: cluster.awaits_network,
    };
    let kubeconfig = context.shorten(&cluster.kubeconfig);
    let text = match format {
        Format::Table | Format::Wide => result.text(&kubeconfig, took),
        other => {
            CommandResult::new(&result, TextTable::new(&[]), vec![result.cluster.clone()])?.text(other)?
        }
    };
    context.output.result(&text)
}

/// The result of a change.
#[derive(Serialize)]
struct ChangeResult {
    cluster: String,
    version: String,
    changed: bool,
    nodes: usize,
    of: usize,
    /// Workers that were removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<String>,
    kubeconfig: String,
    /// Routes of a cloud provider that were changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<ChangedRoutes>,
    seconds: f64,
    /// The owner must install the network of the pods: nodes are not Ready before.
    #[serde(rename = "awaitsNetwork", skip_serializing_if = "std::ops::Not::not")]
    awaits_network: bool,
}

impl ChangeResult {
    fn text(&self, kubeconfig: &str, took: Duration) -> String {
        let name = &self.cluster;
        let took = words::time(took);
        if !self.changed {
            return format!(
                "{name}: nothing to do ({}, checked in {took})\n",
                words::count(self.nodes, "host")
            );
        }
        let left =
            if self.left.is_empty() { String::new() } else { format!("{} left, ", self.left.join(", ")) };
        let routes =
            self.routes.map(|routes| format!("\x20 routes:   {}\n", cloud::text(routes))).unwrap_or_default();
        let (state, next) = if self.awaits_network {
            let next =
                format!("apply your network plugin · kubeon plan {name} shows the checks that follow it");
            ("waits for a network of pods", next)
        } else {
            ("is ready", format!("kubeon display {name} · kubeon plan {name} · kubectl get nodes"))
        };
        format!(
            "{name} {state}: {} of {} nodes, {left}{took}\n\
             {routes}\
             \x20 kubectl:  export KUBECONFIG={kubeconfig}   (or: kubeon use {name})\n\
             \x20 next:     {next}\n",
            self.nodes, self.of
        )
    }
}
