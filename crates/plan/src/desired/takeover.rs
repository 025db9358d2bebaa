//! What kubeadm left on the hosts and in the cluster that kubeon takes over, and what would stand in the way of kubeon's programs.

use kubeon_wire::Op;

use super::files;
use super::join_stage::STAGE as JOIN;
use super::step::DesiredStep;
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The file with which the packages of kubeadm add arguments to `kubelet.service`. This one takes the place of theirs.
const ADDITIONS: &str = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf";
/// What kubeon runs itself, and the objects that only kubeadm reads: it would refuse to change the cluster without them.
const OBJECTS: [&str; 4] = [
    "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy",
    "/api/v1/namespaces/kube-system/configmaps/kube-proxy",
    "/api/v1/namespaces/kube-system/configmaps/kubeadm-config",
    "/api/v1/namespaces/kube-system/configmaps/kubelet-config",
];

/// The step before the kubelet of kubeon starts on a host of kubeadm; none on other hosts.
pub(super) fn additions_id(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    context.takes_over(host).then(|| host.id(JOIN, "kubelet-additions"))
}

/// Ends what the packages of kubeadm add to the unit of the kubelet.
pub(super) fn additions(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let text = "# Written by kubeon: kubelet.service has all arguments itself.\n".to_owned();
    let op = Op::Files { files: vec![files::readable(ADDITIONS.to_owned(), text)] };
    additions_id(context, host).map(|id| {
        DesiredStep::new(host, id, op)
            .title("end what kubeadm adds to the unit of the kubelet")
            .because("the kubelet gets its arguments from kubeadm")
    })
}

/// Removes the kube-proxy of kubeadm after that of kubeon runs on every host: until then both write the same rules. `needs` are the
/// steps that start it.
pub(super) fn removal(
    context: &PlanContext<'_>,
    stage: StageName,
    needs: Vec<StepId>,
) -> Option<DesiredStep> {
    if context.intent.taken_over.is_empty() || !context.observes_all_nodes() {
        return None;
    }
    let id = StepId::of_cluster(stage, "remove-kubeadm");
    let op = Op::RemoveObjects { paths: OBJECTS.map(str::to_owned).into(), step: id.to_string() };
    Some(
        DesiredStep::of_cluster(context, id, op)
            .title("remove the kube-proxy and the configuration of kubeadm from the cluster")
            .because("kubeadm made the cluster")
            .needs(needs),
    )
}
