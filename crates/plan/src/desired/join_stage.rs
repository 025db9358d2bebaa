//! The name of stage `join`, and the steps that others name.

use kubeon_api::HostName;

use crate::context::ObservedHost;
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::new("join");
pub(super) const KUBELET: &str = "kubelet";
const RUNTIME: &str = "runtime";

/// The step that writes the keys of a host's kubelet.
pub(crate) fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "keys")
}

/// The step that imports the image of the role into containerd.
pub(crate) fn image_id(role: &str, host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, format!("image-{role}"))
}

/// The step that runs the container runtime of a host.
pub(crate) fn runtime_id(host: &ObservedHost<'_>) -> StepId {
    runtime_of(&host.name)
}

/// The step that runs the container runtime of a node.
pub(crate) fn runtime_of(node: &HostName) -> StepId {
    StepId::new(STAGE, RUNTIME, node)
}

/// The step that runs the kubelet of a host.
pub(crate) fn kubelet_id(host: &ObservedHost<'_>) -> StepId {
    kubelet_of(&host.name)
}

/// The step that runs the kubelet of a node.
pub(crate) fn kubelet_of(node: &HostName) -> StepId {
    StepId::new(STAGE, KUBELET, node)
}
