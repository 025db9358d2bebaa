//! The pod whose runner writes the status of its operation: one that is not lost. Policies compare the UID in its token with the
//! recorded one.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kubeon_api::ClusterOperation;
use kubeon_render::job::RUNNER_ACCOUNT;

use crate::job_state;
use crate::view::View;

pub(super) fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Whether the pod is lost. Its object vanishes soon, except after an eviction by the kubelet.
pub(super) fn is_lost(operation: &ClusterOperation, pod: &Pod) -> bool {
    let mut recorded = operation.status.iter().flat_map(|status| &status.lost_pods);
    recorded.any(|lost| lost == pod_name(pod)) || job_state::loss(pod).is_some()
}

/// The UID of the pod of a Job that may write the status of its operation: the recorded one while that pod runs, so that no other pod
/// takes its place; else that of a pod which runs. `None` when no pod runs, or when the Job is not one of a runner.
pub(super) fn uid(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<String> {
    if !has_runner(job) {
        return None;
    }
    let runs = |pod: &&Pod| job_state::is_running(pod) && !is_lost(operation, pod);
    let recorded = operation.status.as_ref().and_then(|status| status.runner_pod.as_ref());
    let is_recorded = |pod: &Pod| recorded.is_some() && pod.metadata.uid.as_ref() == recorded;
    if s.pods_of(job).filter(runs).any(is_recorded) {
        return recorded.cloned();
    }
    job_state::newest(s.pods_of(job).filter(runs))?.metadata.uid.clone()
}

/// Whether the pods of the Job have the account of runners.
fn has_runner(job: &Job) -> bool {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.and_then(|pod| pod.service_account_name.as_deref()) == Some(RUNNER_ACCOUNT)
}
