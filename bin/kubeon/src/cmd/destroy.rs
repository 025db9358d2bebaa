//! `kubeon destroy`.

use std::path::Path;
use std::time::Instant;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_apply::Stop as Switch;
use kubeon_plan::{Artifacts, ClusterSpec, Intent, Snapshot, Valid};
use kubeon_store::Status;

use super::{Context, plan};
use crate::args::Format;
use crate::args::day::DestroyArgs;
use crate::args::node::LoginWish;
use crate::engine::contact::Purpose;
use crate::engine::hosts_file::HostsFile;
use crate::engine::login::with_remembered;
use crate::engine::run::Run;
use crate::engine::{self, Engine, State, interrupt, members};
use crate::output::words;
use crate::report;
use crate::stop::Stop;
use crate::wish;

/// Takes a cluster away from its hosts.
pub async fn run(context: &Context<'_>, args: &DestroyArgs) -> Result<(), Stop> {
    if args.force {
        let stop = Stop::refused("--force is not there: kubeon stops what it started by itself");
        return Err(stop.row("dead host", "leave it out with --without ADDRESS"));
    }
    let engine = Engine::new(context)?;
    let mut state = engine.find(args.name.as_deref())?;
    // What was made under a version that is no longer supported must go all the same.
    let (spec, _) = wish::stored(state.spec.clone(), &[state.spec.version])?;
    let without = engine::without(&args.without, &spec, &state)?;
    let intent = intent(spec, &state, without);
    let hosts: Vec<HostAddress> = intent.hosts().collect();
    let flags = LoginWish::from(&args.login);
    let said = with_remembered(hosts.iter().copied(), &flags, &state.logins);
    let logins = engine.logins(&crate::inventory::known_better(&args.inventory, &state.name, said)?)?;
    let begin = Instant::now();
    if args.dry_run {
        let contact = engine.contact(&state.name, logins, &args.contact, Purpose::Look).await?;
        let made =
            plan::look(&engine, &contact.hosts, hosts, &|snapshot| kubeon_plan::destroy(&intent, snapshot))
                .await?;
        let command = format!("kubeon destroy {}", state.name);
        return plan::show(&engine, &made, Some(&intent), begin.elapsed(), &command, args.format.output);
    }
    agreed(context, args, &state)?;
    let lock = engine.store.lock(&state.name, "kubeon destroy").map_err(engine::stop)?;
    let contact = engine.contact(&state.name, logins, &args.contact, Purpose::Change).await?;
    let switch = Switch::new();
    interrupt::watch(&switch, context.talk)?;
    let run = Run {
        hosts,
        probe: &contact.hosts,
        act: &contact.hosts,
        secrets: &plan::Nothing,
        blobs: &plan::Nothing,
        switch: &switch,
        talk: context.talk,
        hold: args.hold.wanted(),
    };
    let make = |snapshot: &Snapshot| kubeon_plan::destroy(&intent, snapshot);
    let looked = run.look(&make).await?;
    let count = looked.plan().hosts.len();
    if !looked.plan().steps.is_empty() {
        state.status = Status::Destroying;
        let turn = run
            .act(looked, &make, |plan| {
                state.generation = state.generation.max(plan.generation);
                engine.store.save(&lock, &mut state).map_err(engine::stop)
            })
            .await?;
        contact.hosts.disconnect().await;
        if !turn.outcome.is_complete() {
            return Err(report::incomplete(&turn, switch.is_stopped(), "destroy"));
        }
    }
    forget(&engine, &lock, &state.name)?;
    for host in &intent.without {
        context.talk.warn(&format!("{host} was left out and keeps what it has of {}", state.name));
    }
    gone(context, args, &state.name, count, begin)
}

fn intent(spec: Valid<ClusterSpec>, state: &State, without: Vec<HostAddress>) -> Intent {
    engine::intent(spec, state, Artifacts::default(), without)
}

/// Asks, where nobody said `--yes`.
fn agreed(context: &Context<'_>, args: &DestroyArgs, state: &State) -> Result<(), Stop> {
    if args.yes {
        return Ok(());
    }
    let names: Vec<_> = members(&state.spec).into_iter().map(|member| member.name).collect();
    let question = format!("Destroy {} with everything in it on {}?", state.name, names.join(", "));
    if context.talk.confirm(&question)? {
        return Ok(());
    }
    let stop = Stop::refused(format!("{} was not destroyed: nobody agreed", state.name));
    Err(stop.row("agree", format!("kubeon destroy {} --yes", state.name)))
}

/// Forgets the cluster here, and the link of `use` where it points to it.
fn forget(engine: &Engine<'_>, lock: &kubeon_store::Lock, name: &ClusterName) -> Result<(), Stop> {
    if let Some(home) = &engine.context.environment.home {
        let link = home.join(".kube/config");
        if std::fs::read_link(&link)
            .is_ok_and(|target| target == Path::new(&engine.store.kubeconfig_path(name)))
        {
            std::fs::remove_file(&link)?;
        }
    }
    if let Err(error) = HostsFile::of_this_machine().forget(name.as_str()) {
        engine.context.talk.say(&format!("note: /etc/hosts still names {name}: {error}"));
    }
    engine.store.remove(lock, name).map_err(engine::stop)
}

fn gone(
    context: &Context<'_>,
    args: &DestroyArgs,
    name: &ClusterName,
    hosts: usize,
    begin: Instant,
) -> Result<(), Stop> {
    let took = words::time(begin.elapsed());
    match args.format.output {
        Format::Table | Format::Wide => {
            context.talk.result(&format!("{name} is gone: {} clean, {took}\n", words::count(hosts, "host")))
        }
        Format::Name => context.talk.result(&format!("{name}\n")),
        Format::Json | Format::Yaml => {
            let value = serde_json::json!({ "cluster": name, "destroyed": true, "hosts": hosts });
            let answer = crate::output::Answer::new(&value, crate::output::Table::new(&[]), Vec::new())?;
            context.talk.result(&answer.text(args.format.output)?)
        }
    }
}
