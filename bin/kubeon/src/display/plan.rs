//! A plan as text: action, hosts and reason of each stage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use console::truncate_str;
use kubeon_api::HostAddress;
use kubeon_plan::stages::STAGES;
use kubeon_plan::{Plan, StageName, Step};
use kubeon_wire::Op;

use crate::output::{TextTable, words};

/// The summary of a stage.
struct Row {
    stage: StageName,
    hosts: String,
    what: String,
    why: String,
}

/// `demo  v1.36.3  1 master, 2 workers, nothing installed yet`, for a declaration with so many masters and workers; while
/// masters do not answer `demo  v1.36.3  2 of 3 masters answer, etcd has quorum (2 of 3), 90 steps are up to date`.
pub(crate) fn head(plan: &Plan, masters: usize, workers: usize) -> String {
    let up_to_date = match plan.up_to_date {
        0 => "nothing installed yet".to_owned(),
        1 => "1 step is up to date".to_owned(),
        n => format!("{n} steps are up to date"),
    };
    let silent = plan.unreachable.iter().filter(|host| host.role.is_master()).count();
    let hosts = if silent > 0 {
        let quorum = plan.quorum.as_ref();
        let quorum = quorum.map(|etcd| format!(", etcd has quorum ({} of {})", etcd.serving, etcd.total));
        let answer = masters.saturating_sub(silent);
        format!("{answer} of {masters} masters answer{}", quorum.unwrap_or_default())
    } else if workers == 0 {
        words::count(masters, "master")
    } else {
        format!("{}, {}", words::count(masters, "master"), words::count(workers, "worker"))
    };
    format!("{}  {}  {hosts}, {up_to_date}\n", plan.cluster, versions(plan))
}

/// `v1.37.2`, or `v1.37.2, nodes v1.36.3` if the nodes have an older version than the control plane.
pub(crate) fn versions(plan: &Plan) -> String {
    let nodes = plan.nodes_at.map(|version| format!(", nodes {version}")).unwrap_or_default();
    format!("{}{nodes}", plan.version)
}

/// The table of a plan: one line per stage, or per step if `wide`.
pub(crate) fn table(plan: &Plan, wide: bool) -> TextTable {
    let mut table = TextTable::new(&["", "", "", ""]).indent(2);
    if wide {
        for step in &plan.steps {
            let why = format!("because {}", step.why);
            table.row([step.stage.to_string(), name(plan, step.host), step.title.clone(), why]);
        }
        return table;
    }
    for row in rows(plan) {
        let why = if row.why.is_empty() { String::new() } else { format!("because {}", row.why) };
        table.row([row.stage.to_string(), row.hosts, row.what, why]);
    }
    table
}

/// The number of waiting steps that are named.
const MAX_WAITING: usize = 20;

/// What waits for which unreachable host, one line each; empty if every host answered.
pub(crate) fn waits(plan: &Plan) -> String {
    let mut text = String::new();
    for host in &plan.unreachable {
        let what = format!("everything on it, because it does not answer ({})", host.why);
        let _ = writeln!(text, "waits for {}: {what}; not needed for this change", host.name);
    }
    let unreachable = |address: HostAddress| plan.unreachable.iter().find(|host| host.address == address);
    for step in plan.waiting.iter().take(MAX_WAITING) {
        let hosts = step.hosts.iter().map(|address| {
            unreachable(*address).map_or_else(|| address.to_string(), |host| host.name.to_string())
        });
        let hosts = hosts.collect::<Vec<_>>().join(" ");
        let (title, on, why, risk) = (&step.title, name(plan, step.host), &step.why, &step.risk);
        let _ = writeln!(text, "waits for {hosts}: {title} on {on}, because {why} ({risk})");
    }
    let more = plan.waiting.len().saturating_sub(MAX_WAITING);
    if more > 0 {
        let _ = writeln!(text, "… and {} more", words::count(more, "step"));
    }
    text
}

/// `27 steps on 3 hosts, no step destroys anything.`
pub(crate) fn summary(plan: &Plan) -> String {
    let hosts: BTreeSet<_> = plan.steps.iter().map(|step| step.host).collect();
    let destroying = plan.steps.iter().filter(|step| step.destructive).count();
    let destroys = match destroying {
        0 => "no step destroys anything".to_owned(),
        n if n == plan.steps.len() => "every step destroys".to_owned(),
        n => format!("{} destroy", words::count(n, "step")),
    };
    format!(
        "{} on {}, {destroys}.",
        words::count(plan.steps.len(), "step"),
        words::count(hosts.len(), "host")
    )
}

fn rows(plan: &Plan) -> Vec<Row> {
    let mut stages: Vec<(StageName, Vec<&Step>)> = Vec::new();
    for step in &plan.steps {
        match stages.iter_mut().find(|(stage, _)| *stage == step.stage) {
            Some((_, steps)) => steps.push(step),
            None => stages.push((step.stage, vec![step])),
        }
    }
    stages
        .into_iter()
        .map(|(stage, steps)| Row {
            stage,
            hosts: hosts(plan, stage, &steps),
            what: what(stage, &steps),
            why: why(&steps),
        })
        .collect()
}

fn name(plan: &Plan, host: HostAddress) -> String {
    plan.hosts.get(&host).map_or_else(|| host.to_string(), |host| host.name.to_string())
}

/// The names of up to two hosts, else the number of hosts.
fn hosts(plan: &Plan, stage: StageName, steps: &[&Step]) -> String {
    if stage == StageName::new("verify") {
        return "cluster".to_owned();
    }
    let mut hosts: Vec<HostAddress> = Vec::new();
    for step in steps {
        if !hosts.contains(&step.host) {
            hosts.push(step.host);
        }
    }
    if hosts.len() <= 2 {
        hosts.iter().map(|&host| name(plan, host)).collect::<Vec<_>>().join(" ")
    } else {
        words::count(hosts.len(), "host")
    }
}

/// Maximum number of step titles per stage. If there are more, the title of the stage is shown.
const MAX_TITLES: usize = 2;
/// Maximum width of the action of a stage.
const WHAT_WIDTH: usize = 72;

/// The action of a stage: parts with number and size, and the distinct titles of other steps.
fn what(stage: StageName, steps: &[&Step]) -> String {
    let mut parts = BTreeMap::new();
    let mut titles: Vec<String> = Vec::new();
    for step in steps {
        if let Op::Part { digest, size, .. } = &step.op {
            parts.insert(digest.clone(), *size);
        } else if !titles.contains(&step.title) {
            titles.push(step.title.clone());
        }
    }
    let mut text = Vec::new();
    if !parts.is_empty() {
        let size: u64 = parts.values().sum();
        text.push(format!("put {} ({}) where missing", words::count(parts.len(), "part"), words::size(size)));
    }
    text.extend(summarize(stage, titles));
    truncate_str(&text.join(", "), WHAT_WIDTH, "…").into_owned()
}

fn summarize(stage: StageName, titles: Vec<String>) -> Vec<String> {
    if titles.len() <= MAX_TITLES {
        return titles;
    }
    match STAGES.iter().find(|known| known.name == stage) {
        Some(known) => vec![known.title.to_owned()],
        None => vec![titles[0].clone(), format!("and {} more", titles.len() - 1)],
    }
}

/// The most frequent reason of a stage.
fn why(steps: &[&Step]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for step in steps {
        match counts.iter_mut().find(|(why, _)| *why == step.why) {
            Some((_, count)) => *count += 1,
            None => counts.push((&step.why, 1)),
        }
    }
    // The first of equally frequent reasons makes the text deterministic.
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    counts.iter().find(|(_, count)| *count == most).map(|(why, _)| (*why).to_owned()).unwrap_or_default()
}
