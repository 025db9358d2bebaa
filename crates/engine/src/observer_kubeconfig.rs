//! The kubeconfig of an observer: a program that watches the health of a cluster and changes nothing.

use kubeon_pki::kubeconfig;
use kubeon_wire::{CertificateAuthority, Leaf, OBSERVER_GROUP, Usage};

use crate::admin_kubeconfig::{self, servers};
use crate::endpoint;
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;

/// Lifetime of an observer's certificate in hours: one year, as long as the administrator's.
const OBSERVER_HOURS: u32 = 8766;

/// The kubeconfig of an observer, with a new certificate. It has a context for the API endpoint and for every master. Its user
/// may read nodes, and what every authenticated user may read, such as `/readyz`. The text contains a key.
///
/// # Errors
/// Refuses when the creation of the cluster is not complete. Fails when its keys cannot be read or used.
pub fn observer_kubeconfig(engine: &Engine<'_>, state: &StoredCluster) -> Result<String, EngineError> {
    let spec = &state.spec;
    admin_kubeconfig::existing(engine, &spec.name)?;
    let client = Leaf {
        ca: CertificateAuthority::Kubernetes,
        common_name: "kubeon-observer".to_owned(),
        organizations: vec![OBSERVER_GROUP.to_owned()],
        dns_names: Vec::new(),
        addresses: Vec::new(),
        usage: Usage::Client,
        hours: OBSERVER_HOURS,
    };
    let user = format!("{}-observer", spec.name);
    let servers = servers(spec, &endpoint::api(spec));
    kubeconfig(&engine.keys(state)?, &user, &servers, spec.name.as_str(), &client)
        .map_err(|error| EngineError::failed(error.to_string()))
}
