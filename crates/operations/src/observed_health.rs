//! The health of a business cluster.

/// The health of a business cluster, as the operator observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedHealth {
    /// No API server answers; the text says why.
    Unreachable(String),
    /// An API server answers and is ready.
    Serving {
        /// The number of nodes.
        nodes: usize,
        /// The names of the nodes that are not ready, sorted.
        not_ready: Vec<String>,
    },
}
