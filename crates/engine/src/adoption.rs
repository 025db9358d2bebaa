//! Rebuilds the lost state of a cluster from its masters, or makes that of a cluster of kubeadm, without changing any host.
//!
//! ```text
//!   claim.json ── uid, generation, version ─┐
//!   ConfigMap kube-system/kubeon-cluster ───┼─► compare ─► state + keys ─► store
//!   /etc/kubernetes/pki ── keys ────────────┘
//! ```

mod access;
mod checks;
mod found_cluster;
mod key_files;
mod kubeadm;
mod printed_files;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use kubeon_api::{ClusterKeys, ClusterName, HostAddress};
use kubeon_plan::{ClusterDeclaration, DeclarationError, DesiredCluster, HostSpec, adopted_generation};
use kubeon_store::HostLogin;
use kubeon_wire::{Claim, ClusterFacts};
use serde_json::Value;

pub use self::access::AdoptionRequest;
use self::access::{contact, logins, reports};
use self::found_cluster::FoundCluster;
use crate::cluster_nodes::command_output;
use crate::cluster_request::stored_spec;
use crate::contact::Contact;
use crate::engine::{Engine, StoredCluster, set_spec};
use crate::error::{EngineError, note_text};
use crate::preview::PlanPreview;
use crate::ready_master::KUBECTL;
use crate::remedy::EngineRemedy;

/// The command that holds the lock.
const COMMAND: &str = "kubeon adopt";
/// Time limit of a command on a master.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster whose state was rebuilt.
pub struct AdoptedCluster {
    /// The state.
    pub state: StoredCluster,
    /// The administrator's kubeconfig; `None` if nothing was stored.
    pub kubeconfig: Option<PathBuf>,
    /// What the first change does on the hosts, if kubeadm made the cluster.
    pub plan: Option<Box<PlanPreview>>,
}

/// Rebuilds the state of a cluster from masters and stores it with its keys. No host is changed.
///
/// # Errors
/// Refuses before anything is stored: a cluster that this machine knows, a master that does not answer, belongs to no cluster or to
/// another one, has no ready API server, or does not agree with the others, a cluster without a declaration or with an incomplete
/// change of its masters, version or keys, and keys that do not belong together. Of a cluster of kubeadm also: a host that does not
/// answer, and whatever a change of kubeon would not keep. Fails when the state cannot be written.
pub async fn adopt(
    engine: &Engine<'_>,
    request: &AdoptionRequest<'_>,
) -> Result<AdoptedCluster, EngineError> {
    let name = engine.name(Some(request.name))?;
    if engine.store.exists(&name) {
        let path = engine.store.state_path(&name);
        let error = EngineError::refused(format!("{name} exists on this machine already"));
        return Err(error.row("its state", path.display().to_string()));
    }
    let lock = if request.dry_run {
        None
    } else {
        Some(engine.store.lock_as_read::<DesiredCluster>(&name, COMMAND, None)?)
    };
    let mut found = read(engine, &name, request).await?;
    let kubeconfig = match &lock {
        Some(lock) => Some(found.store(engine, lock).await?),
        None => None,
    };
    found.contact.hosts.disconnect().await;
    Ok(AdoptedCluster { state: found.state, kubeconfig, plan: found.plan })
}

/// Reads the cluster from its masters, and checks what they report.
async fn read(
    engine: &Engine<'_>,
    name: &ClusterName,
    request: &AdoptionRequest<'_>,
) -> Result<FoundCluster, EngineError> {
    let masters: Vec<HostSpec> = request.masters.iter().copied().map(HostSpec::at).collect();
    let contact = contact(engine, name, request.access, &masters, &[]).await?;
    let reports = reports(&contact, name, request.masters).await?;
    if kubeadm::made(&reports) {
        return kubeadm::read(engine, name, request, contact, reports).await;
    }
    checks::refuse_workers(name, request.workers)?;
    let claim = checks::common_claim(name, &reports)?;
    let (first, facts) = reports.first().ok_or_else(|| EngineError::refused("no master is named"))?;
    let cluster = facts.cluster.clone().unwrap_or_default();
    let declaration = declaration(&contact, *first, name).await?;
    checks::compare(name, &claim, &declaration, request.masters, &cluster)?;
    let (_, notes) = stored_spec(declaration.cluster.clone(), &engine.supported()?)?;
    notes.iter().for_each(|note| engine.output.warn(&note_text(note)));
    let logins = logins(engine, &declaration.cluster, request.access)?;
    let keys = key_files::of_masters(&contact, name, request.masters, declaration.keys).await?;
    for node in checks::undeclared_nodes(&declaration.cluster, &cluster) {
        engine.output.warn(&format!(
            "node {node} is not in the declaration of {name}: its addition or removal was not complete; add its host again"
        ));
    }
    let state = rebuilt(declaration, &claim, &cluster, logins)?;
    Ok(FoundCluster { contact, state, keys, plan: None })
}

/// The declaration in the cluster.
async fn declaration(
    contact: &Contact,
    master: HostAddress,
    name: &ClusterName,
) -> Result<ClusterDeclaration, EngineError> {
    let object = ClusterDeclaration::OBJECT;
    let line = format!("{KUBECTL} --namespace=kube-system get configmap {object} --ignore-not-found -o=json");
    let text = command_output(&contact.hosts, master, &line, TIMEOUT)
        .await
        .map_err(|why| checks::refusal(name, [(master, format!("kubectl: {why}"))]))?;
    let object: Value = if text.trim().is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text)
            .map_err(|error| checks::refusal(name, [(master, format!("kubectl printed no JSON: {error}"))]))?
    };
    ClusterDeclaration::of_object(&object).map_err(|error| {
        let title = match &error {
            DeclarationError::Missing => {
                format!("{name} does not hold its declaration: an older kubeon changed it last")
            }
            other => format!("{name} cannot be adopted: {other}"),
        };
        let place = format!("ConfigMap {} in kube-system", ClusterDeclaration::OBJECT);
        EngineError::refused(title).row("declaration", place).remedy(EngineRemedy::ImportExport(name.clone()))
    })
}

/// The state of the cluster.
fn rebuilt(
    declaration: ClusterDeclaration,
    claim: &Claim,
    cluster: &ClusterFacts,
    logins: BTreeMap<HostAddress, HostLogin>,
) -> Result<StoredCluster, EngineError> {
    let ClusterDeclaration { uid, keys, nodes_at, cluster: spec, .. } = declaration;
    let generation = adopted_generation(claim.generation).ok_or_else(|| {
        EngineError::refused(format!("{} cannot be adopted", spec.name))
            .row("claim", format!("generation {} leaves no higher one", claim.generation))
    })?;
    let (status, version) = checks::progress(&spec, nodes_at, cluster);
    let mut state = StoredCluster::new(spec.name.clone(), spec.clone());
    (state.uid, state.generation, state.logins) = (uid, generation, logins);
    (state.status, state.version) = (status, Some(version));
    state.encrypts_secrets = true;
    if nodes_at.is_some() {
        state.set_nodes_at(nodes_at);
    }
    let keys = ClusterKeys::settled(keys);
    if !keys.is_first() {
        state.set_keys(keys);
    }
    set_spec(&mut state, spec);
    Ok(state)
}

#[cfg(test)]
mod tests {
    use kubeon_api::{HostRole, KeyNumber};
    use kubeon_plan::sim;
    use kubeon_store::Status;

    use super::*;
    use crate::cluster_nodes::NodeAccess;
    use crate::environment::EngineEnvironment;
    use crate::output::SilentOutput;

    fn state(keys: KeyNumber, generation: u64) -> Result<StoredCluster, EngineError> {
        let cluster = sim::cluster(&["10.0.0.1"], &[]);
        let claim = Claim {
            cluster: cluster.name.clone(),
            uid: "u1".to_owned(),
            generation,
            version: cluster.version,
            role: HostRole::Master,
        };
        let uid = "u1".to_owned();
        let (also_trusted, trial, nodes_at) = (None, None, None);
        let declaration = ClusterDeclaration { uid, keys, also_trusted, trial, nodes_at, cluster };
        rebuilt(declaration, &claim, &ClusterFacts::default(), BTreeMap::new())
    }

    #[test]
    fn the_state_is_ahead_of_the_masters_and_keeps_their_identity() {
        let first = state(KeyNumber::FIRST, 7).unwrap();
        assert!(first.uid == "u1" && first.generation > 1_000_007 && first.encrypts_secrets);
        assert_eq!((first.status, first.version), (Status::Running, Some(first.spec.version)));
        assert!(first.addresses.api.is_some(), "the derived addresses are there");
        let rotated = state(KeyNumber::FIRST.next(), 7).unwrap();
        assert_eq!(rotated.keys, ClusterKeys::settled(KeyNumber::FIRST.next()));
        assert!(rotated.schema > first.schema, "older programs know the first keys only");
        let error = state(KeyNumber::FIRST, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("leaves no higher one"), "{error}");
    }

    #[tokio::test]
    async fn a_known_cluster_is_refused_before_a_host_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let environment = EngineEnvironment {
            state_folder: Some(folder.path().to_owned()),
            ..EngineEnvironment::default()
        };
        let engine = Engine::new(environment, &SilentOutput).unwrap();
        let mut known = state(KeyNumber::FIRST, 7).unwrap();
        let lock = engine.store.lock(&known.name, "test").unwrap();
        engine.store.save(&lock, &mut known).unwrap();
        drop(lock);
        let masters: [HostAddress; 1] = ["10.0.0.1".parse().unwrap()];
        let access = NodeAccess::default();
        let request = AdoptionRequest {
            name: "demo",
            masters: &masters,
            workers: &[],
            access: &access,
            dry_run: false,
        };
        let error = adopt(&engine, &request).await.err().unwrap();
        assert_eq!(error.title, "demo exists on this machine already");
    }
}
