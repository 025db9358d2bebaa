//! What was found of a cluster that is adopted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kubeon_store::ClusterLock;

use crate::admin_kubeconfig;
use crate::contact::Contact;
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::preview::PlanPreview;

/// What the masters report, after all checks.
pub(super) struct FoundCluster {
    pub(super) contact: Contact,
    pub(super) state: StoredCluster,
    /// The files of the keys: name and content.
    pub(super) keys: BTreeMap<String, String>,
    /// What the first change does, if kubeadm made the cluster.
    pub(super) plan: Option<Box<PlanPreview>>,
}

impl FoundCluster {
    /// Stores the cluster and returns the path of its kubeconfig.
    pub(super) async fn store(
        &mut self,
        engine: &Engine<'_>,
        lock: &ClusterLock,
    ) -> Result<PathBuf, EngineError> {
        // The state is last: what ended before it can be repeated.
        self.contact.pin(engine, lock)?;
        engine.store.adopt(lock, &mut self.state, &self.keys)?;
        if let Some(text) = admin_kubeconfig::new_text(engine, &self.state, true).await? {
            engine.store.save_kubeconfig(lock, &text)?;
        }
        Ok(engine.store.kubeconfig_path(&self.state.name))
    }
}
