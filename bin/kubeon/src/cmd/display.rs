//! `kubeon display`: shows certificates, nodes, pods, containers and etcd of a cluster.

use kubeon_engine::engine::StoredCluster;
use kubeon_engine::ready_master::{ListedObjects, PodImages, ReadyMaster};
use kubeon_wire::{CertificateFact, Facts};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Format;
use crate::args::day::DisplayArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::expiry::{self, ExpiryView};
use crate::output::{CliOutput, CommandResult, TextTable};

/// A shown certificate.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    path: String,
    expires: String,
    residual_days: i64,
}

/// Shows a cluster.
pub(super) async fn run(context: &Context<'_>, args: &DisplayArgs) -> Result<(), CliError> {
    let (engine, output) = (context.engine()?, context.output);
    let state = engine.find(args.name.as_deref())?;
    let access = args.login.access(&args.contact);
    let master = ReadyMaster::find(&engine, &state, &access).await?;
    let other = state.spec.has_external_etcd();
    let other = if other { Some(ReadyMaster::find_member(&engine, &state, &access).await?) } else { None };
    let member = other.as_ref().unwrap_or(&master);
    master.facts.unchecked.iter().for_each(|text| output.warn(&format!("{} {text}", master.name)));
    match args.format.output {
        Format::Table | Format::Wide => {
            versions(&state).map_or(Ok(()), |versions| output.result(&versions))?;
            print(output, &master, member).await
        }
        Format::Name => output.result(&master.names(ListedObjects::Nodes).await?),
        Format::Json | Format::Yaml => {
            let value = value(&state, &master, member).await?;
            output.result(
                &CommandResult::new(&value, TextTable::new(&[]), Vec::new())?.text(args.format.output)?,
            )
        }
    }
}

/// Prints each section as soon as it is read.
async fn print(output: &CliOutput, master: &ReadyMaster, member: &ReadyMaster) -> Result<(), CliError> {
    let section = |title: &str, text: &str| {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        output.result(&format!("===================={title}====================\n{text}{end}"))
    };
    let earliest = earliest(master, member).map(|earliest| earliest.sentence() + "\n").unwrap_or_default();
    section("cert info", &(certificate_table(&certificates(&master.facts)).text(false) + &earliest))?;
    section("node info", &master.table(ListedObjects::Nodes).await?)?;
    section("pod info", &master.table(ListedObjects::Pods).await?)?;
    section("container info", &container_lines(&master.pod_images().await?))?;
    let version = member.etcdctl_version().await?;
    let members = member.etcd_members_table().await?;
    section("etcd info", &format!("using etcdctl version: {version}\n{members}"))
}

/// One line for each pod: its name and its images.
fn container_lines(pods: &[PodImages]) -> String {
    pods.iter().map(|pod| format!("{}:\t{}\n", pod.pod, pod.images.join(", "))).collect()
}

/// Both versions of a cluster whose nodes have an older one than its control plane.
fn versions(state: &StoredCluster) -> Option<String> {
    let (cluster, version, nodes) = (&state.name, state.spec.version, state.nodes_at?);
    Some(format!(
        "{cluster}: the control plane has {version}, the nodes {nodes}; they come with kubeon upgrade {cluster} {version}\n"
    ))
}

async fn value(state: &StoredCluster, master: &ReadyMaster, member: &ReadyMaster) -> Result<Value, CliError> {
    let images = master.pod_images().await?.into_iter();
    let containers: serde_json::Map<String, Value> = images.map(|pod| (pod.pod, pod.images.into())).collect();
    Ok(json!({
        "cluster": state.name,
        "version": state.spec.version,
        "nodeVersion": state.nodes_at.unwrap_or(state.spec.version),
        "certificates": certificates(&master.facts),
        "earliestExpiry": earliest(master, member),
        "untold": master.facts.unchecked,
        "nodes": master.items(ListedObjects::Nodes).await?,
        "pods": master.items(ListedObjects::Pods).await?,
        "containers": containers,
        "etcd": { "etcdctl": member.etcdctl_version().await?, "members": member.etcd_members().await? },
    }))
}

/// The certificate that ends first, of the nodes, and of the masters and hosts of etcd that answered.
fn earliest(master: &ReadyMaster, member: &ReadyMaster) -> Option<ExpiryView> {
    let found = [master, member].into_iter().filter_map(ReadyMaster::earliest_expiry);
    let first = found.min_by_key(|certificate| certificate.expires_at)?;
    Some(ExpiryView::new(&first, master.facts.clock_seconds))
}

fn certificates(facts: &Facts) -> Vec<Certificate> {
    let show = |fact: &CertificateFact| Certificate {
        path: fact.path.clone(),
        expires: expiry::time(fact.not_after),
        residual_days: (fact.not_after - facts.clock_seconds) / 86_400,
    };
    facts.certificates.iter().map(show).collect()
}

fn certificate_table(certificates: &[Certificate]) -> TextTable {
    let mut table = TextTable::new(&["CERTIFICATE", "EXPIRES", "RESIDUAL TIME"]);
    for certificate in certificates {
        let days = certificate.residual_days;
        let left = if days >= 730 { format!("{}y", days / 365) } else { format!("{days}d") };
        let left = if days < 0 { "expired".to_owned() } else { left };
        table.row([certificate.path.clone(), certificate.expires.clone(), left]);
    }
    table
}
