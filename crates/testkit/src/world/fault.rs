//! Faults that a test can order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kubeon_wire::StepFailure;

/// Something that goes wrong, or slowly, once.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The host answers with this failure; nothing happened.
    Fail(StepFailure),
    /// The connection breaks before anything happened.
    BreakBefore,
    /// The connection breaks after all of it happened.
    BreakAfter,
    /// The host never answers.
    Silence,
    /// It takes so long before it begins, and then goes well.
    Slow(Duration),
}

/// The faults that are still to happen, in order.
pub(super) type Faults<K> = BTreeMap<K, VecDeque<Fault>>;
