//! The plans of a whole upgrade before it begins. The first is made from what was observed, the others from what the plans before them
//! would leave.

use kubeon_api::Version;
use kubeon_plan::precheck::BUNDLE_CHECK;
use kubeon_plan::{Intent, Plan, Snapshot, sim};
use kubeon_store::Status;
use serde::Serialize;

use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::host_keys::HostKeyOptions;
use crate::preview::{PlanPreview, preview};
use crate::request_inventory::InventoryFiles;
use crate::upgrade::{UpgradePurpose, target};
use crate::version_wait::refuse_beginning;

/// One change of version on the way of an upgrade.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedHop {
    /// The version before.
    pub from: Version,
    /// The version after it.
    pub to: Version,
    /// The plan with which the control plane tries the version, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Plan>,
    /// The plan with which the cluster takes it.
    pub plan: Plan,
}

/// The plans of an upgrade.
pub struct UpgradeForecast {
    /// The plan of the first version as it would be without a trial: the one that a person approves.
    pub first: PlanPreview,
    /// Every change. It ends early, with a warning, at a plan that cannot be made from what the plans before it would leave.
    pub hops: Vec<PlannedHop>,
}

/// Observes and checks the hosts, and makes the plans of the whole way. Writes nothing.
///
/// # Errors
/// The errors of the first change before its first effect.
pub async fn forecast(
    engine: &Engine<'_>,
    state: &StoredCluster,
    hops: &[Version],
    (inventory, options): (&InventoryFiles, &TargetOptions),
    host_keys: &HostKeyOptions,
) -> Result<UpgradeForecast, EngineError> {
    let of = |state: &StoredCluster, hops: &[Version], purpose| {
        target(engine, state.clone(), hops, purpose, inventory, options.clone())
    };
    let first = preview(engine, &of(state, hops, UpgradePurpose::Show)?, host_keys).await?;
    if let (Status::Running, Some(version)) = (state.status, hops.first()) {
        refuse_beginning(&first.plan, *version)?;
    }
    let (mut snapshot, mut state, mut planned) = (first.snapshot.clone(), state.clone(), Vec::new());
    for (index, to) in hops.iter().enumerate() {
        let left = hops.get(index..).unwrap_or_default();
        let trying = of(&state, left, UpgradePurpose::Make);
        let taking = of(&state, left, UpgradePurpose::Show);
        let plans = trying.and_then(|trying| plans(engine, &trying, &taking?, &mut snapshot));
        let from = state.version.unwrap_or(state.spec.version);
        match plans {
            Ok((trial, plan)) => planned.push(PlannedHop { from, to: *to, trial, plan }),
            Err(error) => {
                engine.output.warn(&format!("the plan of {to} is not known yet: {error}"));
                break;
            }
        }
        take(&mut state, *to);
    }
    Ok(UpgradeForecast { first, hops: planned })
}

/// The plans with which a version is tried, if it is, and taken.
fn plans(
    engine: &Engine<'_>,
    trying: &ClusterTarget,
    taking: &ClusterTarget,
    snapshot: &mut Snapshot,
) -> Result<(Option<Plan>, Plan), EngineError> {
    let trial = if trying.state.trial.is_some() { Some(apply(engine, trying, snapshot)?) } else { None };
    Ok((trial, apply(engine, taking, snapshot)?))
}

/// The plan of a target. The snapshot is afterwards what the plan would leave.
fn apply(engine: &Engine<'_>, target: &ClusterTarget, snapshot: &mut Snapshot) -> Result<Plan, EngineError> {
    let bundles = target.bundles(engine)?;
    let later_artifacts = bundles.later_artifacts();
    let mut intent = Intent { later_artifacts, ..target.intent(bundles.artifacts()) };
    intent.ignore.insert(BUNDLE_CHECK.to_owned());
    let plan = kubeon_plan::plan(&intent, snapshot)?;
    sim::apply(&plan, plan.steps.len(), snapshot);
    Ok(plan)
}

/// The state after the cluster took the version.
fn take(state: &mut StoredCluster, version: Version) {
    state.status = Status::Running;
    (state.version, state.trial, state.spec.version) = (Some(version), None, version);
    state.nodes_at = None;
    state.bundle.clear();
}
