//! The deployment mode of the control plane and of haproxy: services of systemd (`binary`), or static pods (`container`). The
//! stages are the same for both: this module says what differs.
//!
//! A kubelet runs static pods before it reaches an API server. So on a host whose kubelet does not run, the kubelet comes first
//! and the pods after it. A kubelet that runs changes after the API server of its host, as in the other mode: no kubelet may be
//! newer than its API server.

use kubeon_api::Version;
use kubeon_render::paths::current;
use kubeon_render::static_pods::PodHost;
use kubeon_wire::unit_of_program;

use super::control_plane;
use super::join_stage::{image_id, kubelet_id};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// The image of a member of etcd.
pub(crate) const ETCD: &str = "etcd";
/// The image of haproxy.
pub(crate) const HAPROXY: &str = "haproxy";

/// The name of the unit that runs a program of the control plane, or haproxy.
pub(crate) fn unit_name(context: &PlanContext<'_>, program: &str) -> String {
    unit_of_program(program, context.runs_static_pods())
}

/// The link to the version of a program that its unit must be started again for. A pod has the version in its text.
pub(super) fn watched_program(context: &PlanContext<'_>, part: &str) -> Option<String> {
    (!context.runs_static_pods()).then(|| current(part))
}

/// Whether the kubelet of a host must run before its static pods, and before an API server.
pub(super) fn kubelet_is_first(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    context.runs_static_pods() && !host.runs(&kubelet_id(host))
}

/// The steps after which the pod with this image can run on a host; none for a service.
pub(super) fn before_pod(context: &PlanContext<'_>, host: &ObservedHost<'_>, image: &str) -> Vec<StepId> {
    if !context.runs_static_pods() {
        return Vec::new();
    }
    let kubelet = kubelet_is_first(context, host).then(|| kubelet_id(host));
    [image_id(image, host)].into_iter().chain(kubelet).collect()
}

/// The same for a pod that kubeadm makes.
pub(super) fn before_kubeadm(context: &PlanContext<'_>, host: &ObservedHost<'_>, image: &str) -> Vec<StepId> {
    let kubeadm = context.runs_static_pods().then(|| control_plane::choose_id(host));
    before_pod(context, host, image).into_iter().chain(kubeadm).collect()
}

/// The host of a pod whose program has this version.
pub(super) fn pod_host<'h>(host: &'h ObservedHost<'_>, version: Version) -> PodHost<'h> {
    PodHost { node: host.name.as_str(), address: host.ip(), version }
}

/// The tag of an image, such as `3.6.8-0`.
pub(super) fn tag(image: &str) -> &str {
    image.rsplit_once(':').map_or("latest", |(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_an_image_follows_its_last_colon() {
        assert_eq!(tag("registry.k8s.io/etcd:3.6.8-0"), "3.6.8-0");
        assert_eq!(tag("127.0.0.1:5000/etcd:3.6.8-0"), "3.6.8-0");
    }
}
