//! `kubeon upgrade`.

use std::collections::BTreeSet;

use kubeon_api::Version;
use kubeon_engine::bundles::{self, version_of};
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::error::EngineError;
use kubeon_engine::preview::preview;
use kubeon_engine::ready_master::{ReadyMaster, kept_snapshot};
use kubeon_engine::request_inventory::InventoryFiles;
use kubeon_engine::snapshot_folder;
use kubeon_engine::snapshot_place::SnapshotPlace;
use kubeon_engine::snapshot_storage::SnapshotStorage;
use kubeon_engine::upgrade::{UpgradeObstacles, UpgradePurpose, hops, obstacles, target};
use kubeon_engine::upgrade_checks::REMOVED_APIS;
use kubeon_plan::Refusal;

use crate::args::upgrade::UpgradeArgs;
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::node_version::{forward, has_control_plane_of};
use crate::cmd::upgrade_plan;
use crate::cmd::upgrade_request::{access, begins, blocking_text, options};
use crate::context::Context;
use crate::output::words;

/// Upgrades a cluster, one minor version after another.
pub(super) async fn run(context: &Context<'_>, args: &UpgradeArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let text = version_of(&args.version)?;
    let wanted: Version =
        text.parse().map_err(|error| CliError::refused(format!("Input version [{text}] error: {error}")))?;
    let state = engine.find(Some(&args.name))?;
    if has_control_plane_of(&state, wanted) {
        return forward(context, &engine, state, args).await;
    }
    let hops = way(context, &engine, &state, wanted)?;
    if args.change.dry_run {
        return upgrade_plan::show(context, &engine, &state, &hops, args).await;
    }
    check_approval(&engine, &state, &hops, args).await?;
    before(context, &engine, &state, wanted, args).await?;
    let change = WayOptions { target: options(args)?, inventory: args.inventory.files(), flags: flags(args) };
    make_hops(context, &engine, &args.name, &hops, &change).await
}

/// Goes on with an upgrade over several minor versions.
pub(super) async fn go_on(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    wanted: Version,
    change: &WayOptions,
) -> Result<(), CliError> {
    let hops = way(context, engine, state, wanted)?;
    make_hops(context, engine, state.name.as_str(), &hops, change).await
}

/// How each change of an upgrade is made.
pub(super) struct WayOptions {
    /// The options of each target.
    pub target: TargetOptions,
    /// Logins of the hosts.
    pub inventory: InventoryFiles,
    /// The flags of each change.
    pub flags: ChangeFlags,
}

/// The versions on the way, with their bundles on this machine.
fn way(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    wanted: Version,
) -> Result<Vec<Version>, CliError> {
    let hops = hops(state, wanted, &engine.supported()?)?;
    for version in &hops {
        bundles::find(&engine.environment, *version)?;
    }
    if hops.len() > 1 {
        let way: Vec<String> = hops.iter().map(ToString::to_string).collect();
        context.output.info(&format!("{}: the way is {}", state.name, way.join(", then ")));
    }
    Ok(hops)
}

/// Makes one change after another. The state remembers the last version, so that the way is continued after an interruption.
async fn make_hops(
    context: &Context<'_>,
    engine: &Engine<'_>,
    name: &str,
    hops: &[Version],
    change: &WayOptions,
) -> Result<(), CliError> {
    let mut left = hops;
    while let [_, later @ ..] = left {
        let state = engine.find(Some(name))?;
        let (options, purpose) = (change.target.clone(), UpgradePurpose::Make);
        let target = target(engine, state, left, purpose, &change.inventory, options)?;
        make(context, engine, target, &change.flags).await?;
        left = later;
    }
    Ok(())
}

/// The target of the first of these versions, to show it.
fn shown_target(
    engine: &Engine<'_>,
    state: StoredCluster,
    hops: &[Version],
    args: &UpgradeArgs,
) -> Result<ClusterTarget, CliError> {
    let files = args.inventory.files();
    Ok(target(engine, state, hops, UpgradePurpose::Show, &files, options(args)?)?)
}

fn flags(args: &UpgradeArgs) -> ChangeFlags {
    ChangeFlags::of("kubeon upgrade", &args.change)
}

/// Checks that the plan of the first hop is the approved one. The steps that try a new minor version before are not part of it.
async fn check_approval(
    engine: &Engine<'_>,
    state: &StoredCluster,
    hops: &[Version],
    args: &UpgradeArgs,
) -> Result<(), CliError> {
    let Some(approved) = args.approved.read()? else { return Ok(()) };
    let target = shown_target(engine, state.clone(), hops, args)?;
    let now = preview(engine, &target, &args.change.contact.options()).await?;
    Ok(approved.check(&now.plan)?)
}

/// What comes before the first change: obstacles are named, and a snapshot of etcd is written.
async fn before(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    wanted: Version,
    args: &UpgradeArgs,
) -> Result<(), CliError> {
    // An upgrade that is continued took its snapshot when it began.
    if !begins(state) {
        return Ok(());
    }
    let access = access(args);
    let master = ReadyMaster::find(engine, state, &access).await?;
    let found = obstacles(state, &master, wanted).await?;
    for budget in &found.blocking_budgets {
        context.output.warn(&blocking_text(budget, options(args)?.drain_seconds));
    }
    found.nodes_not_ready.iter().chain(&found.stored_versions).for_each(|text| context.output.warn(text));
    if let Some(error) = refusal(args, wanted, &found) {
        return Err(error);
    }
    if args.skip_snapshot {
        return Ok(());
    }
    let member = ReadyMaster::find_member(engine, state, &access).await?;
    save_snapshot(context, engine, state, &member, (wanted, args)).await
}

/// The refusal of an upgrade against which something stands that the user does not ignore, with all reasons at once.
fn refusal(args: &UpgradeArgs, wanted: Version, found: &UpgradeObstacles) -> Option<CliError> {
    let counts = |check: &str| !args.change.ignore.ignore.iter().any(|ignored| ignored == check);
    let requested = found.removed_apis.iter().filter(|_| counts(REMOVED_APIS)).map(|api| {
        let reason = format!("was requested by a client, and {wanted} does not serve it");
        (REMOVED_APIS, Refusal::argument(api, reason))
    });
    let others = found.findings.iter().filter(|finding| counts(finding.check));
    let others =
        others.map(|finding| (finding.check, Refusal::argument(&finding.subject, finding.reason.clone())));
    let (checks, refusals): (BTreeSet<&str>, Vec<Refusal>) = requested.chain(others).unzip();
    if refusals.is_empty() {
        return None;
    }
    let mut error = CliError::from(EngineError::refusals(&args.name, refusals, &[]));
    if !found.removed_apis.is_empty() && checks.contains(REMOVED_APIS) {
        error = error.row("find clients", "the audit log of the masters, annotation k8s.io/deprecated");
    }
    let checks: Vec<&str> = checks.into_iter().collect();
    Some(error.row("or go on", format!("--ignore {}", checks.join(","))))
}

/// Writes the snapshot to the given place, else to the folder of upgrades, of which the last ones are kept.
async fn save_snapshot(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: &StoredCluster,
    master: &ReadyMaster,
    (wanted, args): (Version, &UpgradeArgs),
) -> Result<(), CliError> {
    let (now, version) = (jiff::Timestamp::now(), state.spec.version);
    let kept = Some(wanted).filter(|_| args.snapshot_on_master);
    let storage = SnapshotStorage::new(engine, args.key.file.as_deref())?;
    let folder = snapshot_folder::of_upgrades(engine, &args.name);
    let place = match &args.snapshot {
        Some(place) => place.for_new(version, now)?,
        None => SnapshotPlace::File(snapshot_folder::new_file(&folder, version, now)?),
    };
    storage.require_writable(&place)?;
    let saved = storage.save(engine, state, master, &place, kept).await?;
    if args.snapshot.is_none() {
        snapshot_folder::prune(&folder, snapshot_folder::KEPT)?;
    }
    if let Some(version) = kept {
        let place = kept_snapshot(version);
        context.output.info(&format!("{}: a snapshot of etcd is on {}: {place}", args.name, master.name));
    }
    let shown = match &place {
        SnapshotPlace::File(file) => context.shorten(file),
        object @ SnapshotPlace::Object(_) => object.to_string(),
    };
    context.output.info(&format!(
        "{}: a snapshot of etcd ({}) is in {shown}",
        args.name,
        words::size(saved.bytes)
    ));
    Ok(())
}
