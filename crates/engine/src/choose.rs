//! Chooses the default cluster of kubeon and kubectl.

use std::fs;
use std::path::{Path, PathBuf};

use kubeon_api::ClusterName;

use crate::admin_kubeconfig;
use crate::endpoint::{self, ContextChoice};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::kubeconfig::Kubeconfig;
use crate::kubectl_program;
use crate::user_kubeconfig::{self, LinkedKubeconfig, cannot};

/// The chosen cluster.
#[derive(Debug)]
pub struct ChosenCluster {
    /// The name.
    pub name: ClusterName,
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// `~/.kube/config`, which points to the kubeconfig.
    pub linked: LinkedKubeconfig,
    /// The context that kubectl uses.
    pub context: Option<String>,
    /// The bundle's kubectl, if it could be linked.
    pub kubectl: Option<PathBuf>,
}

/// Makes a cluster the default of kubeon and kubectl. Prints a warning when no master answers or the kubectl
/// of the cluster's version cannot be linked: kubectl works without either.
///
/// # Errors
/// Refuses a cluster that is unknown or has no kubeconfig yet; fails when a file cannot be written.
pub async fn choose(engine: &Engine<'_>, given: &str) -> Result<ChosenCluster, EngineError> {
    let name = engine.name(Some(given))?;
    let state = engine.load(&name)?;
    let kubeconfig = admin_kubeconfig::existing(engine, &name)?;
    engine.store.set_current(&name)?;
    let home = &engine.environment.home;
    let home = home.as_ref().ok_or_else(|| EngineError::refused("HOME is not set: there is no ~/.kube"))?;
    let linked = user_kubeconfig::link(home, &kubeconfig)?;
    let context = match renew_context(engine, &state, &kubeconfig).await {
        Ok(context) => context,
        Err(error) => {
            engine.output.warn(&format!("kubectl keeps its current context: {}", error.title));
            None
        }
    };
    let kubectl = match kubectl_program::link(engine, state.version.unwrap_or(state.spec.version)) {
        Ok(program) => Some(program),
        Err(error) => {
            engine.output.warn(&format!("kubectl is not linked: {}", engine.output.one_line(&error)));
            None
        }
    };
    Ok(ChosenCluster { name, kubeconfig, linked, context, kubectl })
}

/// Points the kubeconfig to a master that answers. Returns the context that kubectl uses.
async fn renew_context(
    engine: &Engine<'_>,
    state: &StoredCluster,
    kubeconfig: &Path,
) -> Result<Option<String>, EngineError> {
    let text = fs::read_to_string(kubeconfig).map_err(|error| cannot("read", kubeconfig, &error))?;
    let new = endpoint::renewed(&text, &state.spec, ContextChoice::Cluster, engine.output).await?;
    if let Some(new) = &new {
        let lock = engine.lock(state, true, "kubeon use")?;
        engine.store.save_kubeconfig(&lock, new)?;
    }
    Ok(Kubeconfig::parse(&new.unwrap_or(text))?.current().map(str::to_owned))
}
