//! Writes the objects of a meta cluster to a file: everything that an operator needs to go on in another meta cluster.
//!
//! ```text
//!   lists of kubectl ─► selection (pure) ─► a file of mode 0600, encrypted if a key is given
//! ```
//!
//! The objects of the installation are not part of it: `kubeon meta install` creates them.

mod content;
mod file;
mod kind;
pub(crate) mod object;
pub(crate) mod read;
mod references;
mod selection;

pub use content::MetaExport;
pub use file::{read_export, require_writable, write_export};
pub(crate) use kind::MetaKind;
pub use object::ObjectNote;
pub(crate) use references::DataReference;

use jiff::Timestamp;

use crate::error::EngineError;
use crate::kubectl::Kubectl;
use crate::operator_install::check_connection;
use crate::operator_uninstall::is_defined;
use crate::remedy::EngineRemedy;

/// The names of the definitions.
const DEFINITIONS: [&str; 3] =
    ["kubernetesclusters.ecs.yun.com", "clusters.kubeonkube.clay.io", "clusteroperations.kubeonkube.clay.io"];

/// Reads the objects of the meta cluster. Nothing is changed.
///
/// # Errors
/// Refuses a cluster in which kubeon is not installed. Fails when the cluster cannot be reached, or an object cannot be read.
pub async fn export(kubectl: &Kubectl, operator_namespace: &str) -> Result<MetaExport, EngineError> {
    check_connection(kubectl).await?;
    require_definitions(kubectl).await?;
    let exported_at = Timestamp::now();
    let remedy = || EngineRemedy::CheckPermissions { kubeconfig: kubectl.kubeconfig().to_owned() };
    let found = read::everything(kubectl).await.map_err(|error| error.remedy(remedy()))?;
    let (objects, notes) = selection::select(found);
    Ok(MetaExport {
        format: content::FORMAT,
        kubeon_version: env!("CARGO_PKG_VERSION").to_owned(),
        exported_at,
        operator_namespace: operator_namespace.to_owned(),
        objects,
        notes,
    })
}

/// Refuses a cluster without the definitions of kubeon.
pub(crate) async fn require_definitions(kubectl: &Kubectl) -> Result<(), EngineError> {
    for definition in DEFINITIONS {
        if !is_defined(kubectl, definition).await? {
            let file = kubectl.kubeconfig().display();
            return Err(EngineError::refused(format!("kubeon is not installed in the cluster of {file}"))
                .row("missing", format!("CustomResourceDefinition {definition}")));
        }
    }
    Ok(())
}
