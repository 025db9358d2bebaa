//! The name of a host as a node.

use kubeon_api::{HostName, NameError};
use kubeon_wire::Facts;

use crate::input::HostSpec;

/// The name of the node: from the specification, or the short hostname of the host.
///
/// # Errors
/// If the hostname is not a valid node name.
pub(crate) fn node_name(spec: &HostSpec, facts: &Facts) -> Result<HostName, NameError> {
    if let Some(name) = &spec.name {
        return Ok(name.clone());
    }
    let hostname = facts.hostname.to_ascii_lowercase();
    hostname.split('.').next().unwrap_or_default().parse()
}
