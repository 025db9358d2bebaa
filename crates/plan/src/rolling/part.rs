//! The parts of a host that are interrupted apart. When kubelets change to another minor version, the control planes of all masters
//! come first: no kubelet may be newer than an API server.

use kubeon_api::HostName;

use crate::desired::{control, etcd, verify};
use crate::output::{RollingPart, Step};
use crate::step_id::StepId;

/// Whether the step belongs to etcd or to the control plane of a host.
pub(crate) fn is_control_plane(step: &Step) -> bool {
    step.stage == etcd::STAGE || step.stage == control::STAGE || verify::is_control_plane_proof(&step.id)
}

impl RollingPart {
    /// Whether it contains the step.
    pub(crate) fn contains(self, step: &Step) -> bool {
        match self {
            Self::All => true,
            Self::ControlPlane => is_control_plane(step),
            Self::Node => !is_control_plane(step),
        }
    }

    /// Whether it contains the control plane and the node of a host, in the form of the answers of [`is_control_plane`].
    pub(super) fn sides(self) -> &'static [bool] {
        match self {
            Self::All => &[true, false],
            Self::ControlPlane => &[true],
            Self::Node => &[false],
        }
    }

    /// The proof that it works again on a host.
    pub(crate) fn proof_id(self, node: &HostName) -> StepId {
        match self {
            Self::All | Self::Node => verify::node_id(node),
            Self::ControlPlane => verify::control_plane_id(node),
        }
    }
}
