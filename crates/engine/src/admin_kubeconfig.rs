//! The administrator's kubeconfig: written after every change, renewed when its certificate is old.

use std::path::PathBuf;

use kubeon_api::ClusterName;
use kubeon_pki::{KubeconfigServer, kubeconfig};
use kubeon_plan::DesiredCluster;
use kubeon_ports::{SecretError, Secrets as _};
use kubeon_wire::{Leaf, SecretRef, Usage};

use crate::endpoint::{self, ContextChoice, EndpointSearch};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::kubeconfig::Kubeconfig;
use crate::remedy::EngineRemedy;

/// Lifetime of the administrator's certificate in hours: one year. Every change writes a new certificate. A
/// run without changes renews it after two thirds of its lifetime.
const ADMIN_HOURS: u32 = 8766;

/// The path of the kubeconfig.
///
/// # Errors
/// Refuses when the creation of the cluster is not complete.
pub(crate) fn existing(engine: &Engine<'_>, cluster: &ClusterName) -> Result<PathBuf, EngineError> {
    let path = engine.store.kubeconfig_path(cluster);
    if path.is_file() {
        return Ok(path);
    }
    let error =
        EngineError::refused(format!("{cluster} has no kubeconfig yet: its creation is not complete"));
    Err(error.remedy(EngineRemedy::CompleteChange(cluster.clone())))
}

/// The text to store; `None` when the stored kubeconfig is up to date.
///
/// # Errors
/// When the keys cannot be read or used.
pub(crate) async fn new_text(
    engine: &Engine<'_>,
    state: &StoredCluster,
    changed: bool,
) -> Result<Option<String>, EngineError> {
    let path = engine.store.kubeconfig_path(&state.spec.name);
    let stored = std::fs::read_to_string(&path).ok();
    let Some(stored) = stored.filter(|text| !changed && !is_due(text, &state.spec.name)) else {
        return generate(engine, state).await.map(Some);
    };
    match endpoint::renewed(&stored, &state.spec, ContextChoice::Current, engine.output).await {
        Ok(text) => Ok(text),
        Err(error) => {
            engine.output.warn(&format!("{}: the kubeconfig is rewritten", error.title));
            generate(engine, state).await.map(Some)
        }
    }
}

async fn generate(engine: &Engine<'_>, state: &StoredCluster) -> Result<String, EngineError> {
    let spec = &state.spec;
    let keys = engine.keys(state)?;
    let failed = |error: SecretError| EngineError::failed(error.to_string());
    let authority = SecretRef::CaCertificate { ca: kubeon_wire::CertificateAuthority::Kubernetes };
    let authority = keys.resolve(&authority).map_err(failed)?;
    let endpoint = endpoint::find(EndpointSearch::new(spec, &authority, None), engine.output).await;
    let client = Leaf {
        ca: kubeon_wire::CertificateAuthority::Kubernetes,
        common_name: "kubernetes-admin".to_owned(),
        organizations: vec!["system:masters".to_owned()],
        dns_names: Vec::new(),
        addresses: Vec::new(),
        usage: Usage::Client,
        hours: ADMIN_HOURS,
    };
    let default = endpoint.master.as_deref().unwrap_or(spec.name.as_str());
    kubeconfig(&keys, &user(&spec.name), &servers(spec, &endpoint.url), default, &client).map_err(failed)
}

/// The name of the administrator's entry.
fn user(cluster: &ClusterName) -> String {
    format!("{cluster}-admin")
}

/// Whether the certificate in a kubeconfig is past two thirds of its lifetime. Credentials of other users are
/// ignored.
fn is_due(text: &str, cluster: &ClusterName) -> bool {
    let client = Kubeconfig::parse(text).ok().and_then(|config| config.client(&user(cluster)));
    client.is_some_and(|certificate| kubeon_pki::is_due(&certificate))
}

/// The API endpoint of the cluster, then the endpoint of every master, each with its context name.
pub(crate) fn servers(spec: &DesiredCluster, endpoint: &str) -> Vec<KubeconfigServer> {
    let server = |context: String, url: String| KubeconfigServer { context, url };
    let masters = spec
        .masters
        .iter()
        .map(|host| server(endpoint::context(spec, host), format!("https://{}:6443", host.address)));
    std::iter::once(server(spec.name.to_string(), endpoint.to_owned())).chain(masters).collect()
}
