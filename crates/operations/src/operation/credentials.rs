//! The copies of credentials that Jobs mount. They are deleted when no pod can mount them any more.

use std::sync::Arc;

use kubeon_api::{ClusterOperation, DataRef};

use super::uid;
use crate::job_state;
use crate::order;
use crate::view::{ClusterObject, View};
use crate::write::{Change, ClusterChanges, ObjectKind, ObjectRef, Write};

/// Deletes the copies of credentials of operations that ended. Their names remain in the status.
pub(crate) fn delete_copies(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> ClusterChanges {
    let (ended, open): (Vec<_>, Vec<_>) = operations.iter().partition(|operation| order::ended(operation));
    let is_needed = |copy: &ObjectRef| open.iter().any(|operation| copies(operation).any(|one| one == *copy));
    let mut writes: Vec<Write> = Vec::new();
    for operation in ended.into_iter().filter(|operation| !may_mount(s, operation)) {
        let unneeded = copies(operation).filter(|copy| is_copy(s, operation, copy) && !is_needed(copy));
        for target in unneeded {
            if !writes.iter().any(|write| write.target == target) {
                let why = "no pod needs the copy of the credentials any more".to_owned();
                writes.push(Write {
                    why,
                    target,
                    change: Change::Delete { uid: String::new() },
                    operation: None,
                });
            }
        }
    }
    ClusterChanges { stages: vec![writes], ..ClusterChanges::default() }
}

/// The objects that the operation's Job mounts, as if all of them were Secrets.
fn copies(operation: &ClusterOperation) -> impl Iterator<Item = ObjectRef> {
    let inputs = operation.status.iter().flat_map(|status| &status.inputs);
    inputs.map(|DataRef { namespace, name }| ObjectRef::new(ObjectKind::Secret, namespace, name))
}

/// Whether a pod of the operation's Job may still run.
fn may_mount(s: &View<'_>, operation: &ClusterOperation) -> bool {
    let job = operation.status.as_ref().and_then(|status| status.job_ref.as_ref());
    let job = job.and_then(|at| s.job(at));
    job.is_some_and(|job| {
        job_state::job_state(job) == job_state::JobState::Running || s.pods_of(job).any(job_state::is_running)
    })
}

/// Whether this Secret exists and the operator created it for this operation, or, as older operators did, for all
/// operations of its Cluster. A persisted object of a cluster, such as its state, is none.
fn is_copy(s: &View<'_>, operation: &ClusterOperation, secret: &ObjectRef) -> bool {
    let cluster = match &s.subject {
        ClusterObject::Cluster(observed) => {
            observed.object().and_then(|cluster| cluster.metadata.uid.as_deref())
        }
        ClusterObject::KubernetesCluster(_) => None,
    };
    s.objects.meta(secret).is_some_and(|found| {
        found.cluster.is_none()
            && found.owners.iter().any(|owner| owner == uid(operation) || Some(owner.as_str()) == cluster)
    })
}
