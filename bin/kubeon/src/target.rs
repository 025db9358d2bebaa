//! Which cluster `create` and `plan` mean: a new wish, or one that is known.

use std::collections::BTreeMap;
use std::io::Read as _;

use kubeon_api::{HostAddress, KubernetesCluster, ReadError, read_yaml};
use kubeon_plan::{ClusterSpec, HostSpec, Note, Valid};
use kubeon_store::Status;

use crate::args::node::LoginWish;
use crate::args::settings::SettingFlags;
use crate::args::wish::WishArgs;
use crate::engine::{self, Engine, State, login};
use crate::stop::Stop;
use crate::wish::{self, SaidLogin, Wish};

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
}

/// Which command asks: `create` makes new clusters only when it is told how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// `kubeon create`.
    Create,
    /// `kubeon plan`.
    Plan,
}

impl Target {
    /// From flags, a file, or the state.
    ///
    /// # Errors
    /// Refuses, with every reason at once, what cannot be planned whatever the hosts say.
    pub fn find(engine: &Engine<'_>, args: &WishArgs, asks: Asks) -> Result<Self, Stop> {
        let supported = engine.supported()?;
        let wish = match (&args.file, &args.name, &args.version) {
            (Some(_), ..) => {
                only_the_file(args)?;
                wish::from_file(&read(args)?, &args.nodes, &supported)?
            }
            (None, Some(name), Some(version)) => wish::from_flags(args, name, version, &supported)?,
            (None, name, _) => return Self::known(engine, args, name.as_deref(), asks),
        };
        Self::wished(engine, wish, args)
    }

    fn wished(engine: &Engine<'_>, wish: Wish, args: &WishArgs) -> Result<Self, Stop> {
        let Wish { spec, notes, logins } = wish;
        let without = engine::without(&args.without, &spec)?;
        if !engine.store.exists(&spec.name) {
            let state = State::new(spec.name.clone(), (*spec).clone());
            return Ok(Self { spec, notes, logins, state, known: false, without });
        }
        let state = engine.load(&spec.name)?;
        let named = with_names(&spec, &state.spec);
        if named != state.spec {
            // Nothing was ever written to a host under generation 0: the wish may still change.
            if state.generation > 0 || state.status != Status::Creating {
                return Err(exists(&state, &named));
            }
        }
        let (spec, _) = wish::stored(named, &engine.supported()?)?;
        Ok(Self { spec, notes, logins, state, known: true, without })
    }

    fn known(engine: &Engine<'_>, args: &WishArgs, name: Option<&str>, asks: Asks) -> Result<Self, Stop> {
        let has_flags = args.nodes.names_hosts()
            || args.settings != SettingFlags::default()
            || !args.missing.refusals.is_empty();
        let given = usize::from(name.is_some());
        let known = match name {
            Some(text) => text.parse().is_ok_and(|name| engine.store.exists(&name)),
            None => asks == Asks::Plan,
        };
        if has_flags || (asks == Asks::Create && !known) {
            let mut stop = Stop::refused(format!("accepts 2 arg(s), received {given}"));
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
        let (spec, notes) = wish::stored(state.spec.clone(), &engine.supported()?)?;
        let hosts = spec.hosts().map(|host| host.address);
        let logins = login::with_remembered(hosts, &LoginWish::from(&args.nodes.all), &state.logins);
        let without = engine::without(&args.without, &spec)?;
        Ok(Self { spec, notes, logins, state, known: true, without })
    }
}

fn only_the_file(args: &WishArgs) -> Result<(), Stop> {
    let settings = args.settings != SettingFlags::default() || !args.missing.refusals.is_empty();
    if args.name.is_none() && !args.nodes.names_hosts() && !settings {
        return Ok(());
    }
    let stop =
        Stop::refused("-f says everything about the cluster: leave out its name, its hosts and its settings");
    Err(stop.row("allowed", "--default-*, --accept-new, --known-hosts, --without"))
}

fn read(args: &WishArgs) -> Result<KubernetesCluster, Stop> {
    let path = args.file.clone().unwrap_or_default();
    let shown = path.display().to_string();
    let text = if shown == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(&path)
    };
    let text = text.map_err(|error| Stop::refused(format!("cannot read {shown}: {error}")))?;
    read_yaml(&text).map_err(|error| match error {
        ReadError::Mistakes(mistakes) => {
            let plural = if mistakes.len() == 1 { "" } else { "s" };
            let mut stop = Stop::refused(format!("{shown} has {} mistake{plural}", mistakes.len()));
            stop.rows = mistakes
                .into_iter()
                .map(|mistake| (format!("line {}: {}", mistake.line, mistake.field), mistake.reason))
                .collect();
            stop
        }
        other => Stop::refused(format!("{shown}: {other}")),
    })
}

/// The wish with the names that hosts have as nodes already: a node keeps its name.
fn with_names(spec: &ClusterSpec, stored: &ClusterSpec) -> ClusterSpec {
    let names: BTreeMap<_, _> = stored.hosts().map(|host| (host.address, host.name.clone())).collect();
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

/// Refuses to make another cluster of the same name, and says what differs.
fn exists(state: &State, wished: &ClusterSpec) -> Stop {
    let mut stop = Stop::refused(format!("Input cluster[{}] exist and is not what is asked for", state.name));
    for (field, has, wants) in differences(&state.spec, wished) {
        stop = stop.row(field, format!("is {has}, asked for {wants}"));
    }
    stop.row("way out", format!("kubeon create {0} (as it is), or kubeon destroy {0} first", state.name))
}

fn differences(has: &ClusterSpec, wants: &ClusterSpec) -> Vec<(String, String, String)> {
    let (Ok(serde_json::Value::Object(has)), Ok(serde_json::Value::Object(wants))) =
        (serde_json::to_value(has), serde_json::to_value(wants))
    else {
        return Vec::new();
    };
    let text = |value: Option<&serde_json::Value>| value.map_or_else(String::new, short);
    let differing = has.iter().filter(|(field, value)| wants.get(*field) != Some(*value));
    differing.map(|(field, value)| (field.clone(), short(value), text(wants.get(field)))).collect()
}

/// A value in few words: hosts by address.
fn short(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) if items.is_empty() => "none".to_owned(),
        serde_json::Value::Array(items) => items
            .iter()
            .map(|item| item.get("address").map_or_else(|| short(item), short))
            .collect::<Vec<_>>()
            .join(" "),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
