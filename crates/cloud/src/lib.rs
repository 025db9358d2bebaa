//! Routes to the pods of nodes in the route tables of a cloud provider.
//!
//! ```text
//!   nodes ──► wanted routes ─┐
//!   provider ──► its routes ─┴─► RoutePlan (pure) ──► remove, then add
//! ```
//!
//! The description of a route names its cluster and its node: only routes that name this cluster are ever removed. After a
//! failure that may pass, everything is read and planned again. Calls block the thread.

mod account;
mod aliyun;
mod api_client;
mod error;
mod plan;
mod provider;
mod route_api;
mod signature;
mod tencent;

pub use account::CloudAccount;
pub use error::CloudError;
pub use plan::NodeRoute;
pub use provider::{RoutesChange, remove_routes, update_routes};
