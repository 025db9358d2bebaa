//! The name of stage `join`, and the step that its parts share.

use crate::context::ObservedHost;
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::new("join");

/// The step that writes the keys of a host's kubelet.
pub(crate) fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "keys")
}
