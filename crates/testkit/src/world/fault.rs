//! Faults that a test can inject.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kubeon_wire::StepFailure;

/// A failure or a delay that occurs once.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The host answers with this failure without executing the step.
    Fail(StepFailure),
    /// The connection breaks before the step is executed.
    BreakBefore,
    /// The connection breaks after the step was executed.
    BreakAfter,
    /// The host never answers.
    Silence,
    /// The step starts after this delay and succeeds.
    Slow(Duration),
}

/// How a host is lost, for ever or for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostLoss {
    /// It loses power: its programs stop.
    Power,
    /// It loses its network: its programs run, and nobody reaches it.
    Network,
}

/// The remaining faults, in order.
pub(super) type Faults<K> = BTreeMap<K, VecDeque<Fault>>;
