//! A plan that only puts the parts of a bundle onto hosts, so that a later one, for example in a maintenance window, does not wait for them.

use std::collections::BTreeSet;

use kubeon_wire::Op;

use crate::output::Plan;
use crate::step_id::StepId;

impl Plan {
    /// The steps that put parts onto hosts, and the steps that those need. None of them starts, stops or changes a program.
    pub(crate) fn parts_only(mut self) -> Self {
        let mut kept: BTreeSet<StepId> = BTreeSet::new();
        // A step comes after everything that it needs.
        for step in self.steps.iter().rev() {
            if matches!(step.op, Op::Part { .. }) || kept.contains(&step.id) {
                kept.insert(step.id.clone());
                kept.extend(step.needs.iter().cloned());
            }
        }
        self.steps.retain(|step| kept.contains(&step.id));
        self.rolling.clear();
        self.waiting.clear();
        self.continues = false;
        self
    }
}
