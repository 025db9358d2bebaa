//! `kubeon pause`, `kubeon resume` and `kubeon redo`.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::request_inventory::InventoryFiles;
use kubeon_store::{Holder, Status, StoreError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::args::upgrade::{PauseArgs, ResumeArgs};
use crate::cli_error::CliError;
use crate::cmd::change::{ChangeFlags, make};
use crate::cmd::plan;
use crate::cmd::upgrade::{WayOptions, go_on};
use crate::context::Context;
use crate::output::words;

/// Lets the command that changes a cluster stop after its running steps.
pub(super) async fn pause(context: &Context<'_>, args: &PauseArgs) -> Result<(), CliError> {
    let (engine, begin) = (context.engine()?, Instant::now());
    let name = &args.name;
    let Some(holder) = holder(&engine, name)? else {
        return Err(CliError::refused(format!("no command changes {name} now")));
    };
    let process = open(&holder)?;
    // Until now the command could end, and another process get its number.
    if self::holder(&engine, name)?.as_ref() != Some(&holder) {
        return Err(CliError::refused(format!("no command changes {name} now")));
    }
    let failed = |error: io::Error| CliError::failed(format!("cannot stop {holder}: {error}"));
    // A shell without job control lets its background commands ignore SIGINT until they handle it.
    pidfd_send_signal(&process, Signal::TERM).map_err(|error| failed(error.into()))?;
    context.output.info(&format!("{name}: {holder} ends after its running steps"));
    let limit = Duration::from_secs(args.wait.into());
    let ended = tokio::task::spawn_blocking(move || wait_for_end(&process, limit)).await;
    if !ended.map_err(io::Error::other).and_then(|ended| ended).map_err(failed)? {
        let error = CliError::failed(format!("{holder} still runs a step after {}", words::time(limit)));
        return Err(error.row("wait again", format!("kubeon pause {name} --wait 600")));
    }
    context.output.result(&format!(
        "{name} is paused ({})\n  go on:    kubeon resume {name}\n  go back:  kubeon abort {name}, if an upgrade can still be aborted\n",
        words::time(begin.elapsed())
    ))
}

/// The command that has the lock of the cluster.
fn holder(engine: &Engine<'_>, name: &str) -> Result<Option<Holder>, CliError> {
    let name = engine.find(Some(name))?.name;
    match engine.store.lock(&name, "kubeon pause") {
        Ok(_) => Ok(None),
        Err(StoreError::Locked { holder, .. }) => Ok(Some(holder)),
        Err(error) => Err(kubeon_engine::error::EngineError::from(error).into()),
    }
}

/// A handle of the process of a command on this machine.
fn open(holder: &Holder) -> Result<OwnedFd, CliError> {
    if !holder.is_on_this_machine() {
        return Err(CliError::refused(format!("{holder} does not run on this machine")));
    }
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
    let unknown = || CliError::refused(format!("the process of {holder} is not known; try again"));
    pidfd_open(pid.ok_or_else(unknown)?, PidfdFlags::NONBLOCK)
        .map_err(|error| CliError::failed(format!("cannot watch {holder}: {error}")))
}

/// Waits until the process has ended, which also frees its lock. Returns whether it did within the limit.
fn wait_for_end(process: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        // The handle of a process is readable when the process has ended.
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Continues the last change of a cluster.
pub(super) async fn resume(context: &Context<'_>, args: &ResumeArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let open = !state.leaving.is_empty() || !state.joining.is_empty() || state.changes_members();
    let chained = state.upgrading_to.filter(|wanted| state.version != Some(*wanted));
    if state.status == Status::Running && !open && chained.is_none() {
        return context.output.result(&format!("{}: nothing to resume\n", args.name));
    }
    let Some(wanted) = chained else { return reconcile(context, &engine, state, args, RESUME).await };
    if args.change.dry_run {
        context.output.info(&format!("{}: after this, the upgrade to {wanted} goes on", args.name));
        return reconcile(context, &engine, state, args, RESUME).await;
    }
    let state = if open {
        reconcile(context, &engine, state, args, RESUME).await?;
        engine.find(Some(&args.name))?
    } else {
        state
    };
    let change = WayOptions {
        target: args.change.target_options()?,
        inventory: InventoryFiles::default(),
        flags: ChangeFlags::of(RESUME, &args.change),
    };
    go_on(context, &engine, &state, wanted, &change).await
}

/// The command that holds the lock.
const RESUME: &str = "kubeon resume";

/// Writes again what is missing on the hosts of a cluster.
pub(super) async fn redo(context: &Context<'_>, args: &ResumeArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    reconcile(context, &engine, state, args, "kubeon redo").await
}

/// Makes the hosts equal to the stored specification.
async fn reconcile(
    context: &Context<'_>,
    engine: &Engine<'_>,
    state: StoredCluster,
    args: &ResumeArgs,
    command: &'static str,
) -> Result<(), CliError> {
    let change = &args.change;
    let target = ClusterTarget::stored(engine, state, change.target_options()?)?;
    let flags = ChangeFlags::of(command, change);
    if change.dry_run {
        let command = format!("kubeon create {}", args.name);
        return plan::create(context, engine, target, &flags.host_keys, command, flags.format).await;
    }
    make(context, engine, target, &flags).await
}
