//! Version 1: the nine routes of kubernetes-operator, with its messages.

mod callback;
mod cluster;
mod envelope;
mod logs;
mod nodes;
pub mod parsers;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::gateway::Gateway;

pub(crate) use envelope::EnvelopeError;

/// The routes of callers.
pub(crate) fn routes() -> OpenApiRouter<Gateway> {
    OpenApiRouter::new()
        .routes(routes!(cluster::create, cluster::delete))
        .routes(routes!(cluster::scale_up))
        .routes(routes!(cluster::scale_down))
        .routes(routes!(logs::read))
}

/// The routes of Jobs, which bring a token of one operation.
pub(crate) fn callbacks() -> OpenApiRouter<Gateway> {
    OpenApiRouter::new()
        .routes(routes!(callback::create))
        .routes(routes!(callback::scale_up))
        .routes(routes!(callback::scale_down))
        .routes(routes!(callback::delete))
}
