//! The parsers of bodies of version 1, as functions of bytes.

use axum::body::Bytes;
use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};
use kubeon_rest::v1::{CallbackBody, ClusterBody};

use super::envelope::read_body;
use super::nodes::{ScaleDirection, nodes_after, unchanged_lists};
use crate::request_error::RequestError;

/// The result in the body of a callback.
///
/// # Errors
/// When it cannot be read.
pub fn callback(body: &[u8]) -> Result<CallbackBody, RequestError> {
    read_body(&Bytes::copy_from_slice(body))
}

/// The workers of a cluster after a request that adds some, or removes some; `None`: nothing changes.
///
/// # Errors
/// When the body cannot be read, or changes something else.
pub fn workers_after(
    workers: &[HostAddress],
    body: &[u8],
    adds: bool,
) -> Result<Option<Vec<HostAddress>>, RequestError> {
    let body: ClusterBody = read_body(&Bytes::copy_from_slice(body))?;
    let nodes: Vec<DeclaredNode> = workers.iter().map(|address| DeclaredNode::at(*address)).collect();
    let node_list = NodeList::try_from(nodes).map_err(|error| RequestError::bad(error.to_string()))?;
    let current = DeclaredCluster { node_list, ..DeclaredCluster::default() };
    unchanged_lists(&current, &body.cluster)?;
    let direction = if adds { ScaleDirection::Up } else { ScaleDirection::Down };
    let nodes = nodes_after(&current, &body.cluster, direction)?;
    Ok(nodes.map(|nodes| nodes.iter().map(|node| node.ip).collect()))
}
