//! Pods that were lost with their node, or evicted, or preempted. The Job of kubeon's own work starts another one, which
//! continues; the Job of a playbook or a script fails.

use k8s_openapi::api::batch::v1::Job;
use kubeon_api::ClusterOperation;

use super::job_suspension::StopReason;
use super::runner_pod::{self, is_lost, pod_name};
use super::{OperationChanges, archive, notice, status, status_write};
use crate::job_state;
use crate::view::View;

/// How many pods of one operation may be lost. A runner that needs more memory than its node has would be evicted for ever.
const MOST_LOST: usize = 3;

/// Records lost pods in the status, before their objects vanish; `None` when there is no new one.
pub(super) fn record(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<OperationChanges> {
    if !replaces_lost_pods(job) {
        return None;
    }
    let mut new = status(operation);
    let mut progress = OperationChanges::default();
    let losses = s.pods_of(job).filter_map(|pod| Some((pod_name(pod), job_state::loss(pod)?)));
    for (name, cause) in losses {
        if new.lost_pods.iter().any(|lost| lost == name) {
            continue;
        }
        new.lost_pods.push(name.to_owned());
        let text = format!("pod {name} was lost, and another one continues: {cause}");
        progress.changes.notices.push(notice(operation, true, "PodLost", text));
    }
    if progress.changes.notices.is_empty() {
        return None;
    }
    new.runner_pod = runner_pod::uid(s, operation, job);
    let write = status_write(operation, &mut new, s.now, "a pod was lost")?;
    progress.changes.stages.push(vec![write]);
    Some(progress)
}

fn replaces_lost_pods(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.pod_failure_policy.is_some())
}

/// Why the Job is stopped: too many pods were lost, or it started a second pod though none was.
pub(super) fn stop_reason(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<StopReason> {
    let lost = operation.status.as_ref().map(|status| status.lost_pods.as_slice()).unwrap_or_default();
    if lost.len() > MOST_LOST {
        return Some(("PodsLost", format!("{} of its pods were lost: {}", lost.len(), lost.join(", "))));
    }
    let others: Vec<_> = s.pods_of(job).filter(|pod| !is_lost(operation, pod)).collect();
    let mut names: Vec<_> = others.iter().map(|pod| pod_name(pod)).collect();
    names.sort_unstable();
    let has_second_pod = names.len() > 1 && others.iter().any(|pod| job_state::is_running(pod));
    has_second_pod.then(|| ("SecondPod", format!("its Job started a second pod ({})", names.join(", "))))
}

/// Removes the log that a pod left which was stopped, once another pod has begun its own log with it. `None` while there is
/// nothing to remove.
pub(super) fn forget_log(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<OperationChanges> {
    let lost = operation.status.as_ref().is_some_and(|status| !status.lost_pods.is_empty());
    let writer = s.objects.meta(&archive::log_of(job))?.pod;
    let mut running = s.pods_of(job).filter(|pod| job_state::is_running(pod) && job_state::has_log(pod));
    let continues = running.any(|pod| !is_lost(operation, pod) && writer.as_deref() != Some(pod_name(pod)));
    let write = archive::forgotten_log(s, job).filter(|_| lost && continues)?;
    let mut progress = OperationChanges::default();
    progress.changes.stages.push(vec![write]);
    progress.shown = Some((0, super::shown(operation, &status(operation))));
    Some(progress)
}
