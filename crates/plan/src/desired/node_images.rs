//! The images that a node imports. A kubelet needs that of the namespaces of pods. That of CoreDNS is not in its way: it is imported
//! while the node becomes Ready, and before flannel lets the first pod start.

use kubeon_wire::Op;

use super::join_stage::{image_id, kubelet_id, runtime_id};
use super::prepare::{COREDNS, images};
use super::step::{DesiredStep, image_part_id};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// The imports that come before the kubelet.
pub(super) fn before_kubelet(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
) -> impl Iterator<Item = DesiredStep> {
    let waits = waits_for_kubelet(context, host);
    let images = images(&host.role, context.spec().settings.deploy_mode);
    images.filter(move |role| !waits || *role != COREDNS).map(|role| import(context, host, role))
}

/// The import that comes after the kubelet of a new node.
pub(super) fn after_kubelet(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let waits = waits_for_kubelet(context, host);
    waits.then(|| import(context, host, COREDNS).needs([kubelet_id(host)]))
}

/// The import before the first pod of a new node, for the step `flannel`, which lets it start.
pub(super) fn before_pods(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    flannel: &StepId,
) -> Option<StepId> {
    (may_wait(context, host) && !host.has_executed(flannel)).then(|| image_id(COREDNS, host))
}

fn waits_for_kubelet(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    may_wait(context, host) && !host.has_executed(&kubelet_id(host))
}

/// Whether no pod starts on a new node before flannel.
fn may_wait(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    context.runs_flannel() && !context.runs_static_pods() && !context.takes_over(host)
}

fn import(context: &PlanContext<'_>, host: &ObservedHost<'_>, role: &'static str) -> DesiredStep {
    let image = &context.artifacts(host).images[role];
    let op = Op::Image { name: image.name.clone(), part: image.part.digest.clone() };
    DesiredStep::new(host, image_id(role, host), op)
        .title(format!("import {}", image.name))
        .because("containerd does not have it")
        .within(600)
        .needs([image_part_id(role, host), runtime_id(host)])
}
