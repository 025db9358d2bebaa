//! The hint that the keys of a cluster are being replaced, after the result of other commands.

use kubeon_api::{ClusterKeys, ClusterName};

use crate::context::Context;

/// Says that a rotation is open, and how to continue it.
pub(super) fn mention_open_rotation(context: &Context<'_>, name: &ClusterName, keys: ClusterKeys) {
    if let Some(phase) = keys.rotation() {
        let command = format!("kubeon certs rotate {name}");
        context
            .output
            .info(&format!("{name}  its keys are being replaced (phase {phase}): continue with {command}"));
    }
}
