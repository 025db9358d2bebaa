//! The routes of a cloud provider to the pods of a cluster.
//!
//! ```text
//!   change of the cluster ─┐
//!   kubeon cloud ──────────┴─► nodes, from a master ──► route tables of the provider
//! ```

use std::time::Duration;

use kubeon_api::{CloudRoutes, ClusterName, HostAddress};
pub use kubeon_cloud::{CloudAccount, RoutesChange};
use kubeon_cloud::{CloudError, NodeRoute, remove_routes, update_routes};
use kubeon_link_host::SshHosts;
use serde_json::Value;

use crate::cluster_nodes::{ClusterNodes, NodeAccess, command_output};
use crate::engine::{Engine, StoredCluster, members};
use crate::error::EngineError;
use crate::ready_master::KUBECTL;
use crate::remedy::EngineRemedy;

/// Time limit for the list of nodes.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Brings the routes of a cluster up to date, in other route tables if they are given.
///
/// # Errors
/// Refuses an unknown cluster, missing keys, and a foreign route in the way; fails when no master answers, or the provider
/// does not. `None` when the cluster has no routes and none are requested.
pub async fn modify(
    engine: &Engine<'_>,
    name: Option<&str>,
    requested: Option<CloudRoutes>,
    access: &NodeAccess,
) -> Result<Option<RoutesChange>, EngineError> {
    let mut state = engine.find(name)?;
    let Some(settings) = requested.or_else(|| state.cloud_routes.clone()) else { return Ok(None) };
    let account = account(engine)?;
    let lock = engine.lock(&state, true, "kubeon cloud modify-router")?;
    let masters = members(&state.spec).into_iter().filter(|member| member.role.is_master()).collect();
    let contact = ClusterNodes::of(engine, &state, masters, access).await?.contact;
    let nodes = nodes(&state, &contact.hosts).await?;
    contact.hosts.disconnect().await;
    let left = state.cloud_routes.take().and_then(|before| left_tables(before, &settings));
    if let Some(left) = left {
        remove(&state.name, left, account.clone()).await?;
    }
    // Stored before they are written: they can be found again.
    state.cloud_routes = Some(settings.clone());
    engine.store.save(&lock, &mut state)?;
    Ok(Some(update(&state.name, settings, account, nodes).await?))
}

/// Removes the routes of a cluster, and forgets where they are. With `forget` the provider is not asked.
///
/// # Errors
/// Refuses an unknown cluster and missing keys; fails when the provider does not answer. `None` when the cluster has no
/// routes.
pub async fn delete(
    engine: &Engine<'_>,
    name: Option<&str>,
    forget: bool,
) -> Result<Option<RoutesChange>, EngineError> {
    let mut state = engine.find(name)?;
    let lock = engine.lock(&state, true, "kubeon cloud delete-router")?;
    let Some(settings) = state.cloud_routes.clone() else { return Ok(None) };
    let mut change = RoutesChange::default();
    if !forget {
        change = remove(&state.name, settings, account(engine)?).await?;
    }
    state.cloud_routes = None;
    engine.store.save(&lock, &mut state)?;
    Ok(Some(change))
}

/// Brings the routes up to date after a change of the cluster. `None` when it has no routes.
pub(crate) async fn follow(
    engine: &Engine<'_>,
    state: &StoredCluster,
    hosts: &SshHosts,
) -> Option<Result<RoutesChange, EngineError>> {
    let settings = state.cloud_routes.clone()?;
    let result = async {
        let account = account(engine)?;
        let nodes = nodes(state, hosts).await?;
        hosts.disconnect().await;
        update(&state.name, settings, account, nodes).await
    };
    Some(result.await)
}

/// Removes the routes before the cluster is destroyed. Nothing happens when it has none.
pub(crate) async fn remove_before_destroy(
    engine: &Engine<'_>,
    state: &StoredCluster,
) -> Result<(), EngineError> {
    let Some(settings) = state.cloud_routes.clone() else { return Ok(()) };
    let removed = remove(&state.name, settings, account(engine)?).await;
    removed.map(drop).map_err(|error| error.remedy(EngineRemedy::ForgetRoutes(state.name.clone())))
}

fn account(engine: &Engine<'_>) -> Result<CloudAccount, EngineError> {
    engine.environment.cloud_account.clone().ok_or_else(|| {
        EngineError::refused("the keys of the cloud provider are missing").remedy(EngineRemedy::GiveCloudKeys)
    })
}

/// The tables of `before` that are not in `now`.
fn left_tables(before: CloudRoutes, now: &CloudRoutes) -> Option<CloudRoutes> {
    let place = |routes: &CloudRoutes| (routes.provider, routes.region.clone(), routes.api.clone());
    let same_place = place(&before) == place(now);
    let is_left = |table: &_| !same_place || !now.route_tables.contains(table);
    let route_tables = before.route_tables.iter().filter(|table| is_left(table)).cloned().collect();
    Some(CloudRoutes { route_tables, ..before }).filter(|left| !left.route_tables.is_empty())
}

async fn update(
    cluster: &ClusterName,
    settings: CloudRoutes,
    account: CloudAccount,
    nodes: Vec<NodeRoute>,
) -> Result<RoutesChange, EngineError> {
    let name = cluster.clone();
    blocking(cluster, move || update_routes(&settings, &account, &name, &nodes)).await
}

async fn remove(
    cluster: &ClusterName,
    settings: CloudRoutes,
    account: CloudAccount,
) -> Result<RoutesChange, EngineError> {
    let name = cluster.clone();
    blocking(cluster, move || remove_routes(&settings, &account, &name)).await
}

async fn blocking<T: Send + 'static>(
    cluster: &ClusterName,
    act: impl FnOnce() -> Result<T, CloudError> + Send + 'static,
) -> Result<T, EngineError> {
    let title = format!("the routes to the pods of {cluster} are not up to date");
    let failed = |why: String| {
        let error = EngineError::failed(&title).row("reason", why);
        error.remedy(EngineRemedy::UpdateRoutes(cluster.clone()))
    };
    let ended = tokio::task::spawn_blocking(act).await.map_err(|error| failed(error.to_string()))?;
    ended.map_err(|error| failed(error.to_string()))
}

/// The nodes of the cluster, from the first master that answers.
async fn nodes(state: &StoredCluster, hosts: &SshHosts) -> Result<Vec<NodeRoute>, EngineError> {
    let mut error = EngineError::failed(format!("no master of {} lists its nodes", state.name));
    for member in members(&state.spec).into_iter().filter(|member| member.role.is_master()) {
        let line = format!("{KUBECTL} get nodes -o=json");
        match command_output(hosts, HostAddress::from(member.address), &line, LIST_TIMEOUT).await {
            Ok(text) => return read_nodes(&text),
            Err(why) => error = error.row(&member.name, why),
        }
    }
    let (cluster, static_pods) = (state.name.clone(), state.spec.runs_static_pods());
    Err(error.remedy(EngineRemedy::InspectMasters { cluster, static_pods }))
}

/// The routes to the nodes of a list. A node without pods' network has no route yet.
fn read_nodes(text: &str) -> Result<Vec<NodeRoute>, EngineError> {
    let list: Value = serde_json::from_str(text)
        .map_err(|error| EngineError::failed(format!("the list of nodes cannot be read: {error}")))?;
    let route = |node: &Value| {
        let addresses = node["status"]["addresses"].as_array()?;
        let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
        Some(NodeRoute {
            node: node["metadata"]["name"].as_str()?.to_owned(),
            pods: node["spec"]["podCIDR"].as_str()?.parse().ok()?,
            address: internal["address"].as_str()?.parse().ok()?,
        })
    };
    Ok(list["items"].as_array().into_iter().flatten().filter_map(route).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(region: &str, tables: &[&str]) -> CloudRoutes {
        CloudRoutes {
            provider: kubeon_api::CloudProvider::Tencent,
            region: region.parse().unwrap(),
            route_tables: tables.iter().map(|table| table.parse().unwrap()).collect(),
            api: None,
        }
    }

    #[test]
    fn tables_that_are_no_longer_named_are_left() {
        let before = routes("ap-a", &["rtb-1", "rtb-2"]);
        assert_eq!(
            left_tables(before.clone(), &routes("ap-a", &["rtb-2", "rtb-3"])),
            Some(routes("ap-a", &["rtb-1"]))
        );
        assert_eq!(left_tables(before.clone(), &before), None);
        assert_eq!(left_tables(before.clone(), &routes("ap-b", &["rtb-1", "rtb-2"])), Some(before));
    }

    #[test]
    fn nodes_with_a_network_have_routes() {
        let text = r#"{"items": [
            {"metadata": {"name": "m1"}, "spec": {"podCIDR": "10.96.0.0/24"},
             "status": {"addresses": [{"type": "Hostname", "address": "m1"}, {"type": "InternalIP", "address": "10.0.0.1"}]}},
            {"metadata": {"name": "w1"}, "spec": {}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}
        ]}"#;
        let route = NodeRoute {
            node: "m1".to_owned(),
            pods: "10.96.0.0/24".parse().unwrap(),
            address: "10.0.0.1".parse().unwrap(),
        };
        assert_eq!(read_nodes(text).unwrap(), [route]);
        assert!(read_nodes("no JSON").is_err());
    }
}
