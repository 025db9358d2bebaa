//! The input of the rules: the desired and the existing cluster.

use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster, Snapshots};
use kubeon_api::{Operation, Version};

use crate::lookup::ObjectName;

/// The desired cluster.
pub(crate) struct Desired<'a> {
    pub(crate) name: ObjectName,
    /// The path of its fields: `spec.cluster`, or `spec` in the older form.
    pub(crate) root: &'static str,
    pub(crate) cluster: &'a DeclaredCluster,
    /// Where its snapshots go.
    pub(crate) snapshots: Option<&'a Snapshots>,
    /// The operation that the change requests in the annotation, if the request is new.
    pub(crate) word: Option<Operation>,
    /// Whether its annotation asks to return to a snapshot, in this change or before.
    pub(crate) rolls_back: bool,
    /// Whether its annotation asks for an upgrade or a change of settings, or one failed.
    pub(crate) upgrades: bool,
    /// Whether it is being deleted.
    pub(crate) is_being_deleted: bool,
}

impl Desired<'_> {
    pub(crate) fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.root)
    }
}

/// The existing cluster.
pub(crate) struct Existing {
    /// The declared cluster before this change.
    pub(crate) declared: DeclaredCluster,
    /// The built cluster: the last applied spec, or the declared one while it is being built. `None` when
    /// nothing was ever built.
    pub(crate) built: Option<DeclaredCluster>,
    /// The version that its masters run, if it is known.
    pub(crate) version: Option<Version>,
}

impl Existing {
    /// The changes of the built cluster; `None` when nothing was built.
    pub(super) fn changes(&self, desired: &DeclaredCluster) -> Option<Changes> {
        Some(desired.changes(self.built.as_ref()?, self.version))
    }
}
