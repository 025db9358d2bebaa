//! Puts every step after the steps that it needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::desired::step::DesiredStep;
use crate::output::Step;
use crate::step_id::StepId;

/// A step with the steps that come before it.
pub(crate) trait Ordered {
    fn id(&self) -> &StepId;
    fn needs(&self) -> &[StepId];
}

impl Ordered for Step {
    fn id(&self) -> &StepId {
        &self.id
    }

    fn needs(&self) -> &[StepId] {
        &self.needs
    }
}

impl Ordered for DesiredStep {
    fn id(&self) -> &StepId {
        &self.id
    }

    fn needs(&self) -> &[StepId] {
        &self.needs
    }
}

/// Sorts the steps, and changes their order no more than necessary. Steps in a cycle come last; the lint `order` refuses
/// them.
pub(crate) fn by_needs<S: Ordered>(steps: Vec<S>) -> Vec<S> {
    let order = order(&steps);
    let mut steps: Vec<Option<S>> = steps.into_iter().map(Some).collect();
    let sorted: Vec<S> = order.into_iter().filter_map(|index| steps[index].take()).collect();
    sorted.into_iter().chain(steps.into_iter().flatten()).collect()
}

fn order<S: Ordered>(steps: &[S]) -> Vec<usize> {
    let indexes: HashMap<&StepId, usize> =
        steps.iter().enumerate().map(|(index, step)| (step.id(), index)).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    let mut open = vec![0_usize; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        for need in step.needs().iter().filter_map(|need| indexes.get(need)) {
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

#[cfg(test)]
mod tests {
    use kubeon_wire::Op;

    use super::*;

    #[test]
    fn a_step_comes_after_what_it_needs_and_otherwise_stays() {
        let step = |id: &str, needs: &[&str]| {
            let op = Op::Await { checks: Vec::new() };
            let step = DesiredStep::on("10.0.0.1".parse().unwrap(), id.parse().unwrap(), op);
            step.needs(needs.iter().map(|need| need.parse().unwrap()))
        };
        let steps = vec![
            step("etcd/member@h1", &["join/kubelet@h1"]),
            step("control/keys@h1", &[]),
            step("join/kubelet@h1", &["control/keys@h1"]),
            step("join/ready@h1", &["etcd/member@h1"]),
        ];
        let sorted: Vec<String> = by_needs(steps).iter().map(|step| step.id.to_string()).collect();
        assert_eq!(sorted, ["control/keys@h1", "join/kubelet@h1", "etcd/member@h1", "join/ready@h1"]);
    }
}
