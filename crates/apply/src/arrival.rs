//! Which parts of a run have not arrived yet.

use std::collections::BTreeSet;

use kubeon_plan::Step;
use kubeon_wire::Op;
use tokio::time::Instant;

use crate::RunEvent;
use crate::host_connection::millis;

/// The parts of a run.
pub(crate) struct PartsArrival {
    start: Instant,
    /// The indexes of the steps whose bytes have not arrived.
    missing: BTreeSet<usize>,
    parts: usize,
    bytes: u64,
}

impl PartsArrival {
    /// No part has arrived.
    pub(crate) fn new(steps: &[Step]) -> Self {
        let (mut missing, mut bytes) = (BTreeSet::new(), 0);
        for (index, step) in steps.iter().enumerate() {
            if let Op::Part { size, .. } = &step.op {
                missing.insert(index);
                bytes += size;
            }
        }
        Self { start: Instant::now(), parts: missing.len(), missing, bytes }
    }

    /// Records that a step is done, or that its bytes arrived. Returns the event when this is the last part. If the step of a
    /// part fails, the event never comes.
    pub(crate) fn arrived(&mut self, index: usize) -> Option<RunEvent> {
        let is_last = self.missing.remove(&index) && self.missing.is_empty();
        is_last.then(|| RunEvent::PartsReceived {
            parts: self.parts,
            bytes: self.bytes,
            milliseconds: millis(self.start.elapsed()),
        })
    }
}
