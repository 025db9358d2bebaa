//! Version 2: clusters, operations, hosts and logs, with paging, filters and streams.

mod clusters;
mod declared;
mod operations;
pub mod parsers;
mod problem;
mod query;
mod streams;
mod view;
mod writes;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::gateway::Gateway;

/// The routes of version 2.
pub(crate) fn routes() -> OpenApiRouter<Gateway> {
    OpenApiRouter::new()
        .routes(routes!(clusters::list_all))
        .routes(routes!(clusters::list, clusters::create))
        .routes(routes!(clusters::read, clusters::patch, clusters::delete))
        .routes(routes!(clusters::hosts))
        .routes(routes!(clusters::retry))
        .routes(routes!(clusters::plan))
        .routes(routes!(operations::list, operations::create))
        .routes(routes!(operations::read, operations::patch, operations::delete))
        .routes(routes!(operations::cancel))
        .routes(routes!(operations::approve))
        .routes(routes!(operations::logs))
        .routes(routes!(operations::steps))
        .routes(routes!(streams::clusters))
        .routes(routes!(streams::operations))
}
