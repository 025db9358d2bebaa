//! The log of a cluster's latest operation.

use axum::extract::{Path, State};
use kubeon_rest::v1::{ClusterBody, Envelope};

use super::cluster::CallersCluster;
use super::envelope::{EnvelopeError, EnvelopeReply};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::job_log::{JobLog, LogRange};
use crate::request_error::RequestError;

/// The log of the Job of the latest operation.
#[utoipa::path(get, path = "/api/v1/region/{region}/cluster/{name}/logs", tag = "v1", operation_id = "v1Logs",
    params(("region" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = 400, body = Envelope), (status = 401, body = Envelope)))]
pub(super) async fn read(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<(String, String)>,
) -> Result<EnvelopeReply, EnvelopeError> {
    let cluster = CallersCluster::new((&gateway, &caller), path, &ClusterBody::default())?;
    let (_, object) = cluster.read().await?;
    let job = object.status.and_then(|status| status.job_name).filter(|job| !job.is_empty());
    // The words of kubernetes-operator.
    let job = job.ok_or_else(|| RequestError::bad("no opreation logs"))?;
    let (namespace, _) = cluster.key();
    let log = JobLog::find((&gateway, &caller), namespace, &job).await?;
    Ok(EnvelopeReply(log.text(&LogRange::default()).await?))
}
