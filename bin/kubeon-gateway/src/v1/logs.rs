//! The log of a cluster's latest operation.

use axum::extract::{Path, State};
use axum::response::Response;
use futures::StreamExt as _;
use kubeon_rest::v1::{ClusterBody, Envelope};

use super::cluster::CallersCluster;
use super::envelope::{EnvelopeError, streamed_reply};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::job_log::{JobLog, LogRange};
use crate::log_lines::LogPart;
use crate::request_error::RequestError;

/// The log of the Job of the latest operation.
///
/// A line that is longer than 64 KiB is cut, and a log that is longer than 16 MiB is ended; both say so.
#[utoipa::path(get, path = "/api/v1/region/{region}/cluster/{name}/logs", tag = "v1", operation_id = "v1Logs",
    params(("region" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope),
        (status = 429, body = Envelope)))]
pub(super) async fn read(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
) -> Result<Response, EnvelopeError> {
    let cluster = CallersCluster::new((&gateway, &caller), path, &ClusterBody::default())?;
    let (_, object) = cluster.read().await?;
    let job = object.status.and_then(|status| status.job_name).filter(|job| !job.is_empty());
    // The words of kubernetes-operator.
    let job = job.ok_or_else(|| RequestError::bad("no opreation logs"))?;
    let (namespace, _) = cluster.key();
    let log = JobLog::find((&gateway, &caller), namespace, &job).await?;
    let parts = log.parts(&LogRange::default()).await?;
    Ok(streamed_reply(parts.map(|part| part.map(LogPart::into_text))))
}
