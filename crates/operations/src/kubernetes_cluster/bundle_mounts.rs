//! The bundles of the Job of a derived operation.

use kubeon_api::{ClusterOperation, KubernetesCluster, KubernetesClusterSpec, Version};
use kubeon_render::job::Mount;

use super::cluster_action::ClusterAction;
use super::history;
use super::object_access::running_version;
use crate::names::DERIVED_UID_LABEL;
use crate::order;
use crate::view::View;

/// The mounts of the bundles; none if the installation names no image of them.
pub(super) fn of_job(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    spec: &KubernetesClusterSpec,
) -> Vec<Mount> {
    let Some(image) = &s.settings.bundle_image else { return Vec::new() };
    let version =
        spec.cluster.kube_version.map_or_else(|| s.settings.default_version.clone(), |v| v.to_string());
    let beside = version_beside(s, object, operation, spec);
    let beside = beside.map(|version| Mount::bundle_in_use(image, &version.to_string()));
    [Mount::bundle(image, &version)].into_iter().chain(beside).collect()
}

/// The version of the other bundle that the Job needs. The engine tries a new minor version with the programs of both versions. It
/// also completes an upgrade that cannot go back while it changes hosts.
fn version_beside(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    spec: &KubernetesClusterSpec,
) -> Option<Version> {
    let own = spec.cluster.kube_version?;
    match ClusterAction::of(operation)? {
        ClusterAction::Update => {
            let other = |before: &Version| (own.major, own.minor) != (before.major, before.minor);
            running_version(object).filter(other)
        }
        ClusterAction::ScaleUp | ClusterAction::ScaleDown => {
            let mut mine = s.operations.clone();
            mine.retain(|other| derived_from(other) == object.metadata.uid.as_ref());
            order::queue(&mut mine);
            history::version_of_failed_upgrade(&mine, own)
        }
        _ => None,
    }
}

/// The UID of the object from which an operation was derived.
pub(super) fn derived_from(operation: &ClusterOperation) -> Option<&String> {
    operation.metadata.labels.as_ref()?.get(DERIVED_UID_LABEL)
}
