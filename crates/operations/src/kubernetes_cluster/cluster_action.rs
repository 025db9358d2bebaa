//! The actions of derived operations.

use kubeon_api::{ClusterOperation, Operation};

/// The action of a derived operation. The words are those of contract B, 1.5. Clients use them in the
/// annotation, and they are in the spec of the operation and in the variable `OPERATION` of its Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterAction {
    /// Creates the cluster.
    Create,
    /// Adds hosts. New masters may stand in for others, which it removes.
    ScaleUp,
    /// Removes hosts.
    ScaleDown,
    /// Changes the version or settings.
    Update,
    /// Returns the cluster to a snapshot of an older version.
    Rollback,
    /// Renews the kubeconfigs, and certificates whose renewal failed.
    Renew,
    /// Does again what is missing on the hosts.
    Repair,
    /// Writes a snapshot of etcd to the object store.
    Snapshot,
    /// Takes the cluster down.
    Terminate,
}

impl ClusterAction {
    /// All actions.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::ScaleUp,
        Self::ScaleDown,
        Self::Update,
        Self::Rollback,
        Self::Renew,
        Self::Repair,
        Self::Snapshot,
        Self::Terminate,
    ];

    /// The action of this operation; `None` when a user wrote another word into its spec.
    #[must_use]
    pub fn of(operation: &ClusterOperation) -> Option<Self> {
        Self::named(&operation.spec.main.action)
    }

    /// The action with this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }

    /// The word in the annotation of clients.
    #[must_use]
    pub fn word(self) -> Operation {
        match self {
            Self::Create => Operation::Creating,
            Self::ScaleUp => Operation::ScalingUp,
            Self::ScaleDown => Operation::ScalingDown,
            Self::Update => Operation::Updating,
            Self::Rollback => Operation::Rollbacking,
            Self::Renew => Operation::Renewing,
            Self::Repair => Operation::Repairing,
            Self::Snapshot => Operation::Snapshotting,
            Self::Terminate => Operation::Terminating,
        }
    }

    /// The word as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.word().as_str()
    }

    /// The prefix of the names of Jobs.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::ScaleUp => "scale-up",
            Self::ScaleDown => "scale-down",
            Self::Update => "update",
            Self::Rollback => "rollback",
            Self::Renew => "renew",
            Self::Repair => "repair",
            Self::Snapshot => "snapshot",
            Self::Terminate => "delete",
        }
    }
}
