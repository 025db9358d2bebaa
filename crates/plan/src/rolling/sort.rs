//! Puts every step after the steps that it needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::output::Step;
use crate::step_id::StepId;

/// Sorts the steps, and changes their order no more than necessary. Steps in a cycle come last; the lint `order` refuses
/// them.
pub(super) fn by_needs(steps: Vec<Step>) -> Vec<Step> {
    let order = order(&steps);
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    let sorted: Vec<Step> = order.into_iter().filter_map(|index| steps[index].take()).collect();
    sorted.into_iter().chain(steps.into_iter().flatten()).collect()
}

fn order(steps: &[Step]) -> Vec<usize> {
    let indexes: HashMap<&StepId, usize> =
        steps.iter().enumerate().map(|(index, step)| (&step.id, index)).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    let mut open = vec![0_usize; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        for need in step.needs.iter().filter_map(|need| indexes.get(need)) {
            dependents[*need].push(index);
            open[index] += 1;
        }
    }
    let free = (0..steps.len()).filter(|index| open[*index] == 0);
    let mut ready: BinaryHeap<Reverse<usize>> = free.map(Reverse).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for dependent in &dependents[index] {
            open[*dependent] -= 1;
            if open[*dependent] == 0 {
                ready.push(Reverse(*dependent));
            }
        }
    }
    order
}
