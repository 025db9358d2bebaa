//! What derived operations do.

use kubeon_api::{ClusterOperation, Operation};

/// What a derived operation does. The words are contract B's, 1.5: by them clients ask for it, they stand in the operation's
/// spec, and its Job is told them in `OPERATION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterAction {
    /// Makes the cluster.
    Create,
    /// Adds workers.
    ScaleUp,
    /// Removes workers.
    ScaleDown,
    /// Takes the cluster down.
    Terminate,
}

impl ClusterAction {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Create, Self::ScaleUp, Self::ScaleDown, Self::Terminate];

    /// What this operation does; `None` when a person wrote another word into it.
    #[must_use]
    pub fn of(operation: &ClusterOperation) -> Option<Self> {
        Self::named(&operation.spec.main.action)
    }

    /// What the word stands for.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }

    /// What clients ask for it by.
    #[must_use]
    pub fn word(self) -> Operation {
        match self {
            Self::Create => Operation::Creating,
            Self::ScaleUp => Operation::ScalingUp,
            Self::ScaleDown => Operation::ScalingDown,
            Self::Terminate => Operation::Terminating,
        }
    }

    /// The same as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.word().as_str()
    }

    /// What names of Jobs begin with.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::ScaleUp => "scale-up",
            Self::ScaleDown => "scale-down",
            Self::Terminate => "delete",
        }
    }
}
