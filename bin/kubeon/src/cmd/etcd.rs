//! `kubeon etcd`.

use std::io::Write as _;

use jiff::Timestamp;
use kubeon_engine::cluster_nodes::NodeAccess;
use kubeon_engine::cluster_target::TargetOptions;
use kubeon_engine::encrypted_file::write_new_key;
use kubeon_engine::engine::{Engine, ignored_checks};
use kubeon_engine::error::EngineError;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::ready_master::ReadyMaster;
use kubeon_engine::request_file::from_file;
use kubeon_engine::restore::{RestoreRequest, forget_unused, import_if_unknown, target as restored_target};
use kubeon_engine::snapshot_storage::SnapshotStorage;
use kubeon_link_host::Stream;
use kubeon_plan::Refusal;
use parking_lot::Mutex;
use serde_json::Value;

use crate::args::etcd::{
    EtcdArgs, EtcdCommand, KeyFlag, MemberArgs, NewKeyArgs, RestoreArgs, SaveArgs, SnapshotArgs,
};
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::context::Context;
use crate::output::words;
use crate::target::read;

/// Runs etcdctl, or a command on snapshots or members.
pub(super) async fn run(context: &Context<'_>, args: &EtcdArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    match &args.command {
        Some(EtcdCommand::Save(args)) => save(context, &engine, args).await,
        Some(EtcdCommand::Check(args)) => check(context, &engine, args).await,
        Some(EtcdCommand::NewKey(args)) => new_key(context, args),
        Some(EtcdCommand::Restore(args)) => restore(context, &engine, args).await,
        Some(EtcdCommand::Health(args)) => health(context, &engine, args).await,
        Some(EtcdCommand::Defrag(args)) => defrag(context, &engine, args).await,
        None => {
            let access = args.login.access(&args.contact);
            let master = member(&engine, args.name.as_deref().unwrap_or_default(), &access).await?;
            etcdctl(&master, &args.arguments).await
        }
    }
}

async fn member(engine: &Engine<'_>, name: &str, access: &NodeAccess) -> Result<ReadyMaster, CliError> {
    let state = engine.find(Some(name))?;
    Ok(ReadyMaster::find_member(engine, &state, access).await?)
}

fn words_of(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs etcdctl on a master. Its output is printed as it comes.
async fn etcdctl(master: &ReadyMaster, arguments: &[String]) -> Result<(), CliError> {
    // Write errors are ignored: the exit code reports the end of the command.
    let print = |stream: Stream, bytes: &[u8]| {
        let _ = match stream {
            Stream::Out => std::io::stdout().lock().write_all(bytes),
            Stream::Err => std::io::stderr().lock().write_all(bytes),
        };
    };
    let exit = master.etcdctl(arguments, &print).await?;
    if exit.success() {
        return Ok(());
    }
    Err(CliError::failed(format!("etcdctl on {}: {exit}", master.name)))
}

fn storage(engine: &Engine<'_>, key: &KeyFlag) -> Result<SnapshotStorage, CliError> {
    Ok(SnapshotStorage::new(engine, key.file.as_deref())?)
}

fn new_key(context: &Context<'_>, args: &NewKeyArgs) -> Result<(), CliError> {
    write_new_key(&args.file)?;
    let file = args.file.display();
    context.output.result(&format!(
        "{file} holds a new key. Keep a copy away from the snapshots: without it they cannot be read.\n"
    ))
}

async fn save(context: &Context<'_>, engine: &Engine<'_>, save: &SaveArgs) -> Result<(), CliError> {
    let args = &save.snapshot;
    let state = engine.find(Some(&args.name))?;
    let folder = args.place.is_folder().then_some(&args.place);
    if save.keep.is_some() && folder.is_none() {
        return Err(CliError::refused(format!("--keep needs a folder, and {} is none", args.place)));
    }
    let storage = storage(engine, &args.key)?;
    let place = args.place.for_new(state.spec.version, Timestamp::now())?;
    storage.require_writable(&place)?;
    let master = ReadyMaster::find_member(engine, &state, &args.login.access(&args.contact)).await?;
    let saved = storage.save(engine, &state, &master, &place, None).await?;
    context.output.result(&format!(
        "{}: a snapshot of {} is in {place} (sha256 {})\n\
         Keep {} with it and secret: it holds the state and the keys of the cluster.\n",
        args.name,
        words::size(saved.bytes),
        saved.sha256,
        place.state()
    ))?;
    let (Some(folder), Some(keep)) = (folder, save.keep) else { return Ok(()) };
    let removed = storage.prune(folder, keep).await?;
    if removed > 0 {
        context.output.info(&format!("{}: {} removed", args.name, words::count(removed, "old snapshot")));
    }
    Ok(())
}

/// Makes a cluster out of a snapshot.
async fn restore(context: &Context<'_>, engine: &Engine<'_>, args: &RestoreArgs) -> Result<(), CliError> {
    let mut refusals = Vec::new();
    let hosts = args.nodes.hosts(&mut refusals);
    if hosts.masters.is_empty() && !hosts.workers.is_empty() {
        refusals.push(Refusal::argument("-w", "needs masters: -m names all masters, -w all workers"));
    }
    if !refusals.is_empty() {
        return Err(EngineError::refusals(&args.name, refusals, &[]).into());
    }
    let (logins, ignore) = (LoginRequests::from(&args.nodes), ignored_checks(&args.ignore.ignore)?);
    let declared = match &args.file {
        Some(file) => Some(from_file(&read(file)?, &logins, &engine.supported()?)?),
        None => None,
    };
    let snapshot = storage(engine, &args.key)?.fetch(args.place.clone()).await?;
    let imported = import_if_unknown(engine, &args.name, &snapshot)?;
    let request = RestoreRequest {
        name: &args.name,
        snapshot: &snapshot,
        masters: hosts.masters,
        workers: hosts.workers,
        declared,
    };
    let options = TargetOptions { logins, ignore, ..TargetOptions::default() };
    let result = restore_onto(context, engine, request, options, args).await;
    forget_unused(engine, &args.name, imported.filter(|_| result.is_err() || args.dry_run).as_ref())?;
    result
}

async fn restore_onto(
    context: &Context<'_>,
    engine: &Engine<'_>,
    request: RestoreRequest<'_>,
    options: TargetOptions,
    args: &RestoreArgs,
) -> Result<(), CliError> {
    let target = restored_target(engine, request, options)?;
    let flags = ChangeFlags {
        command: "kubeon etcd restore",
        host_keys: args.contact.options(),
        pre_apply_wait: args.pre_apply_wait.wait(),
        yes: true,
        approved: None,
        format: args.format.output,
    };
    if args.dry_run {
        let command = format!("kubeon etcd restore {} {}", args.name, args.place);
        return plan::create(context, engine, target, &flags.host_keys, command, flags.format).await;
    }
    make(context, engine, target, &flags).await
}

async fn check(context: &Context<'_>, engine: &Engine<'_>, args: &SnapshotArgs) -> Result<(), CliError> {
    engine.name(Some(&args.name))?;
    let snapshot = storage(engine, &args.key)?.fetch(args.place.clone()).await?;
    let found = snapshot.check()?;
    context.output.result(&format!(
        "{} is a complete snapshot of {} (sha256 {})\n",
        snapshot.place,
        words::size(found.bytes),
        found.sha256
    ))
}

async fn health(context: &Context<'_>, engine: &Engine<'_>, args: &MemberArgs) -> Result<(), CliError> {
    let state = engine.find(Some(&args.name))?;
    let newest = state.snapshots.values().max_by_key(|snapshot| snapshot.taken_at);
    context.output.info(&newest.map_or_else(
        || format!("{}: no snapshot was saved yet: kubeon etcd save {} FILE", args.name, args.name),
        |snapshot| {
            let age = words::age(Timestamp::now().duration_since(snapshot.taken_at).as_secs());
            format!("{}: the newest snapshot is {age} old, of {}", args.name, snapshot.version)
        },
    ));
    let master = member(engine, &args.name, &args.login.access(&args.contact)).await?;
    etcdctl(&master, &words_of(&["endpoint", "status", "--cluster", "--write-out=table"])).await?;
    etcdctl(&master, &words_of(&["endpoint", "health", "--cluster", "--write-out=table"])).await
}

/// Releases unused space of every member. The leader comes last, so that it changes at most once.
async fn defrag(context: &Context<'_>, engine: &Engine<'_>, args: &MemberArgs) -> Result<(), CliError> {
    let master = member(engine, &args.name, &args.login.access(&args.contact)).await?;
    for endpoint in endpoints(&master).await? {
        let at = format!("--endpoints={endpoint}");
        etcdctl(&master, &words_of(&[&at, "--command-timeout=120s", "defrag"])).await?;
        etcdctl(&master, &words_of(&[&at, "endpoint", "health"])).await?;
        context.output.info(&format!("{}: {endpoint} is defragmented and serves", args.name));
    }
    Ok(())
}

/// The URLs of all members, that of the leader last.
async fn endpoints(master: &ReadyMaster) -> Result<Vec<String>, CliError> {
    let output = Mutex::new(Vec::new());
    let collect = |stream: Stream, bytes: &[u8]| {
        if stream == Stream::Out {
            output.lock().extend_from_slice(bytes);
        }
    };
    let words = words_of(&["endpoint", "status", "--cluster", "--write-out=json"]);
    let exit = master.etcdctl(&words, &collect).await?;
    let failed = |why: String| CliError::failed(format!("the members of etcd are not known: {why}"));
    if !exit.success() {
        return Err(failed(exit.to_string()));
    }
    let list: Vec<Value> =
        serde_json::from_slice(&output.into_inner()).map_err(|error| failed(error.to_string()))?;
    let mut found: Vec<(bool, String)> = list.iter().filter_map(member_status).collect();
    found.sort_by_key(|(leads, _)| *leads);
    Ok(found.into_iter().map(|(_, endpoint)| endpoint).collect())
}

/// Whether the member leads, and its URL.
fn member_status(item: &Value) -> Option<(bool, String)> {
    let status = &item["Status"];
    let leads = status["leader"] == status["header"]["member_id"];
    Some((leads, item["Endpoint"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_known_by_its_identity() {
        let item = |own: u64| {
            serde_json::json!({"Endpoint": "https://10.0.0.1:2379",
                "Status": {"header": {"member_id": own}, "leader": 7}})
        };
        assert_eq!(member_status(&item(7)), Some((true, "https://10.0.0.1:2379".to_owned())));
        assert!(!member_status(&item(8)).unwrap().0);
    }
}
