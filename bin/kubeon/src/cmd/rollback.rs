//! `kubeon rollback`.

use kubeon_engine::change::ChangeOptions;
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::destroy::{DestroyOutcome, DestroyRequest, DestroyTarget};
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::ready_master::ReadyMaster;
use kubeon_engine::request_inventory::InventoryFiles;
use kubeon_engine::restore::{RestoreRequest, forget_unused, target as restored_target};
use kubeon_engine::rollback::{RollbackPoint, created_since, point, returned};
use kubeon_engine::snapshot_place::SnapshotPlace;
use kubeon_engine::snapshot_storage::{FetchedSnapshot, SnapshotStorage};
use tokio_util::sync::CancellationToken;

use crate::args::upgrade::RollbackArgs;
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::node_version;
use crate::cmd::plan;
use crate::context::Context;
use crate::interrupt;
use crate::output::words;
use crate::report;

/// The command that holds the lock.
const COMMAND: &str = "kubeon rollback";

/// Returns a cluster to the snapshot from before its upgrade, or brings its nodes back alone.
pub(super) async fn run(context: &Context<'_>, args: &RollbackArgs) -> Result<(), CliError> {
    match args.nodes {
        Some(asked) => node_version::back(context, args, asked).await,
        None => to_snapshot(context, args).await,
    }
}

async fn to_snapshot(context: &Context<'_>, args: &RollbackArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let snapshot = match &args.snapshot {
        Some(place) => {
            let storage = SnapshotStorage::new(&engine, args.key.file.as_deref())?;
            Some(storage.fetch(place.clone()).await?)
        }
        None => None,
    };
    if state.restoring.is_some() {
        return go_on(context, &engine, state, snapshot, args).await;
    }
    let point = point(&engine, &state, snapshot)?;
    let lost = lost(&engine, &state, &point, args).await;
    let (name, version) = (&args.name, point.version);
    let file = match &point.snapshot.place {
        SnapshotPlace::File(file) => context.shorten(file),
        object @ SnapshotPlace::Object(_) => object.to_string(),
    };
    let text =
        format!("{name} returns to {version} and to the snapshot of {} in {file}. {lost}", point.taken_at);
    if args.change.dry_run {
        return context.output.result(&format!("{text}\nNothing was written.\n"));
    }
    context.output.info(&text);
    let question = format!("Remove {name} from its hosts and make it again out of this snapshot?");
    if !args.yes && !engine.output.confirm(&question)? {
        let error = CliError::refused(format!("{name} would lose what was written since: not confirmed"));
        return Err(error.row("confirm", format!("{COMMAND} {name} --yes")));
    }
    let again = same_command(context, args);
    context.output.info(&format!("{name}: if this stops, continue with: {again}"));
    let removed = remove(context, &engine, args, &point, &again).await;
    forget_unused(&engine, name, None)?;
    removed?;
    let target = ClusterTarget::stored(&engine, engine.find(Some(name))?, args.change.target_options()?)?;
    make(context, &engine, target, &ChangeFlags::of(COMMAND, &args.change)).await
}

/// The command that the user typed. It also continues.
fn same_command(context: &Context<'_>, args: &RollbackArgs) -> String {
    context.typed_as("rollback", "rollback").unwrap_or_else(|| format!("{COMMAND} {} --yes", args.name))
}

/// Goes on with a cluster that is being made out of a snapshot. It was removed from its hosts before, and loses nothing more.
async fn go_on(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: StoredCluster,
    snapshot: Option<FetchedSnapshot>,
    args: &RollbackArgs,
) -> Result<(), CliError> {
    let name = &args.name;
    context.output.info(&format!("{name}: is being made out of a snapshot already, and that goes on"));
    let options = args.change.target_options()?;
    let target = match &snapshot {
        None => ClusterTarget::stored(engine, state, options)?,
        Some(snapshot) => {
            let (masters, workers) = (Vec::new(), Vec::new());
            let request = RestoreRequest { name, snapshot, masters, workers, declared: None };
            restored_target(engine, request, options)?
        }
    };
    let flags = ChangeFlags::of(COMMAND, &args.change);
    if args.change.dry_run {
        let command = same_command(context, args);
        return plan::create(context, engine, target, &flags.host_keys, command, flags.format).await;
    }
    make(context, engine, target, &flags).await
}

/// What was created since the snapshot, as a sentence.
async fn lost(
    engine: &Engine<'_>,
    state: &StoredCluster,
    point: &RollbackPoint,
    args: &RollbackArgs,
) -> String {
    let access = args.change.login.access(&args.change.contact);
    let created = match ReadyMaster::find(engine, state, &access).await {
        Ok(master) => created_since(&master, point.taken_at).await,
        Err(error) => Err(error),
    };
    match created {
        Err(error) => format!("What was written since is lost; it cannot be listed: {error}"),
        Ok(kinds) if kinds.is_empty() => {
            "No object was created since; changes of objects since then are lost.".to_owned()
        }
        Ok(kinds) => {
            let counts: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            format!(
                "Lost are {} that were created since, and all changes of other objects.",
                counts.join(", ")
            )
        }
    }
}

/// Removes the cluster from its hosts, and stores the state out of which the snapshot makes it again.
async fn remove(
    context: &Context<'_>,
    engine: &Engine<'_>,
    args: &RollbackArgs,
    point: &RollbackPoint,
    again: &str,
) -> Result<(), CliError> {
    let request = DestroyRequest {
        name: Some(&args.name),
        skip_hosts: &[],
        logins: LoginRequests::from(&args.change.login),
        inventory: InventoryFiles::default(),
        reboot: false,
    };
    let host_keys = args.change.contact.options();
    let options = ChangeOptions {
        command: COMMAND,
        host_keys: &host_keys,
        pre_apply_wait: args.change.pre_apply_wait.wait(),
        yes: true,
        approved: None,
    };
    let prepared = DestroyTarget::find(engine, &request)?.prepare(engine, &options).await?;
    // It is packed before the first host loses anything: the disk of this machine may be full.
    let next = returned(engine, point)?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    match prepared.make_and_store(next, &cancellation).await? {
        DestroyOutcome::Destroyed { hosts, .. } => {
            let hosts = words::count(hosts, "host");
            context.output.info(&format!("{}: {hosts} cleaned; the snapshot is restored now", args.name));
            Ok(())
        }
        DestroyOutcome::Incomplete(reconciled) => {
            Err(report::incomplete(&reconciled, cancellation.is_cancelled(), again))
        }
    }
}
