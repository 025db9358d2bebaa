//! What the rules compare: a cluster as it is to be, and as it stood.

use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster};
use kubeon_api::{Operation, Version};

use crate::lookup::ObjectName;

/// A cluster, as it is to be.
pub(crate) struct Wanted<'a> {
    pub(crate) name: ObjectName,
    /// Where its fields stand: `spec.cluster`, or `spec` in the older form.
    pub(crate) root: &'static str,
    pub(crate) cluster: &'a DeclaredCluster,
    /// The operation that the change requests in the annotation, if the request is new.
    pub(crate) word: Option<Operation>,
    /// Whether it is being deleted.
    pub(crate) leaves: bool,
}

impl Wanted<'_> {
    pub(crate) fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.root)
    }
}

/// A cluster, as it stood.
pub(crate) struct Stood {
    /// What was declared before this change.
    pub(crate) declared: DeclaredCluster,
    /// What the cluster is built as: the spec that was last applied, or the declared one while it is being built.
    /// Nothing while nothing was ever built.
    pub(crate) built: Option<DeclaredCluster>,
    /// The version that its masters run, where it was seen.
    pub(crate) version: Option<Version>,
}

impl Stood {
    /// What a declaration changes about what is built, if anything is.
    pub(super) fn changes(&self, wanted: &DeclaredCluster) -> Option<Changes> {
        Some(wanted.changes(self.built.as_ref()?, self.version))
    }
}
