//! `kubeon ls`: asks the masters of every cluster, side by side, and never for long.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kubeon_api::{ClusterName, HostAddress};
use kubeon_link_host::SshHosts;
use kubeon_plan::{DesiredCluster, HostSpec};
use kubeon_ports::ProbeHost as _;
use kubeon_store::Status;
use kubeon_wire::{Category, ClusterFacts, EtcdFact, NodeFact};
use serde::Serialize;

use super::choose;
use crate::args::Format;
use crate::args::day::LsArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable, words};
use kubeon_engine::contact::ContactPurpose;
use kubeon_engine::endpoint;
use kubeon_engine::engine::{Engine, StoredCluster};
use kubeon_engine::login_merge::merge_remembered;
use kubeon_engine::login_request::LoginRequests;

/// How long a cluster may take to answer: to log in and look takes two seconds on a busy machine.
const GLANCE: Duration = Duration::from_secs(6);
/// How many clusters are asked at once.
const AT_ONCE: usize = 32;

/// A cluster in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    current: bool,
    version: String,
    masters: Count,
    workers: Count,
    state: &'static str,
    api: String,
    age_seconds: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    uid: String,
}

/// How many of how many are Ready; `None` when nobody could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Count {
    ready: Option<usize>,
    all: usize,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ready {
            Some(ready) => write!(f, "{ready}/{}", self.all),
            None => write!(f, "?/{}", self.all),
        }
    }
}

/// Why nothing is known of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Silence {
    why: String,
    /// Every master was tried, and nothing is there; else it may be well.
    dead: bool,
}

impl Silence {
    fn unknown(why: impl Into<String>) -> Self {
        Self { why: why.into(), dead: false }
    }
}

/// Lists clusters.
pub(super) async fn run(context: &Context<'_>, args: &LsArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    let names = engine.store.list()?;
    if args.format.output == Format::Name {
        // Nobody needs to be asked for a name.
        return context.output.result(&names.iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    let rows: Vec<Row> =
        futures::stream::iter(&names).map(|name| look(&engine, args, name)).buffered(AT_ONCE).collect().await;
    if rows.is_empty() {
        context.output.say("no cluster here; make one with: kubeon create NAME VERSION -m ADDRESS");
    }
    let mut table =
        TextTable::new(&["NAME", "VERSION", "MASTERS", "WORKERS", "STATE", "API", "AGE", ""]).wide(&["UID"]);
    for row in &rows {
        let note = if row.note.is_empty() { String::new() } else { format!("({})", row.note) };
        table.row([
            format!("{} {}", if row.current { "*" } else { " " }, row.name),
            row.version.clone(),
            row.masters.to_string(),
            row.workers.to_string(),
            row.state.to_owned(),
            row.api.clone(),
            words::age(row.age_seconds),
            note,
            row.uid.clone(),
        ]);
    }
    let names = rows.iter().map(|row| row.name.clone()).collect();
    context.output.result(&CommandResult::new(&rows, table, names)?.text(args.format.output)?)
}

async fn look(engine: &Engine<'_>, args: &LsArgs, name: &ClusterName) -> Row {
    let current = choose::current(engine).as_ref() == Some(name);
    let state = match engine.load(name) {
        Ok(state) => state,
        Err(stop) => return damaged(name, current, stop.title),
    };
    let seen = glance(engine, args, &state).await;
    row(&state, current, seen, jiff::Timestamp::now().as_second())
}

fn damaged(name: &ClusterName, current: bool, note: String) -> Row {
    let none = Count { ready: None, all: 0 };
    Row {
        name: name.to_string(),
        current,
        version: "?".to_owned(),
        masters: none,
        workers: none,
        state: "Damaged",
        api: String::new(),
        age_seconds: 0,
        note,
        uid: String::new(),
    }
}

/// What the first master that answers says of the cluster, or why none did.
async fn glance(engine: &Engine<'_>, args: &LsArgs, state: &StoredCluster) -> Result<ClusterFacts, Silence> {
    let masters: Vec<HostAddress> = state.spec.masters.iter().map(|host| host.address).collect();
    let asking = async {
        let flags = LoginRequests::from(&args.login);
        let said = merge_remembered(masters.iter().copied(), &state.spec.masters, &flags, &state.logins);
        let logins = engine.logins(&said).map_err(|stop| Silence::unknown(stop.title))?;
        let contact = engine
            .contact(&state.name, logins, &args.contact.options(), ContactPurpose::Glance(GLANCE))
            .await;
        let contact = contact.map_err(|stop| Silence::unknown(stop.title))?;
        first_answer(&contact.hosts, &masters).await
    };
    match tokio::time::timeout(GLANCE, asking).await {
        Ok(answer) => answer,
        Err(_) => Err(Silence::unknown(format!("no master answered in full within {} s", GLANCE.as_secs()))),
    }
}

/// Asks all masters at once; the first whose API server is ready and tells its nodes wins, then the first that
/// answered at all.
async fn first_answer(hosts: &SshHosts, masters: &[HostAddress]) -> Result<ClusterFacts, Silence> {
    let mut answers = futures::stream::iter(masters.iter().copied())
        .map(|master| async move { hosts.facts(master).await })
        .buffer_unordered(masters.len().max(1));
    let mut second = None;
    let mut silent = Silence { why: "no master answered".to_owned(), dead: true };
    let mut first_reason = true;
    while let Some(answer) = answers.next().await {
        let (why, dead) = match answer.map(|facts| facts.cluster) {
            Ok(Some(cluster)) if cluster.api_ready && cluster.nodes.is_some() => return Ok(cluster),
            // Where etcd answers, it is the API server alone that does not.
            Ok(Some(cluster)) if cluster.api_ready || matches!(cluster.etcd, EtcdFact::Members(_)) => {
                let ready = cluster.api_ready;
                second = second.filter(|before: &ClusterFacts| before.api_ready || !ready).or(Some(cluster));
                continue;
            }
            Ok(_) => ("the API server does not answer".to_owned(), true),
            Err(failure) => (failure.cause, failure.category == Category::Unreachable),
        };
        silent.dead &= dead;
        if std::mem::take(&mut first_reason) {
            silent.why = why;
        }
    }
    second.ok_or(silent)
}

fn row(state: &StoredCluster, current: bool, seen: Result<ClusterFacts, Silence>, now: i64) -> Row {
    let spec = &state.spec;
    let facts = seen.as_ref().ok();
    let count = |hosts: &[HostSpec]| Count {
        ready: facts
            .and_then(|facts| facts.nodes.as_ref())
            .map(|nodes| hosts.iter().filter(|host| node(nodes, host).is_some_and(|n| n.ready)).count()),
        all: hosts.len(),
    };
    let (masters, workers) = (count(&spec.masters), count(&spec.workers));
    let all_ready = masters.ready == Some(masters.all) && workers.ready == Some(workers.all);
    let verdict = match (state.status, &seen) {
        (Status::Destroying, _) => "Destroying",
        (Status::Creating, _) => "Creating",
        (Status::Upgrading, _) => "Upgrading",
        (Status::Running, Err(Silence { dead: true, .. })) => "Unreachable",
        (Status::Running, Err(_)) => "Unknown",
        (Status::Running, Ok(facts)) if all_ready && facts.api_ready => "Ready",
        (Status::Running, Ok(facts)) if facts.api_ready && facts.nodes.is_none() => "Unknown",
        (Status::Running, Ok(_)) => "Degraded",
    };
    let note = match &seen {
        Err(silence) => silence.why.clone(),
        Ok(ClusterFacts { nodes: Some(nodes), .. }) => trouble(spec, nodes),
        Ok(facts) if facts.api_ready => "the nodes were not told in time".to_owned(),
        Ok(_) => "the API server is not ready".to_owned(),
    };
    Row {
        name: state.name.to_string(),
        current,
        version: state.version.unwrap_or(spec.version).to_string(),
        masters,
        workers,
        state: verdict,
        api: endpoint::api(spec),
        age_seconds: now - state.created_at.as_second(),
        note: if state.status == Status::Creating {
            format!("continue with: kubeon create {}", state.name)
        } else {
            note
        },
        uid: state.uid.clone(),
    }
}

fn node<'a>(nodes: &'a BTreeMap<String, NodeFact>, host: &HostSpec) -> Option<&'a NodeFact> {
    let by_name = host.name.as_ref().and_then(|name| nodes.get(name.as_str()));
    by_name.or_else(|| nodes.values().find(|node| node.addresses.contains(&host.address.ip())))
}

/// The first host that is not well, and how many more there are.
fn trouble(spec: &DesiredCluster, nodes: &BTreeMap<String, NodeFact>) -> String {
    let masters = spec.masters.len();
    let sick: Vec<String> = spec
        .hosts()
        .enumerate()
        .filter_map(|(i, host)| {
            let role = if i < masters { "master" } else { "worker" };
            let name = host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string);
            match node(nodes, host) {
                Some(node) if node.ready => None,
                Some(node) if node.reason.is_empty() => Some(format!("{role} {name}: not ready")),
                Some(node) => Some(format!("{role} {name}: {}", node.reason)),
                None => Some(format!("{role} {name}: not in the cluster")),
            }
        })
        .collect();
    match sick.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first}; {} more", rest.len()),
    }
}

#[cfg(test)]
mod tests;
