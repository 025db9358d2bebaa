//! Identities with which the hosts of a run forward parts to each other.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::HostAddress;
use kubeon_pki::RunAuthority;
use kubeon_plan::DesiredCluster;
use kubeon_ports::{ForwardingIdentities, SecretError};
use kubeon_wire::ForwardingIdentity;

use crate::error::EngineError;

/// The hosts of a cluster, under an authority that exists for one run.
pub(crate) struct RunIdentities {
    authority: RunAuthority,
    /// The addresses in the cluster's network.
    addresses: BTreeMap<HostAddress, Ipv4Addr>,
}

impl RunIdentities {
    /// The identities of the hosts of a cluster.
    pub(crate) fn of(spec: &DesiredCluster) -> Result<Self, EngineError> {
        let authority = RunAuthority::new().map_err(|error| EngineError::failed(error.to_string()))?;
        let addresses = spec.hosts().map(|host| (host.address, host.cluster_address().ip())).collect();
        Ok(Self { authority, addresses })
    }
}

impl ForwardingIdentities for RunIdentities {
    fn identity(&self, host: HostAddress) -> Result<ForwardingIdentity, SecretError> {
        let failed = |why: String| SecretError { what: format!("the identity of {host} in this run"), why };
        let address = self.addresses.get(&host).ok_or_else(|| failed("it is leaving".to_owned()))?;
        self.authority.issue(*address).map_err(|error| failed(error.to_string()))
    }
}
