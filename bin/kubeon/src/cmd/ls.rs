//! `kubeon ls`: lists the clusters of this machine with their health.

use kubeon_engine::cluster_health::{ClusterHealth, ClusterSummary, NodeCount, stored_clusters};
use serde::Serialize;

use crate::args::Format;
use crate::args::day::LsArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::expiry::ExpiryView;
use crate::output::{CommandResult, TextTable, words};

/// A cluster in the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    current: bool,
    version: String,
    /// The version of the nodes, if it is older than that of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_version: Option<String>,
    masters: Count,
    workers: Count,
    state: &'static str,
    /// The certificate that ends first; `None` if no master reported one.
    certificates: Option<ExpiryView>,
    api: String,
    age_seconds: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    uid: String,
}

/// The number of ready nodes and of all nodes. `ready` is `None` if no master answered.
#[derive(Debug, Serialize)]
struct Count {
    ready: Option<usize>,
    all: usize,
}

impl From<NodeCount> for Count {
    fn from(NodeCount { ready, all }: NodeCount) -> Self {
        Self { ready, all }
    }
}

/// Lists clusters.
pub(super) async fn run(context: &Context<'_>, args: &LsArgs) -> Result<(), CliError> {
    let engine = context.engine()?;
    if args.format.output == Format::Name {
        // Names need no probe.
        let names = engine.stored_names()?;
        return context.output.result(&names.iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    let clusters = stored_clusters(&engine, &args.login.access(&args.contact)).await?;
    if clusters.is_empty() {
        context.output.info("no cluster is stored; create one with: kubeon create NAME VERSION -m ADDRESS");
    }
    let mut table =
        TextTable::new(&["NAME", "VERSION", "MASTERS", "WORKERS", "STATE", "CERTIFICATES", "API", "AGE", ""])
            .wide(&["UID"]);
    clusters.iter().for_each(|cluster| table.row(columns(cluster)));
    let names = clusters.iter().map(|cluster| cluster.name.to_string()).collect();
    let rows: Vec<Row> = clusters.into_iter().map(row).collect();
    context.output.result(&CommandResult::new(&rows, table, names)?.text(args.format.output)?)
}

fn columns(cluster: &ClusterSummary) -> [String; 10] {
    let note = note(cluster);
    [
        format!("{} {}", if cluster.current { "*" } else { " " }, cluster.name),
        versions(cluster),
        cluster.masters.to_string(),
        cluster.workers.to_string(),
        state(cluster.health).to_owned(),
        expiry(cluster).map_or_else(|| "?".to_owned(), |expiry| expiry.text().to_owned()),
        cluster.api.clone(),
        words::age(cluster.age_seconds),
        if note.is_empty() { note } else { format!("({note})") },
        cluster.uid.clone(),
    ]
}

fn row(cluster: ClusterSummary) -> Row {
    Row {
        version: version(&cluster),
        node_version: cluster.nodes_at.map(|version| version.to_string()),
        note: note(&cluster),
        name: cluster.name.to_string(),
        current: cluster.current,
        masters: cluster.masters.into(),
        workers: cluster.workers.into(),
        state: state(cluster.health),
        certificates: expiry(&cluster),
        api: cluster.api,
        age_seconds: cluster.age_seconds,
        uid: cluster.uid,
    }
}

fn expiry(cluster: &ClusterSummary) -> Option<ExpiryView> {
    cluster.certificates.as_ref().map(|times| ExpiryView::new(&times.earliest, times.now))
}

fn version(cluster: &ClusterSummary) -> String {
    cluster.version.map_or_else(|| "?".to_owned(), |version| version.to_string())
}

/// The version, and that of the nodes if it is older.
fn versions(cluster: &ClusterSummary) -> String {
    let version = version(cluster);
    match cluster.nodes_at {
        Some(nodes) => format!("{version}, nodes {nodes}"),
        None => version,
    }
}

fn state(health: ClusterHealth) -> &'static str {
    match health {
        ClusterHealth::Damaged => "Damaged",
        ClusterHealth::Destroying => "Destroying",
        ClusterHealth::Creating => "Creating",
        ClusterHealth::Upgrading => "Upgrading",
        ClusterHealth::Unreachable => "Unreachable",
        ClusterHealth::Unknown => "Unknown",
        ClusterHealth::Ready => "Ready",
        ClusterHealth::Degraded => "Degraded",
    }
}

/// The next command of an incomplete creation, else the reason why the cluster is not ready.
fn note(cluster: &ClusterSummary) -> String {
    match cluster.health {
        ClusterHealth::Creating => format!("continue with: kubeon create {}", cluster.name),
        _ => cluster.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_cluster_names_the_next_command() {
        let none = NodeCount { ready: None, all: 1 };
        let creating = ClusterSummary {
            name: "demo".parse().unwrap(),
            current: true,
            version: None,
            nodes_at: None,
            masters: none,
            workers: none,
            health: ClusterHealth::Creating,
            reason: "no route".to_owned(),
            api: String::new(),
            age_seconds: 60,
            uid: String::new(),
            certificates: None,
        };
        let wanted = serde_json::json!({
            "name": "demo", "current": true, "version": "?", "state": "Creating", "api": "", "ageSeconds": 60, "uid": "",
            "certificates": null,
            "masters": {"ready": null, "all": 1}, "workers": {"ready": null, "all": 1},
            "note": "continue with: kubeon create demo",
        });
        assert_eq!(serde_json::to_value(row(creating)).unwrap(), wanted);
    }

    #[test]
    fn a_cluster_with_older_nodes_shows_both_versions() {
        let count = NodeCount { ready: Some(1), all: 1 };
        let behind = ClusterSummary {
            name: "demo".parse().unwrap(),
            current: true,
            version: "v1.37.2".parse().ok(),
            nodes_at: "v1.36.3".parse().ok(),
            masters: count,
            workers: count,
            health: ClusterHealth::Ready,
            reason: String::new(),
            api: String::new(),
            age_seconds: 60,
            uid: String::new(),
            certificates: None,
        };
        assert_eq!(columns(&behind)[1], "v1.37.2, nodes v1.36.3");
        let json = serde_json::to_value(row(behind)).unwrap();
        assert_eq!(
            (json["version"].as_str(), json["nodeVersion"].as_str()),
            (Some("v1.37.2"), Some("v1.36.3"))
        );
    }
}
