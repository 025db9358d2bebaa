//! Which cluster `create` and `plan` mean: a new wish, or one that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use kubeon_api::{HostAddress, KubernetesCluster, ReadError, Version, read_yaml};
use kubeon_plan::{Artifacts, ClusterSpec, HostSpec, Intent, Note, Valid};

pub mod scaling;

use crate::args::login::LoginWishes;
use crate::args::node::NodeFlags;
use crate::args::settings::SettingFlags;
use crate::args::wish::WishArgs;
use crate::cli_error::CliError;
use crate::engine::said::{keep_others, refuse_idle, with_remembered};
use crate::engine::{self, Engine, State};
use crate::wish::{self, SaidLogin, Wish};

/// What hosts are checked for that are to be no cluster yet.
const NAMELESS: &str = "precheck";

/// A cluster that is meant.
pub struct Target {
    /// What it should be.
    pub spec: Valid<ClusterSpec>,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// How to log in.
    pub logins: BTreeMap<HostAddress, SaidLogin>,
    /// What is known of it; a new identity when nothing is.
    pub state: State,
    /// Whether it is known.
    pub known: bool,
    /// Hosts to leave out.
    pub without: Vec<HostAddress>,
    /// Workers that nobody asked to leave before, by name.
    pub newly_leaving: Vec<String>,
    /// How long their pods may take to go elsewhere.
    pub drain_seconds: u32,
    /// Checks that may fail.
    pub ignore: BTreeSet<String>,
}

/// Which command asks: `create` makes new clusters only when it is told how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// `kubeon create`.
    Create,
    /// `kubeon plan`.
    Plan,
    /// `kubeon precheck`, which needs no more than hosts.
    Precheck,
}

impl Target {
    /// From flags, a file, or the state.
    ///
    /// # Errors
    /// Refuses, with every reason at once, what cannot be planned whatever the hosts say.
    pub fn find(engine: &Engine<'_>, args: &WishArgs, asks: Asks) -> Result<Self, CliError> {
        let supported = engine.supported()?;
        let ignore = engine::ignored(&args.ignore.ignore)?;
        let mut target = Self::meant(engine, args, asks, &supported)?;
        refuse_idle(&LoginWishes::from(&args.nodes), &target.spec.masters, &target.logins)?;
        target.ignore = ignore;
        target.drain_seconds = args.leave.drain_timeout;
        Ok(target)
    }

    fn meant(
        engine: &Engine<'_>,
        args: &WishArgs,
        asks: Asks,
        supported: &[Version],
    ) -> Result<Self, CliError> {
        let newest = supported.iter().max().map(ToString::to_string).unwrap_or_default();
        let wish = match (&args.file, &args.name, &args.version) {
            (None, name, None) if asks == Asks::Precheck && args.nodes.names_hosts() => {
                wish::from_flags(args, name.as_deref().unwrap_or(NAMELESS), &newest, supported)?
            }
            _ if args.inventory.inventory.is_some() => crate::inventory::wished(engine, args, supported)?,
            (Some(_), ..) => {
                only_the_file(args)?;
                wish::from_file(&read(args)?, &args.nodes, supported)?
            }
            (None, Some(name), Some(version)) => wish::from_flags(args, name, version, supported)?,
            (None, name, _) => return Self::known(engine, args, name.as_deref(), asks),
        };
        Self::wished(engine, wish, args)
    }

    fn wished(engine: &Engine<'_>, wish: Wish, args: &WishArgs) -> Result<Self, CliError> {
        let Wish { spec, notes, logins } = wish;
        if !engine.store.exists(&spec.name) {
            let state = State::new(spec.name.clone(), (*spec).clone());
            let without = engine::without(&args.without, &spec, &state)?;
            return Ok(Self {
                spec,
                notes,
                logins,
                state,
                known: false,
                without,
                newly_leaving: Vec::new(),
                drain_seconds: Intent::DRAIN_SECONDS,
                ignore: BTreeSet::new(),
            });
        }
        let state = engine.load(&spec.name)?;
        let named = with_names(&spec, &state);
        let flags = LoginWishes::from(&args.nodes);
        let back = scaling::Back::of(args.take_back);
        let mut target = Self::changed(engine, state, named, &flags, &args.without, back)?;
        keep_others(&mut target.logins, |host| logins.contains_key(host), &target.state.logins);
        target.logins.extend(logins);
        target.notes = notes;
        Ok(target)
    }

    /// A cluster that is known and is to be another one. Logins are the remembered ones.
    ///
    /// # Errors
    /// Refuses a change of anything but the workers once hosts were written to, and what cannot be planned.
    pub fn changed(
        engine: &Engine<'_>,
        mut state: State,
        spec: ClusterSpec,
        flags: &LoginWishes,
        without: &[String],
        back: scaling::Back,
    ) -> Result<Self, CliError> {
        let mut newly_leaving = Vec::new();
        // Before anything is written to a host the wish may still change.
        if spec != state.spec && state.may_be_on_hosts() {
            newly_leaving = scaling::settle(&mut state, &spec, back)?;
        }
        let (spec, notes) = wish::stored(spec, &engine.supported()?)?;
        let without = engine::without(without, &spec, &state)?;
        let hosts = spec.hosts().map(|host| host.address).chain(state.leaving.keys().copied());
        let logins = with_remembered(hosts, &spec.masters, flags, &state.logins);
        let (drain_seconds, ignore) = (Intent::DRAIN_SECONDS, BTreeSet::new());
        Ok(Self { spec, notes, logins, state, known: true, without, newly_leaving, drain_seconds, ignore })
    }

    fn known(engine: &Engine<'_>, args: &WishArgs, name: Option<&str>, asks: Asks) -> Result<Self, CliError> {
        let has_flags = args.nodes.names_hosts()
            || args.settings != SettingFlags::default()
            || !args.missing.refusals.is_empty();
        let given = usize::from(name.is_some());
        let known = match name {
            Some(text) => text.parse().is_ok_and(|name| engine.store.exists(&name)),
            None => asks != Asks::Create,
        };
        if has_flags || (asks == Asks::Create && !known) {
            let mut stop = CliError::refused(format!("accepts 2 arg(s), received {given}"));
            if let Some(name) = name {
                stop = stop.row("missing", format!("the version: kubeon create {name} VERSION -m ADDRESS"));
                if !known {
                    stop = stop
                        .row("state", format!("Cluster[{name}] not exist, so there is nothing to continue"));
                }
            } else {
                stop = stop
                    .row("missing", "name and version: kubeon create NAME VERSION -m ADDRESS, or -f FILE");
            }
            return Err(stop.hint("see: kubeon create --help"));
        }
        let state = engine.find(name)?;
        no_lists(state.name.as_str(), &args.nodes)?;
        let (spec, flags) = (state.spec.clone(), LoginWishes::from(&args.nodes));
        Self::changed(engine, state, spec, &flags, &args.without, scaling::Back::of(args.take_back))
    }
}

impl Target {
    /// What plans are made from.
    pub fn intent(&self, artifacts: Artifacts) -> Intent {
        let intent = engine::intent(self.spec.clone(), &self.state, artifacts, self.without.clone());
        Intent { drain_seconds: self.drain_seconds, ignore: self.ignore.clone(), ..intent }
    }
}

fn only_the_file(args: &WishArgs) -> Result<(), CliError> {
    let settings = args.settings != SettingFlags::default() || !args.missing.refusals.is_empty();
    if args.name.is_none() && !args.nodes.names_hosts() && !settings {
        let file = args.file.as_deref().unwrap_or(Path::new("-"));
        return no_lists(&file.display().to_string(), &args.nodes);
    }
    let stop = CliError::refused(
        "-f says everything about the cluster: leave out its name, its hosts and its settings",
    );
    Err(stop.row("allowed", "--default-*, --accept-new, --known-hosts, --without"))
}

/// Lists say of each host that -m and -w name something of its own: where neither names any, they are refused.
///
/// # Errors
/// Names every such list, and the flag that says the same of all.
pub fn no_lists(cluster: &str, nodes: &NodeFlags) -> Result<(), CliError> {
    let mut refusals = Vec::new();
    nodes.hosts(&mut refusals);
    if refusals.is_empty() { Ok(()) } else { Err(CliError::refusals(cluster, refusals, &[])) }
}

fn read(args: &WishArgs) -> Result<KubernetesCluster, CliError> {
    let path = args.file.clone().unwrap_or_default();
    let shown = path.display().to_string();
    let text = if shown == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(&path)
    };
    let text = text.map_err(|error| CliError::refused(format!("cannot read {shown}: {error}")))?;
    read_yaml(&text).map_err(|error| match error {
        ReadError::Mistakes(mistakes) => {
            let plural = if mistakes.len() == 1 { "" } else { "s" };
            let mut stop = CliError::refused(format!("{shown} has {} mistake{plural}", mistakes.len()));
            stop.rows = mistakes
                .into_iter()
                .map(|mistake| (format!("line {}: {}", mistake.line, mistake.field), mistake.reason))
                .collect();
            stop
        }
        other => CliError::refused(format!("{shown}: {other}")),
    })
}

/// The wish with the names that hosts have as nodes already: a node keeps its name.
fn with_names(spec: &ClusterSpec, state: &State) -> ClusterSpec {
    let standing = state.spec.hosts().map(|host| (host.address, host.name.clone()));
    let leaving = state.leaving.iter().map(|(address, name)| (*address, name.clone()));
    let names: BTreeMap<_, _> = leaving.chain(standing).collect();
    let named = |hosts: &[HostSpec]| {
        hosts
            .iter()
            .cloned()
            .map(|mut host| {
                host.name = host.name.or_else(|| names.get(&host.address).cloned().flatten());
                host
            })
            .collect()
    };
    ClusterSpec { masters: named(&spec.masters), workers: named(&spec.workers), ..spec.clone() }
}
