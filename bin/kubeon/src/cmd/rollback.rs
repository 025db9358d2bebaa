//! `kubeon rollback`.

use kubeon_engine::change::ChangeOptions;
use kubeon_engine::destroy::{DestroyOutcome, DestroyRequest, DestroyTarget};
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::ready_master::ReadyMaster;
use kubeon_engine::request_inventory::InventoryFiles;
use kubeon_engine::restore::{RestoreRequest, forget_unused, import_if_unknown, target as restored_target};
use kubeon_engine::rollback::{RollbackPoint, created_since, point};
use kubeon_engine::snapshot_place::SnapshotPlace;
use kubeon_engine::snapshot_storage::SnapshotStorage;
use tokio_util::sync::CancellationToken;

use crate::args::upgrade::RollbackArgs;
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::node_version;
use crate::context::Context;
use crate::interrupt;
use crate::output::words;
use crate::report;

/// The command that holds the lock.
const COMMAND: &str = "kubeon rollback";

/// Returns a cluster to the snapshot from before its upgrade, or brings its nodes back alone.
pub(super) async fn run(context: &Context<'_>, args: &RollbackArgs) -> Result<(), CliError> {
    match &args.nodes {
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
    destroy(context, &engine, args).await?;
    let key = args.key.file.as_ref().map(|key| format!(" --key {}", key.display())).unwrap_or_default();
    context
        .output
        .info(&format!("{name}: if this stops now, kubeon etcd restore {name} {file}{key} continues"));
    let restored = restore(context, &engine, args, &point).await;
    forget_unused(&engine, name, None)?;
    restored
}

async fn restore(
    context: &Context<'_>,
    engine: &Engine<'_>,
    args: &RollbackArgs,
    point: &RollbackPoint,
) -> Result<(), CliError> {
    // The state was forgotten when the cluster was removed from its hosts.
    import_if_unknown(engine, &args.name, &point.snapshot)?;
    let (masters, workers) = (Vec::new(), Vec::new());
    let request =
        RestoreRequest { name: &args.name, snapshot: &point.snapshot, masters, workers, declared: None };
    let target = restored_target(engine, request, args.change.target_options()?)?;
    let flags = ChangeFlags::of(COMMAND, &args.change);
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

async fn destroy(context: &Context<'_>, engine: &Engine<'_>, args: &RollbackArgs) -> Result<(), CliError> {
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
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    match prepared.make(&cancellation).await? {
        DestroyOutcome::Destroyed { hosts, .. } => {
            let hosts = words::count(hosts, "host");
            context.output.info(&format!("{}: {hosts} cleaned; the snapshot is restored now", args.name));
            Ok(())
        }
        DestroyOutcome::Incomplete(reconciled) => {
            let next_command = format!("{COMMAND} {} --yes", args.name);
            Err(report::incomplete(&reconciled, cancellation.is_cancelled(), &next_command))
        }
    }
}
