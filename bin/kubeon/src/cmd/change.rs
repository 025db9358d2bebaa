//! What `create`, `addon` and `delon` share: a change of a cluster, and its result.

use std::time::{Duration, Instant};

use kubeon_engine::change::{ChangeOptions, ChangeOutcome, ReadyCluster, prepare};
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::Engine;
use kubeon_engine::host_keys::HostKeyOptions;
use kubeon_engine::pre_apply_hook::PreApplyWait;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::args::Format;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::interrupt;
use crate::output::{CommandResult, TextTable, words};
use crate::report;

/// What flags say about a change.
pub(super) struct ChangeFlags {
    /// The command, for the lock.
    pub command: &'static str,
    /// Which host keys are accepted.
    pub host_keys: HostKeyOptions,
    /// What is waited for before the first effect on a host.
    pub hold: PreApplyWait,
    /// Whether workers may leave without a question.
    pub yes: bool,
    /// How the result is written.
    pub format: Format,
}

impl ChangeFlags {
    /// The same for the engine.
    pub(super) fn options(&self) -> ChangeOptions<'_> {
        ChangeOptions {
            command: self.command,
            host_keys: &self.host_keys,
            hold: self.hold.clone(),
            yes: self.yes,
        }
    }
}

/// Makes the change and writes its result.
///
/// # Errors
/// Why it was refused, or why it is not complete.
pub(super) async fn make(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    flags: &ChangeFlags,
) -> Result<(), CliError> {
    let begin = Instant::now();
    let name = target.spec.name.clone();
    let prepared = prepare(engine, target, &flags.options()).await?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    match prepared.make(&cancellation).await? {
        ChangeOutcome::Incomplete(reconciled) => {
            let again = context.again("create", &name);
            Err(report::incomplete(&reconciled, cancellation.is_cancelled(), &again))
        }
        ChangeOutcome::Ready(cluster) => show(context, &cluster, begin.elapsed(), flags.format),
    }
}

fn show(
    context: &Context<'_>,
    cluster: &ReadyCluster,
    took: Duration,
    format: Format,
) -> Result<(), CliError> {
    let done = Done {
        cluster: cluster.spec.name.to_string(),
        version: cluster.spec.version.to_string(),
        changed: cluster.changed,
        nodes: cluster.nodes,
        of: cluster.spec.hosts().count(),
        left: cluster.left.clone(),
        kubeconfig: cluster.kubeconfig.display().to_string(),
        seconds: took.as_secs_f64(),
    };
    let kubeconfig = context.shorten(&cluster.kubeconfig);
    let text = match format {
        Format::Table | Format::Wide => done.text(&kubeconfig, took),
        other => CommandResult::new(&done, TextTable::new(&[]), vec![done.cluster.clone()])?.text(other)?,
    };
    context.output.result(&text)
}

#[derive(Serialize)]
struct Done {
    cluster: String,
    version: String,
    changed: bool,
    nodes: usize,
    of: usize,
    /// Workers that left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<String>,
    kubeconfig: String,
    seconds: f64,
}

impl Done {
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
        format!(
            "{name} is ready: {} of {} nodes, {left}{took}\n\
             \x20 kubectl:  export KUBECONFIG={kubeconfig}   (or: kubeon use {name})\n\
             \x20 next:     kubeon display {name} · kubeon plan {name} · kubectl get nodes\n",
            self.nodes, self.of
        )
    }
}
