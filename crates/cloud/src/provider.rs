//! Brings the route tables of a cluster up to date.

use std::time::Duration;

use backon::{BlockingRetryable as _, ExponentialBuilder};
use kubeon_api::{CloudProvider, CloudRoutes, ClusterName};

use crate::account::CloudAccount;
use crate::aliyun::Aliyun;
use crate::error::CloudError;
use crate::plan::{self, NodeRoute, RoutePlan, WantedRoute};
use crate::route_api::RouteApi;
use crate::tencent::Tencent;

/// How often everything is read and planned again after a failure that may pass.
const RETRIES: usize = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// How many routes were changed, in all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoutesChange {
    /// Added routes.
    pub added: usize,
    /// Removed routes.
    pub removed: usize,
    /// Routes that were as they should be.
    pub kept: usize,
}

/// Makes the routes of a cluster those of the nodes. Routes of others stay.
///
/// # Errors
/// When the provider refuses or does not answer, an instance is not found, or a route of somebody else is in the way: in the
/// latter cases nothing was changed.
pub fn update_routes(
    settings: &CloudRoutes,
    account: &CloudAccount,
    cluster: &ClusterName,
    nodes: &[NodeRoute],
) -> Result<RoutesChange, CloudError> {
    let api = open(settings, account)?;
    let mut total = RoutesChange::default();
    let pass = || update(api.as_ref(), settings, cluster, nodes, &mut total);
    let waits = ExponentialBuilder::default().with_min_delay(FIRST_WAIT).with_max_times(RETRIES);
    pass.retry(waits).when(CloudError::is_transient).call()?;
    Ok(total)
}

/// Removes the routes of a cluster.
///
/// # Errors
/// When the provider refuses or does not answer.
pub fn remove_routes(
    settings: &CloudRoutes,
    account: &CloudAccount,
    cluster: &ClusterName,
) -> Result<RoutesChange, CloudError> {
    update_routes(settings, account, cluster, &[])
}

fn open(settings: &CloudRoutes, account: &CloudAccount) -> Result<Box<dyn RouteApi>, CloudError> {
    Ok(match settings.provider {
        CloudProvider::Tencent => Box::new(Tencent::new(settings, account)?),
        CloudProvider::Aliyun => Box::new(Aliyun::new(settings, account)?),
    })
}

/// Plans every table before it changes one.
fn update(
    api: &dyn RouteApi,
    settings: &CloudRoutes,
    cluster: &ClusterName,
    nodes: &[NodeRoute],
    total: &mut RoutesChange,
) -> Result<(), CloudError> {
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let hops = api.next_hops(&addresses)?;
    let wanted: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some(WantedRoute::new(cluster, node, hops.get(&node.address)?.clone())))
        .collect();
    let plans = settings
        .route_tables
        .iter()
        .map(|table| Ok((table, plan::plan(cluster, table.as_str(), &wanted, &api.routes(table)?)?)))
        .collect::<Result<Vec<_>, CloudError>>()?;
    total.kept = plans.iter().map(|(_, plan)| plan.kept).sum::<usize>().saturating_sub(total.added);
    for (table, RoutePlan { remove, add, .. }) in plans {
        api.remove(table, &remove)?;
        total.removed += remove.len();
        api.add(table, &add)?;
        total.added += add.len();
    }
    Ok(())
}
