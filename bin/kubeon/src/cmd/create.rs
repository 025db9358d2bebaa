//! `kubeon create`.

use std::time::{Duration, Instant};

use kubeon_api::{ClusterName, HostAddress};
use kubeon_bundle::Bundle;
use kubeon_pki::{Server, kubeconfig};
use kubeon_plan::{ClusterSpec, HostSpec, Intent, Plan};
use kubeon_ports::Secrets as _;
use kubeon_reconcile::Reconciled;
use kubeon_store::{Lock, Status};
use kubeon_wire::{Leaf, Op, SecretRef, Usage};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Context, plan};
use crate::args::Format;
use crate::args::cluster::CreateArgs;
use crate::cli_error::CliError;
use crate::interrupt;
use crate::output::{Answer, Table, words};
use crate::report;
use crate::target::{self, AskedBy};
use kubeon_engine::artifacts::{BundleBlobs, artifacts};
use kubeon_engine::bundles;
use kubeon_engine::checked::{Checked, PrecheckProbe};
use kubeon_engine::cluster_target::ClusterTarget;
use kubeon_engine::contact::{Contact, ContactPurpose};
use kubeon_engine::endpoint::{self, ApiEndpoint, ContextChoice, EndpointSearch};
use kubeon_engine::engine::{self, Engine, StoredCluster};
use kubeon_engine::error::note_text;
use kubeon_engine::host_keys::HostKeyOptions;
use kubeon_engine::kubeconfig::Kubeconfig;
use kubeon_engine::pre_apply_hook::PreApplyWait;
use kubeon_engine::run::{Run, told};

/// Life of the certificate in the admin's kubeconfig: a year, made anew by every `create` that has something to do, or
/// that finds it past two thirds of it.
const ADMIN_HOURS: u32 = 8766;

/// Makes a cluster, or continues making it.
pub async fn run(context: &Context<'_>, args: &CreateArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    if args.hold.wanted() == PreApplyWait::Line
        && args.cluster.file.as_ref().is_some_and(|file| file.as_os_str() == "-")
    {
        return Err(CliError::refused("--hold reads standard input, and so does -f -: name a file"));
    }
    let target = target::find(&engine, &args.cluster, AskedBy::Create)?;
    if args.dry_run {
        let command = plan::create_command(context, &target, &args.cluster, "create");
        return plan::create(
            context,
            &engine,
            target,
            &args.cluster.contact.options(),
            command,
            &args.format,
        )
        .await;
    }
    let as_asked = Change {
        command: "kubeon create",
        contact: &args.cluster.contact.options(),
        hold: args.hold.wanted(),
        yes: args.yes,
        format: args.format.output,
    };
    if args.only_create {
        return only_create(context, &engine, target, &as_asked);
    }
    change(context, &engine, target, &as_asked).await
}

/// How a change is made.
pub struct Change<'a> {
    /// The command, for the lock.
    pub command: &'static str,
    /// How hosts are recognized.
    pub contact: &'a HostKeyOptions,
    /// What is waited for before the first effect.
    pub hold: PreApplyWait,
    /// Whether workers may leave without a question.
    pub yes: bool,
    /// How the result is written.
    pub format: Format,
}

/// Makes a wish true.
///
/// # Errors
/// Why it could not be made true.
pub async fn change(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    how: &Change<'_>,
) -> Result<(), CliError> {
    let begin = Instant::now();
    // Nothing can be made true without them: told before a bundle is looked for and a host is asked.
    if target.state.may_be_on_hosts() {
        engine.keys(&target.state)?;
    }
    let bundle = bundles::find(&engine.environment, target.spec.version)?;
    target.notes.iter().for_each(|note| engine.output.warn(&note_text(note)));
    // Held before a person is asked: the answer is about what was read, and that must not change meanwhile.
    let lock = engine.lock(&target.state, target.known, how.command)?;
    agreed(engine, &target, how)?;
    let logins = engine.logins(&target.logins)?;
    let contact = engine.contact(&target.spec.name, logins, how.contact, ContactPurpose::Change).await?;
    let intent = target.intent(artifacts(&bundle));
    let hold = how.hold.clone();
    let mut making =
        Making { context, engine, bundle: &bundle, contact, lock, state: target.state, begin, hold };
    let turn = making.make(&intent, target.known).await?;
    making.finish(&intent, turn.as_ref(), how.format).await
}

/// Asks before workers leave that nobody agreed about yet.
fn agreed(engine: &Engine<'_>, target: &ClusterTarget, how: &Change<'_>) -> Result<(), CliError> {
    if how.yes || target.newly_leaving.is_empty() {
        return Ok(());
    }
    let (cluster, names) = (&target.spec.name, target.newly_leaving.join(", "));
    if engine.output.confirm(&format!("Take {names} out of {cluster}, and everything of it off?"))? {
        return Ok(());
    }
    let stop = CliError::refused(format!("{names} would leave {cluster}, and nobody agreed"));
    Err(stop.row("agree", format!("{} … --yes", how.command)))
}

/// Writes the wish down and touches no host.
fn only_create(
    context: &Context<'_>,
    engine: &Engine<'_>,
    target: ClusterTarget,
    how: &Change<'_>,
) -> Result<(), CliError> {
    let (name, output) = (target.spec.name.clone(), context.output);
    target.notes.iter().for_each(|note| output.warn(&note_text(note)));
    let lock = engine.lock(&target.state, target.known, how.command)?;
    agreed(engine, &target, how)?;
    let mut state = target.state;
    engine::set_spec(&mut state, (*target.spec).clone());
    state.logins = engine.logins(&target.logins)?.remembered;
    engine.store.save(&lock, &mut state)?;
    match how.format {
        Format::Table | Format::Wide => {
            output.result(&format!("{name} is written down; no host was touched\n"))?;
        }
        other => {
            let answer = Answer::new(&Written::of(&state), Table::new(&[]), vec![name.to_string()])?;
            output.result(&answer.text(other)?)?;
        }
    }
    output.say(&format!("next: kubeon plan {name} · kubeon create {name}"));
    Ok(())
}

/// A cluster in the making.
struct Making<'a> {
    context: &'a Context<'a>,
    engine: &'a Engine<'a>,
    bundle: &'a Bundle,
    contact: Contact,
    lock: Lock,
    state: StoredCluster,
    begin: Instant,
    hold: PreApplyWait,
}

impl Making<'_> {
    /// Looks, plans and applies; `None` when nothing was to do.
    async fn make(&mut self, intent: &Intent, known: bool) -> Result<Option<Reconciled>, CliError> {
        let output = self.context.output;
        let switch = CancellationToken::new();
        interrupt::watch(&switch, output)?;
        let name = &intent.spec.name;
        // Keys are made before the plan is applied and after nothing else can refuse, so a refused wish leaves none.
        let plan = |snapshot: &kubeon_plan::Snapshot| kubeon_plan::plan(intent, snapshot);
        let asking = PrecheckProbe::about(intent, &self.contact.hosts, &[]);
        let silent = Run {
            hosts: intent.hosts().collect(),
            probe: &asking,
            act: &self.contact.hosts,
            secrets: &plan::Nothing,
            blobs: &BundleBlobs(self.bundle),
            cancellation: &switch,
            output,
            hold: self.hold.clone(),
        };
        let looked = Checked::new(intent).look(&silent).await?;
        let settled = intent.leaving.is_empty() && intent.returning.is_empty();
        let same_wish = known && self.state.spec == *intent.spec && settled;
        if looked.plan().steps.is_empty() && same_wish && self.state.status == Status::Running {
            output.progress(&told(looked.plan()));
            if self.state.logins != self.contact.logins.remembered {
                self.state.logins = self.contact.logins.remembered.clone();
                self.engine.store.save(&self.lock, &mut self.state)?;
            }
            return Ok(None);
        }
        if same_wish && looked.plan().standing > 0 && !looked.plan().steps.is_empty() {
            let (standing, left) = (looked.plan().standing, looked.plan().steps.len());
            output.say(&format!(
                "{name}  continuing: {standing} of {} steps stand (checked on the hosts)",
                standing + left
            ));
        }
        self.check_parts(looked.plan())?;
        self.contact.pin(self.engine, &self.lock)?;
        engine::set_spec(&mut self.state, named(&intent.spec, looked.plan()));
        self.state.logins = self.contact.logins.remembered.clone();
        self.engine.store.save(&self.lock, &mut self.state)?;
        let keys = self.engine.keys(&self.state)?;
        let run = Run { secrets: &keys, ..silent };
        let (engine, lock, state) = (self.engine, &self.lock, &mut self.state);
        let mut before = |plan: &Plan| {
            state.generation = state.generation.max(plan.generation);
            Ok(engine.store.save(lock, state)?)
        };
        let mut turn = run.act(looked, &plan, &mut before).await?;
        if turn.outcome.is_complete() && !intent.returning.is_empty() {
            // A worker whose node was gone is bare now: what has it join again is a plan of its own.
            let looked = run.look(&plan).await?;
            if !looked.plan().steps.is_empty() {
                turn = run.go_on(looked, &plan, &mut before).await?;
            }
        }
        self.contact.hosts.disconnect().await;
        if !turn.outcome.is_complete() {
            let again = self.context.again("create", &intent.spec.name);
            return Err(report::incomplete(&turn, switch.is_cancelled(), &again));
        }
        Ok(Some(turn))
    }

    /// A flipped bit is found before the first host is written to.
    fn check_parts(&self, plan: &Plan) -> Result<(), CliError> {
        let digests = plan.steps.iter().filter_map(|step| match &step.op {
            Op::Part { digest, .. } => Some(digest.clone()),
            _ => None,
        });
        self.bundle.verify_parts(&digests.collect()).map_err(|error| CliError::refused(error.to_string()))
    }

    fn save(&mut self) -> Result<(), CliError> {
        Ok(self.engine.store.save(&self.lock, &mut self.state)?)
    }

    /// Writes the kubeconfig and the state, and says what can be done now.
    async fn finish(
        &mut self,
        intent: &Intent,
        turn: Option<&Reconciled>,
        format: Format,
    ) -> Result<(), CliError> {
        let output = self.context.output;
        let path = self.engine.store.kubeconfig_path(&intent.spec.name);
        let kept = std::fs::read_to_string(&path).ok();
        let text = match kept.filter(|kept| turn.is_none() && !is_due(kept, &intent.spec.name)) {
            Some(kept) => match endpoint::renewed(&kept, &self.state.spec, ContextChoice::Kept, output).await
            {
                Ok(text) => text,
                Err(stop) => {
                    output.warn(&format!("{}: it is written anew", stop.title));
                    Some(self.kubeconfig().await?)
                }
            },
            None => Some(self.kubeconfig().await?),
        };
        if let Some(text) = text {
            self.engine.store.save_kubeconfig(&self.lock, &text)?;
        }
        if turn.is_some() {
            self.left(intent);
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
        let shown = self.context.shorten(&path);
        match format {
            Format::Table | Format::Wide => output.result(&done.text(&shown, self.begin.elapsed())),
            other => {
                output.result(&Answer::new(&done, Table::new(&[]), vec![done.cluster.clone()])?.text(other)?)
            }
        }
    }

    /// Forgets those that left. One that is to stay and was left out this time is still to be given pods again.
    fn left(&mut self, intent: &Intent) {
        let left = |host: &HostAddress| intent.leaving.iter().any(|spec| spec.address == *host);
        self.state.logins.retain(|host, _| !left(host));
        self.state.leaving.retain(|host, _| intent.returns(*host) && intent.without.contains(host));
    }

    async fn kubeconfig(&self) -> Result<String, CliError> {
        let spec = &self.state.spec;
        let keys = self.engine.keys(&self.state)?;
        let failed = |error: kubeon_ports::SecretError| CliError::failed(error.to_string());
        let authority = SecretRef::CaCertificate { ca: "kubernetes".to_owned() };
        let authority = keys.resolve(&authority).map_err(failed)?;
        let seeking = EndpointSearch::about(spec, &authority, None);
        let entrance = endpoint::find(seeking, self.context.output).await;
        let client = Leaf {
            ca: "kubernetes".to_owned(),
            common_name: "kubernetes-admin".to_owned(),
            organizations: vec!["system:masters".to_owned()],
            dns_names: Vec::new(),
            addresses: Vec::new(),
            usage: Usage::Client,
            hours: ADMIN_HOURS,
        };
        let default = entrance.master.as_deref().unwrap_or(spec.name.as_str());
        kubeconfig(&keys, &spec.name, &servers(spec, &entrance), default, &client).map_err(failed)
    }
}

/// Whether the certificate in a kubeconfig is past two thirds of its life. A person's own way in is left as it is.
fn is_due(text: &str, cluster: &ClusterName) -> bool {
    let client = Kubeconfig::parse(text).ok().and_then(|config| config.client(&format!("{cluster}-admin")));
    client.is_some_and(|certificate| kubeon_pki::is_due(&certificate))
}

/// The cluster under its own name, then every master under its name.
fn servers(spec: &ClusterSpec, entrance: &ApiEndpoint) -> Vec<Server> {
    let server = |context: String, url: String| Server { context, url };
    let mut servers = vec![server(spec.name.to_string(), entrance.url.clone())];
    servers.extend(
        spec.masters
            .iter()
            .map(|host| server(endpoint::context(spec, host), format!("https://{}:6443", host.address))),
    );
    servers
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

/// A wish that was only written down, in the words of [`Done`].
#[derive(Serialize)]
struct Written {
    cluster: String,
    version: String,
    /// Never: no host was touched.
    changed: bool,
    of: usize,
    /// Workers that are to leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<String>,
}

impl Written {
    fn of(state: &StoredCluster) -> Self {
        // One that was taken back is in both until that is done.
        let leaving = state
            .leaving
            .iter()
            .filter(|(address, _)| !state.spec.workers.iter().any(|host| host.address == **address))
            .map(|(address, name)| name.as_ref().map_or_else(|| address.to_string(), ToString::to_string));
        Self {
            cluster: state.name.to_string(),
            version: state.spec.version.to_string(),
            changed: false,
            of: state.spec.hosts().count(),
            leaving: leaving.collect(),
        }
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
