//! Writes objects in the name of the operator.

use kubeon_api::labels::HOST_POOL;
use kubeon_install::names;
use serde_json::{Value, json};

use crate::error::EngineError;
use crate::kubectl::Kubectl;
use crate::meta_export::MetaKind;
use crate::meta_export::object::{name, pool};
use crate::operator_install::with_rows;

/// The number of objects in one command.
const BATCH: usize = 100;
/// The group that may write everything: the operator itself creates no `Cluster`.
const GROUP: &str = "--as-group=system:masters";

/// kubectl with the identity of the operator. The audit log has the user, too.
pub(super) struct ObjectWriter<'k> {
    kubectl: &'k Kubectl,
    user: String,
}

impl<'k> ObjectWriter<'k> {
    /// A writer in the name of the operator in this namespace.
    pub(super) fn new(kubectl: &'k Kubectl, namespace: &str) -> Self {
        let user = format!("--as={}", names::service_account(namespace, names::OPERATOR));
        Self { kubectl, user }
    }

    pub(super) fn kubectl(&self) -> &'k Kubectl {
        self.kubectl
    }

    /// Refuses a user who may not act as the operator.
    pub(super) async fn require_identity(&self) -> Result<(), EngineError> {
        let asked = self.kubectl.run(&["get", "--raw", "/version", &self.user, GROUP], None).await;
        asked.map(drop).map_err(|cause| {
            let file = self.kubectl.kubeconfig().display();
            let error = EngineError::refused(format!("the user of {file} may not act as the operator"));
            with_rows(error, cause).row(
                "needed",
                "the verb impersonate on the operator's service account and the group system:masters",
            )
        })
    }

    /// Creates objects of any kind.
    pub(super) async fn create(&self, objects: &[Value]) -> Result<(), EngineError> {
        self.run(&["create"], objects).await
    }

    /// Replaces objects. Of a namespace, only its pool of hosts is replaced.
    pub(super) async fn replace(&self, objects: &[Value]) -> Result<(), EngineError> {
        let (namespaces, others): (Vec<_>, Vec<_>) =
            objects.iter().cloned().partition(|object| MetaKind::of(object) == Some(MetaKind::Namespace));
        for namespace in &namespaces {
            let pool = format!("{HOST_POOL}={}", pool(namespace).unwrap_or_default());
            let words = ["annotate", "namespace", name(namespace), "--overwrite", &pool, &self.user, GROUP];
            self.kubectl.run(&words, None).await?;
        }
        self.run(&["replace"], &others).await
    }

    /// Writes the status of objects that exist.
    pub(super) async fn replace_status(&self, objects: &[Value]) -> Result<(), EngineError> {
        self.run(&["replace", "--subresource=status"], objects).await
    }

    async fn run(&self, verb: &[&str], objects: &[Value]) -> Result<(), EngineError> {
        let words = [verb, &["-f", "-", "-o", "name", &self.user, GROUP][..]].concat();
        for batch in objects.chunks(BATCH) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": batch});
            self.kubectl.run(&words, Some(&list.to_string())).await?;
        }
        Ok(())
    }
}
