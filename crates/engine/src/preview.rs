//! The plan of a target without any effect: a dry run.

use std::time::{Duration, Instant};

use kubeon_plan::precheck::BUNDLE_CHECK;
use kubeon_plan::{Intent, Plan, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::change_bundles::ChangeBundles;
use crate::checked;
use crate::cluster_target::ClusterTarget;
use crate::contact::{Contact, ContactPurpose};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::host_keys::HostKeyOptions;
use crate::no_secrets::NoSecrets;
use crate::pre_apply_hook::PreApplyWait;
use crate::run::Run;

/// A plan that is not applied.
pub struct PlanPreview {
    /// The plan.
    pub plan: Plan,
    /// The input of the plan.
    pub intent: Intent,
    /// What was observed.
    pub snapshot: Snapshot,
    /// Time to observe the hosts and plan.
    pub took: Duration,
}

/// Observes and checks the hosts of a target, and makes its plan. Writes nothing.
///
/// # Errors
/// The errors of a change before its first effect.
pub async fn preview(
    engine: &Engine<'_>,
    target: &ClusterTarget,
    host_keys: &HostKeyOptions,
) -> Result<PlanPreview, EngineError> {
    // Fail early, as a change does: without the keys no change is possible.
    engine.check_keys(&target.state)?;
    let bundles = target.bundles(engine)?;
    target.warn(engine);
    let logins = engine.logins(&target.logins)?;
    let contact = engine.contact(&target.spec.name, logins, host_keys, ContactPurpose::Observe).await?;
    preview_through(engine, target, &bundles, &contact).await
}

/// The same through connections that exist, for a target whose keys may not be stored yet.
///
/// # Errors
/// Refuses when a check fails, or no plan can be made.
pub(crate) async fn preview_through(
    engine: &Engine<'_>,
    target: &ClusterTarget,
    bundles: &ChangeBundles,
    contact: &Contact,
) -> Result<PlanPreview, EngineError> {
    let begin = Instant::now();
    let later_artifacts = bundles.later_artifacts();
    let mut intent = Intent { later_artifacts, ..target.intent(bundles.artifacts()) };
    // A plan shows what another build changes; a change asks for it.
    intent.ignore.insert(BUNDLE_CHECK.to_owned());
    let run = Run {
        hosts: intent.hosts().collect(),
        probe: &contact.hosts,
        act: &contact.hosts,
        secrets: &NoSecrets,
        blobs: &NoSecrets,
        forwarding: None,
        cancellation: &CancellationToken::new(),
        output: engine.output,
        pre_apply_wait: PreApplyWait::Nothing,
    };
    let planned = checked::observe(&mut intent, &contact.hosts, &run).await?;
    let plan = planned.plan().clone();
    Ok(PlanPreview { plan, intent, snapshot: planned.snapshot, took: begin.elapsed() })
}
