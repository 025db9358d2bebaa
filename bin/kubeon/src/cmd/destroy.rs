//! `kubeon destroy`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::{Artifacts, DesiredCluster, Intent, Snapshot, Valid};
use kubeon_store::Status;
use tokio_util::sync::CancellationToken;

use super::plan;
use crate::args::Format;
use crate::args::day::DestroyArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::interrupt;
use crate::output::words;
use crate::report;
use kubeon_engine::cluster_request;
use kubeon_engine::contact::ContactPurpose;
use kubeon_engine::engine::{self, Engine, StoredCluster, members};
use kubeon_engine::error::{EngineError, note_text};
use kubeon_engine::hosts_file::HostsFile;
use kubeon_engine::login_merge::{merge_remembered, refuse_unused_flags};
use kubeon_engine::login_request::HostLoginRequest;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::no_secrets::NoSecrets;
use kubeon_engine::request_inventory::merge_inventory_logins;
use kubeon_engine::run::Run;
use kubeon_engine::selector::Member;

/// Removes a cluster from its hosts.
pub(super) async fn run(context: &Context<'_>, args: &DestroyArgs) -> Result<(), CliError> {
    if args.force {
        let stop = CliError::refused("--force is not there: kubeon stops what it started by itself");
        return Err(stop.row("dead host", "leave it out with --without ADDRESS"));
    }
    let engine = context.engine()?;
    let mut state = engine.find(args.name.as_deref())?;
    // A cluster of a version that is no longer supported can be destroyed, too.
    let (spec, _) = cluster_request::stored_spec(state.spec.clone(), &[state.spec.version])?;
    let skip_hosts = engine::skip_hosts(&args.skip_hosts, &spec, &state)?;
    let intent = intent(spec, &state, skip_hosts);
    let hosts = asked(&intent);
    if hosts.is_empty() {
        return only_here(context, &engine, args, &state, &intent);
    }
    let logins = engine.logins(&login_requests(args, &state, &intent, &hosts)?)?;
    let begin = Instant::now();
    if args.dry_run {
        let contact =
            engine.contact(&state.name, logins, &args.contact.options(), ContactPurpose::Look).await?;
        let made =
            plan::look(&engine, &contact.hosts, hosts, &|snapshot| kubeon_plan::destroy(&intent, snapshot))
                .await?;
        let command = context.again("destroy", &state.name);
        return plan::show(context, &made, Some(&intent), begin.elapsed(), &command, args.format.output);
    }
    // Locked before the question: the answer is about the state that was read, which must not change meanwhile.
    let lock = engine.lock(&state, true, "kubeon destroy")?;
    agreed(context, args, &state, &intent)?;
    let contact =
        engine.contact(&state.name, logins, &args.contact.options(), ContactPurpose::Change).await?;
    let cancellation = CancellationToken::new();
    interrupt::watch(&cancellation, context.output)?;
    let run = Run {
        hosts,
        probe: &contact.hosts,
        act: &contact.hosts,
        secrets: &NoSecrets,
        blobs: &NoSecrets,
        cancellation: &cancellation,
        output: context.output,
        hold: args.hold.wanted(),
    };
    let make = |snapshot: &Snapshot| kubeon_plan::destroy(&intent, snapshot);
    let planned = run.look(&make).await?;
    let count = planned.plan().hosts.len();
    if !planned.plan().steps.is_empty() {
        state.status = Status::Destroying;
        let reconciled = run
            .act(planned, &make, |plan| {
                state.generation = state.generation.max(plan.generation);
                Ok(engine.store.save(&lock, &mut state)?)
            })
            .await?;
        contact.hosts.disconnect().await;
        if !reconciled.outcome.is_complete() {
            let again = format!("{} --yes", context.again("destroy", &state.name));
            return Err(report::incomplete(&reconciled, cancellation.is_cancelled(), &again));
        }
    }
    forget(&engine, &lock, &state.name)?;
    gone(context, args, &state.name, count, begin)
}

fn intent(spec: Valid<DesiredCluster>, state: &StoredCluster, skip_hosts: Vec<HostAddress>) -> Intent {
    engine::intent(spec, state, Artifacts::default(), skip_hosts)
}

/// The hosts that are observed: not the skipped ones, and none when no host was ever written to.
fn asked(intent: &Intent) -> Vec<HostAddress> {
    if intent.generation == 0 {
        return Vec::new();
    }
    intent.hosts().filter(|host| !intent.skip_hosts.contains(host)).collect()
}

/// How to log in to the hosts that are asked.
fn login_requests(
    args: &DestroyArgs,
    state: &StoredCluster,
    intent: &Intent,
    asked: &[HostAddress],
) -> Result<BTreeMap<HostAddress, HostLoginRequest>, CliError> {
    let (flags, masters) = (LoginRequests::from(&args.login), &intent.spec.masters);
    let logins = merge_remembered(intent.hosts(), masters, &flags, &state.logins);
    let mut logins = merge_inventory_logins(&args.inventory.files(), &flags, state, logins)?;
    // Skipped hosts count: leaving one more host out must not make a flag an error.
    refuse_unused_flags(&flags, masters, &logins)?;
    logins.retain(|host, _| asked.contains(host));
    Ok(logins)
}

/// Removes a cluster of which no host is contacted.
fn only_here(
    context: &Context<'_>,
    engine: &Engine<'_>,
    args: &DestroyArgs,
    state: &StoredCluster,
    intent: &Intent,
) -> Result<(), CliError> {
    let begin = Instant::now();
    let made = kubeon_plan::destroy(intent, &Snapshot::default()).map_err(EngineError::from)?;
    made.notes.iter().for_each(|note| context.output.warn(&note_text(note)));
    if args.dry_run {
        let command = context.again("destroy", &state.name);
        return plan::show(context, &made, Some(intent), begin.elapsed(), &command, args.format.output);
    }
    let lock = engine.lock(state, true, "kubeon destroy")?;
    agreed(context, args, state, intent)?;
    forget(engine, &lock, &state.name)?;
    gone(context, args, &state.name, 0, begin)
}

/// Asks, unless `--yes` is given.
fn agreed(
    context: &Context<'_>,
    args: &DestroyArgs,
    state: &StoredCluster,
    intent: &Intent,
) -> Result<(), CliError> {
    if args.yes {
        return Ok(());
    }
    let asked = asked(intent);
    let taken = |member: &Member| asked.contains(&HostAddress::from(member.address));
    let names: Vec<_> = members(&state.spec).into_iter().filter(taken).map(|member| member.name).collect();
    let question = if names.is_empty() {
        format!("Forget {}, and touch no host?", state.name)
    } else {
        format!("Destroy {} with everything in it on {}?", state.name, names.join(", "))
    };
    if context.output.confirm(&question)? {
        return Ok(());
    }
    let stop = CliError::refused(format!("{} was not destroyed: nobody agreed", state.name));
    Err(stop.row("agree", format!("kubeon destroy {} --yes", state.name)))
}

/// Forgets the cluster here, and the link of `use` where it points to it.
fn forget(engine: &Engine<'_>, lock: &kubeon_store::ClusterLock, name: &ClusterName) -> Result<(), CliError> {
    if let Some(home) = &engine.environment.home {
        let link = home.join(".kube/config");
        if std::fs::read_link(&link)
            .is_ok_and(|target| target == Path::new(&engine.store.kubeconfig_path(name)))
        {
            std::fs::remove_file(&link)?;
        }
    }
    if let Err(error) = HostsFile::of_this_machine().forget(name.as_str()) {
        engine.output.say(&format!("note: /etc/hosts still names {name}: {error}"));
    }
    Ok(engine.store.remove(lock, name)?)
}

fn gone(
    context: &Context<'_>,
    args: &DestroyArgs,
    name: &ClusterName,
    hosts: usize,
    begin: Instant,
) -> Result<(), CliError> {
    let took = words::time(begin.elapsed());
    let what = if hosts == 0 {
        "no host was touched".to_owned()
    } else {
        format!("{} clean", words::count(hosts, "host"))
    };
    match args.format.output {
        Format::Table | Format::Wide => context.output.result(&format!("{name} is gone: {what}, {took}\n")),
        Format::Name => context.output.result(&format!("{name}\n")),
        Format::Json | Format::Yaml => {
            let value = serde_json::json!({ "cluster": name, "destroyed": true, "hosts": hosts });
            let answer =
                crate::output::CommandResult::new(&value, crate::output::TextTable::new(&[]), Vec::new())?;
            context.output.result(&answer.text(args.format.output)?)
        }
    }
}
