//! `kubeon upgrade`.

use std::collections::BTreeSet;

use kubeon_api::Version;
use kubeon_engine::bundles::{self, version_of};
use kubeon_engine::cluster_nodes::NodeAccess;
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::engine::{Engine, StoredCluster, ignored_checks};
use kubeon_engine::error::EngineError;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::preview::preview;
use kubeon_engine::ready_master::{ReadyMaster, kept_snapshot};
use kubeon_engine::snapshot_folder;
use kubeon_engine::snapshot_place::SnapshotPlace;
use kubeon_engine::snapshot_storage::SnapshotStorage;
use kubeon_engine::upgrade::{UpgradeObstacles, UpgradePurpose, hops, obstacles, target};
use kubeon_engine::upgrade_checks::{REMOVED_APIS, UPGRADE_CHECKS};
use kubeon_plan::{Intent, Refusal};

use crate::args::upgrade::UpgradeArgs;
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::context::Context;
use crate::output::words;

/// Upgrades a cluster, one minor version after another.
pub(super) async fn run(context: &Context<'_>, args: &UpgradeArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let text = version_of(&args.version)?;
    let wanted: Version =
        text.parse().map_err(|error| CliError::refused(format!("Input version [{text}] error: {error}")))?;
    let state = engine.find(Some(&args.name))?;
    if state.version == Some(wanted) && state.spec.version == wanted && state.trial.is_none() {
        return context.output.result(&format!("{}: nothing to do, it has {wanted}\n", args.name));
    }
    let hops = hops(&state, wanted, &engine.supported()?)?;
    for version in &hops {
        bundles::find(&engine.environment, *version)?;
    }
    if hops.len() > 1 {
        let way: Vec<String> = hops.iter().map(ToString::to_string).collect();
        context.output.info(&format!("{}: the way is {}", args.name, way.join(", then ")));
    }
    if args.change.dry_run {
        return show(context, &engine, state, &hops, args).await;
    }
    check_approval(&engine, &state, &hops, args).await?;
    before(context, &engine, &state, wanted, args).await?;
    let mut left = hops.as_slice();
    while let [_, later @ ..] = left {
        let state = engine.find(Some(&args.name))?;
        let target = first_hop(&engine, state, left, UpgradePurpose::Make, args)?;
        make(context, &engine, target, &flags(args)).await?;
        left = later;
    }
    Ok(())
}

/// The target of the first of these versions. The hosts need disk space for all of them.
fn first_hop(
    engine: &Engine<'_>,
    state: StoredCluster,
    hops: &[Version],
    purpose: UpgradePurpose,
    args: &UpgradeArgs,
) -> Result<ClusterTarget, CliError> {
    let made = target(engine, state, hops[0], purpose, &args.inventory.files(), options(args)?)?;
    Ok(ClusterTarget { later_versions: hops[1..].to_vec(), ..made })
}

fn options(args: &UpgradeArgs) -> Result<TargetOptions, CliError> {
    let of_hosts = |check: &&String| !UPGRADE_CHECKS.contains(&check.as_str());
    let ignore = args.change.ignore.ignore.iter().filter(of_hosts).cloned().collect::<Vec<_>>();
    Ok(TargetOptions {
        logins: LoginRequests::from(&args.change.login),
        drain_seconds: if args.wait_time == 0 { Intent::DRAIN_SECONDS } else { args.wait_time },
        skip_evict: args.skip_evict,
        unseen_versions: args.later_versions,
        ignore: ignored_checks(&ignore)?,
        max_unavailable: args.change.rolling.max_unavailable,
        ..TargetOptions::default()
    })
}

fn flags(args: &UpgradeArgs) -> ChangeFlags {
    ChangeFlags::of("kubeon upgrade", &args.change)
}

/// Shows the plan of the first hop.
async fn show(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: StoredCluster,
    hops: &[Version],
    args: &UpgradeArgs,
) -> Result<(), CliError> {
    let version = hops[0];
    let plain = || format!("kubeon upgrade {} {}", args.name, args.version);
    let command = args.file.applied_by(context.typed_as("upgrade", "upgrade").unwrap_or_else(plain));
    if (version.major, version.minor) != (state.spec.version.major, state.spec.version.minor) {
        context.output.info(&format!(
            "{}: before these steps, every master starts the control plane of {version}, which emulates {}; until then, kubeon \
             abort {} goes back",
            args.name, state.spec.version, args.name
        ));
    }
    let target = first_hop(engine, state, hops, UpgradePurpose::Show, args)?;
    let host_keys = args.change.contact.options();
    let plan = plan::shown(context, engine, target, &host_keys, command, args.change.format.output).await?;
    Ok(args.file.write(&plan)?)
}

/// Checks that the plan of the first hop is the approved one. The steps that try a new minor version before are not part of it.
async fn check_approval(
    engine: &Engine<'_>,
    state: &StoredCluster,
    hops: &[Version],
    args: &UpgradeArgs,
) -> Result<(), CliError> {
    let Some(approved) = args.approved.read()? else { return Ok(()) };
    let target = first_hop(engine, state.clone(), hops, UpgradePurpose::Show, args)?;
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
    if state.version != Some(state.spec.version) || state.trial.is_some() {
        return Ok(());
    }
    let access = args.change.login.access(&args.change.contact);
    let access = NodeAccess { inventory: args.inventory.files(), ..access };
    let master = ReadyMaster::find(engine, state, &access).await?;
    let found = obstacles(&master, wanted).await?;
    for budget in &found.blocking_budgets {
        context.output.warn(&format!(
            "PodDisruptionBudget {budget} allows no disruption now: a drain waits for it, up to {} s",
            options(args)?.drain_seconds
        ));
    }
    found.nodes_not_ready.iter().for_each(|node| context.output.warn(node));
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
