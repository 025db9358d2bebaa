//! What the API of every provider can do.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, RouteTableId};

use crate::error::CloudError;
use crate::plan::{FoundRoute, WantedRoute};

/// What the API of every provider can do.
pub(crate) trait RouteApi {
    /// The names under which the provider knows the hosts as next hops.
    fn next_hops(&self, addresses: &[HostAddress]) -> Result<BTreeMap<HostAddress, String>, CloudError>;
    /// The routes of a table that users made.
    fn routes(&self, table: &RouteTableId) -> Result<Vec<FoundRoute>, CloudError>;
    fn add(&self, table: &RouteTableId, routes: &[WantedRoute]) -> Result<(), CloudError>;
    fn remove(&self, table: &RouteTableId, routes: &[FoundRoute]) -> Result<(), CloudError>;
}
