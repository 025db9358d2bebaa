//! `kubeon create`.

use std::time::{Duration, Instant};

use kubeon_apply::Stop as Switch;
use kubeon_bundle::Bundle;
use kubeon_pki::{ClusterPki, Server, kubeconfig};
use kubeon_plan::{ClusterSpec, HostSpec, Intent, LoadBalancer, Plan};
use kubeon_reconcile::Turn;
use kubeon_store::{Lock, Status};
use kubeon_wire::{Leaf, Op, Usage};
use serde::Serialize;

use super::{Context, plan};
use crate::args::wish::CreateArgs;
use crate::args::{ContactFlags, Format};
use crate::engine::artifacts::{BundleBlobs, artifacts};
use crate::engine::checked::{Asking, Checked};
use crate::engine::contact::{Contact, Purpose};
use crate::engine::hold::Hold;
use crate::engine::hosts_file::HostsFile;
use crate::engine::run::{Run, told};
use crate::engine::{self, Engine, State, interrupt};
use crate::output::{Answer, Table, words};
use crate::report;
use crate::stop::{Stop, chain, note_text};
use crate::target::{Asks, Target};

/// Life of the certificate in the admin's kubeconfig: a year, made anew by every `create`.
const ADMIN_HOURS: u32 = 8766;

/// Makes a cluster, or continues making it.
pub async fn run(context: &Context<'_>, args: &CreateArgs) -> Result<(), Stop> {
    let engine = Engine::new(context)?;
    if args.hold.wanted() == Hold::Line && args.wish.file.as_ref().is_some_and(|file| file.as_os_str() == "-")
    {
        return Err(Stop::refused("--hold reads standard input, and so does -f -: name a file"));
    }
    let target = Target::find(&engine, &args.wish, Asks::Create)?;
    if args.dry_run {
        let command = plan::create_command(&target, &args.wish);
        return plan::create(&engine, target, &args.wish.contact, command, &args.format).await;
    }
    let as_asked = Change {
        command: "kubeon create",
        contact: &args.wish.contact,
        hold: args.hold.wanted(),
        yes: args.yes,
        format: args.format.output,
    };
    if args.only_create {
        agreed(&engine, &target, &as_asked)?;
        return only_create(&engine, target);
    }
    change(&engine, target, &as_asked).await
}

/// How a change is made.
pub struct Change<'a> {
    /// The command, for the lock.
    pub command: &'static str,
    /// How hosts are recognized.
    pub contact: &'a ContactFlags,
    /// What is waited for before the first effect.
    pub hold: Hold,
    /// Whether workers may leave without a question.
    pub yes: bool,
    /// How the result is written.
    pub format: Format,
}

/// Makes a wish true.
///
/// # Errors
/// Why it could not be made true.
pub async fn change(engine: &Engine<'_>, target: Target, how: &Change<'_>) -> Result<(), Stop> {
    let begin = Instant::now();
    let bundle = super::bundle::find(engine.context, target.spec.version)?;
    target.notes.iter().for_each(|note| engine.context.talk.warn(&note_text(note)));
    agreed(engine, &target, how)?;
    let logins = engine.logins(&target.logins)?;
    let lock = engine.store.lock(&target.spec.name, how.command).map_err(engine::stop)?;
    let contact = engine.contact(&target.spec.name, logins, how.contact, Purpose::Change).await?;
    let intent = target.intent(artifacts(&bundle));
    let hold = how.hold.clone();
    let mut making = Making { engine, bundle: &bundle, contact, lock, state: target.state, begin, hold };
    let turn = making.make(&intent, target.known).await?;
    making.finish(&intent, turn.as_ref(), how.format)
}

/// Asks before workers leave that nobody agreed about yet.
fn agreed(engine: &Engine<'_>, target: &Target, how: &Change<'_>) -> Result<(), Stop> {
    if how.yes || target.newly_leaving.is_empty() {
        return Ok(());
    }
    let (cluster, names) = (&target.spec.name, target.newly_leaving.join(", "));
    if engine.context.talk.confirm(&format!("Take {names} out of {cluster}, and everything of it off?"))? {
        return Ok(());
    }
    let stop = Stop::refused(format!("{names} would leave {cluster}, and nobody agreed"));
    Err(stop.row("agree", format!("{} … --yes", how.command)))
}

/// Writes the wish down and touches no host.
fn only_create(engine: &Engine<'_>, target: Target) -> Result<(), Stop> {
    let name = target.spec.name.clone();
    let lock = engine.store.lock(&name, "kubeon create").map_err(engine::stop)?;
    let mut state = target.state;
    state.spec = (*target.spec).clone();
    state.logins = engine.logins(&target.logins)?.remembered;
    engine.store.save(&lock, &mut state).map_err(engine::stop)?;
    engine.context.talk.result(&format!("{name} is written down; no host was touched\n"))?;
    engine.context.talk.say(&format!("next: kubeon plan {name} · kubeon create {name}"));
    Ok(())
}

/// A cluster in the making.
struct Making<'a> {
    engine: &'a Engine<'a>,
    bundle: &'a Bundle,
    contact: Contact,
    lock: Lock,
    state: State,
    begin: Instant,
    hold: Hold,
}

impl Making<'_> {
    /// Looks, plans and applies; `None` when nothing was to do.
    async fn make(&mut self, intent: &Intent, known: bool) -> Result<Option<Turn>, Stop> {
        let talk = self.engine.context.talk;
        let switch = Switch::new();
        interrupt::watch(&switch, talk)?;
        let name = &intent.spec.name;
        // Keys are made before the plan is applied and after nothing else can refuse, so a refused wish leaves none.
        let plan = |snapshot: &kubeon_plan::Snapshot| kubeon_plan::plan(intent, snapshot);
        let asking = Asking::about(intent, &self.contact.hosts, &[]);
        let silent = Run {
            hosts: intent.hosts().collect(),
            probe: &asking,
            act: &self.contact.hosts,
            secrets: &plan::Nothing,
            blobs: &BundleBlobs(self.bundle),
            switch: &switch,
            talk,
            hold: self.hold.clone(),
        };
        let looked = Checked::new(intent).look(&silent).await?;
        let same_wish = known && self.state.spec == *intent.spec && intent.leaving.is_empty();
        if looked.plan().steps.is_empty() && same_wish && self.state.status == Status::Running {
            talk.progress(&told(looked.plan()));
            return Ok(None);
        }
        if same_wish && looked.plan().standing > 0 && !looked.plan().steps.is_empty() {
            let (standing, left) = (looked.plan().standing, looked.plan().steps.len());
            talk.say(&format!(
                "{name}  continuing: {standing} of {} steps stand (checked on the hosts)",
                standing + left
            ));
        }
        self.check_parts(looked.plan())?;
        self.contact.pin(self.engine, &self.lock)?;
        self.state.spec = named(&intent.spec, looked.plan());
        self.state.logins = self.contact.logins.remembered.clone();
        self.engine.store.save(&self.lock, &mut self.state).map_err(engine::stop)?;
        let keys = self.keys(&intent.spec)?;
        let run = Run { secrets: &keys, ..silent };
        let (engine, lock, state) = (self.engine, &self.lock, &mut self.state);
        let turn = run
            .act(looked, &plan, |plan| {
                state.generation = state.generation.max(plan.generation);
                engine.store.save(lock, state).map_err(engine::stop)
            })
            .await?;
        self.contact.hosts.disconnect().await;
        if !turn.outcome.is_complete() {
            return Err(report::incomplete(&turn, switch.is_stopped(), "create"));
        }
        Ok(Some(turn))
    }

    /// A flipped bit is found before the first host is written to.
    fn check_parts(&self, plan: &Plan) -> Result<(), Stop> {
        let digests = plan.steps.iter().filter_map(|step| match &step.op {
            Op::Part { digest, .. } => Some(digest.clone()),
            _ => None,
        });
        self.bundle.verify_parts(&digests.collect()).map_err(|error| Stop::refused(error.to_string()))
    }

    fn save(&mut self) -> Result<(), Stop> {
        self.engine.store.save(&self.lock, &mut self.state).map_err(engine::stop)
    }

    fn keys(&self, spec: &ClusterSpec) -> Result<ClusterPki, Stop> {
        ClusterPki::load_or_create(&self.engine.store.secret_folder(&spec.name), spec.ca_years)
            .map_err(|error| Stop::failed(chain(&error)))
    }

    /// Writes the kubeconfig and the state, and says what can be done now.
    fn finish(&mut self, intent: &Intent, turn: Option<&Turn>, format: Format) -> Result<(), Stop> {
        let talk = self.engine.context.talk;
        let path = self.engine.store.kubeconfig_path(&intent.spec.name);
        if turn.is_some() || !path.exists() {
            let text = self.kubeconfig()?;
            self.engine.store.save_kubeconfig(&self.lock, &text).map_err(engine::stop)?;
            let gone = std::mem::take(&mut self.state.leaving);
            self.state.logins.retain(|host, _| !gone.contains_key(host));
            self.state.status = Status::Running;
            self.state.version = Some(intent.spec.version);
            self.save()?;
        }
        let total = intent.spec.hosts().count();
        let ready = intent.spec.hosts().filter(|host| !intent.without.contains(&host.address)).count();
        let left = intent
            .leaving
            .iter()
            .map(|host| host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string));
        let done = Done {
            cluster: intent.spec.name.to_string(),
            version: intent.spec.version.to_string(),
            changed: turn.is_some(),
            nodes: ready,
            of: total,
            left: left.collect(),
            kubeconfig: path.display().to_string(),
            seconds: self.begin.elapsed().as_secs_f64(),
        };
        let shown = self.engine.context.shorten(&path);
        match format {
            Format::Table | Format::Wide => talk.result(&done.text(&shown, self.begin.elapsed())),
            other => {
                talk.result(&Answer::new(&done, Table::new(&[]), vec![done.cluster.clone()])?.text(other)?)
            }
        }
    }

    /// Where kubectl goes by default: a name that all masters answer to, where this machine's hosts file
    /// may be written.
    fn entrance(&self, spec: &ClusterSpec) -> String {
        let masters: Vec<_> = spec.masters.iter().map(|host| host.address.ip()).collect();
        if masters.len() < 2 || spec.load_balancer != LoadBalancer::Haproxy {
            return api(spec);
        }
        let name = format!("{}.{}", spec.name, spec.api_domain);
        match HostsFile::of_this_machine().set(spec.name.as_str(), &name, &masters) {
            Ok(()) => format!("https://{name}:6443"),
            Err(error) => {
                self.engine.context.talk.say(&format!(
                    "note: /etc/hosts cannot be written ({error}): kubectl uses the first master; while it is dead, \
                     use the context of another: kubectl --context {}-NAME",
                    spec.name
                ));
                api(spec)
            }
        }
    }

    fn kubeconfig(&self) -> Result<String, Stop> {
        let spec = &self.state.spec;
        let client = Leaf {
            ca: "kubernetes".to_owned(),
            common_name: "kubernetes-admin".to_owned(),
            organizations: vec!["system:masters".to_owned()],
            dns_names: Vec::new(),
            addresses: Vec::new(),
            usage: Usage::Client,
            hours: ADMIN_HOURS,
        };
        let keys = self.keys(spec)?;
        kubeconfig(&keys, &spec.name, &servers(spec, &self.entrance(spec)), spec.name.as_str(), &client)
            .map_err(|error| Stop::failed(error.to_string()))
    }
}

/// The cluster under its own name, then every master under its name.
fn servers(spec: &ClusterSpec, entrance: &str) -> Vec<Server> {
    let server = |context: String, url: String| Server { context, url };
    let mut servers = vec![server(spec.name.to_string(), entrance.to_owned())];
    servers.extend(spec.masters.iter().map(|host| {
        let name = host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string);
        server(format!("{}-{name}", spec.name), format!("https://{}:6443", host.address))
    }));
    servers
}

/// Where the API answers: the load balancer, or the first master.
pub fn api(spec: &ClusterSpec) -> String {
    match (&spec.load_balancer, spec.masters.first()) {
        (LoadBalancer::External { address, port }, _) => format!("https://{address}:{port}"),
        (LoadBalancer::Haproxy, Some(master)) => format!("https://{}:6443", master.address),
        (LoadBalancer::Haproxy, None) => String::new(),
    }
}

/// The wish with the names that hosts have as nodes: they stay, whatever the host is called later.
fn named(spec: &ClusterSpec, plan: &Plan) -> ClusterSpec {
    let name = |mut host: HostSpec| {
        host.name = host.name.or_else(|| plan.hosts.get(&host.address).map(|planned| planned.name.clone()));
        host
    };
    ClusterSpec {
        masters: spec.masters.iter().cloned().map(name).collect(),
        workers: spec.workers.iter().cloned().map(name).collect(),
        ..spec.clone()
    }
}

#[derive(Serialize)]
struct Done {
    cluster: String,
    version: String,
    changed: bool,
    nodes: usize,
    of: usize,
    /// Workers that left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<String>,
    kubeconfig: String,
    seconds: f64,
}

impl Done {
    fn text(&self, kubeconfig: &str, took: Duration) -> String {
        let name = &self.cluster;
        let took = words::time(took);
        if !self.changed {
            return format!(
                "{name}: nothing to do ({}, checked in {took})\n",
                words::count(self.nodes, "host")
            );
        }
        let left =
            if self.left.is_empty() { String::new() } else { format!("{} left, ", self.left.join(", ")) };
        format!(
            "{name} is ready: {} of {} nodes, {left}{took}\n\
             \x20 kubectl:  export KUBECONFIG={kubeconfig}   (or: kubeon use {name})\n\
             \x20 next:     kubeon display {name} · kubeon plan {name} · kubectl get nodes\n",
            self.nodes, self.of
        )
    }
}
