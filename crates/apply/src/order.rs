//! Decides which steps may start: it tracks the needs of the steps and the free capacity of each host.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kubeon_api::HostAddress;
use kubeon_plan::{Step, StepId};
use kubeon_wire::Op;

/// The order of a run. A step is identified by its index in the plan.
pub(crate) struct Order<'a> {
    steps: &'a [Step],
    indexes: HashMap<&'a StepId, usize>,
    /// For each step, the number of needs that are not done yet.
    open_needs: Vec<usize>,
    /// For each step, the steps that need it.
    followers: Vec<Vec<usize>>,
    /// Steps that need a step which is not in the plan, with this need.
    dangling: Vec<(usize, &'a StepId)>,
    phase: Vec<Phase>,
    queues: BTreeMap<HostAddress, HostQueue>,
    /// Hosts on which a step may have become ready to start.
    changed_hosts: BTreeSet<HostAddress>,
    capacity: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Settled,
}

/// The ready and running steps of one host. Parts share the input stream of the session, so only one is sent
/// at a time. The next one follows as soon as its bytes have arrived: the host unpacks it meanwhile.
#[derive(Default)]
struct HostQueue {
    open: bool,
    /// Every step of the host, in plan order.
    all: Vec<usize>,
    /// Steps that are ready and wait for capacity.
    steps: BTreeSet<usize>,
    /// Parts that are ready.
    parts: BTreeSet<usize>,
    running_steps: usize,
    /// The part whose bytes are being sent.
    arriving: Option<usize>,
}

impl<'a> Order<'a> {
    /// Orders the steps. At most `capacity` of them run in parallel on one host, in addition to one part. A
    /// step that needs a step which is not in the plan never starts: see [`Order::dangling`].
    pub(crate) fn new(steps: &'a [Step], capacity: usize) -> Self {
        let indexes: HashMap<&StepId, usize> =
            steps.iter().enumerate().map(|(index, step)| (&step.id, index)).collect();
        let mut followers = vec![Vec::new(); steps.len()];
        let mut open_needs = vec![0; steps.len()];
        let mut dangling = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let needs: BTreeSet<&StepId> = step.needs.iter().collect();
            open_needs[index] = needs.len();
            for need in needs {
                match indexes.get(need) {
                    Some(before) => followers[*before].push(index),
                    None => dangling.push((index, need)),
                }
            }
        }
        let mut queues: BTreeMap<HostAddress, HostQueue> = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            queues.entry(step.host).or_default().all.push(index);
        }
        let phase = vec![Phase::Waiting; steps.len()];
        let changed_hosts = BTreeSet::new();
        let mut order =
            Self { steps, indexes, open_needs, followers, dangling, phase, queues, changed_hosts, capacity };
        for index in 0..steps.len() {
            if order.open_needs[index] == 0 {
                order.ready(index);
            }
        }
        order
    }

    /// The steps that need a step which is not in the plan, each with the first such need.
    pub(crate) fn dangling(&self) -> Vec<(usize, &'a StepId)> {
        let mut dangling = self.dangling.clone();
        dangling.dedup_by_key(|(index, _)| *index);
        dangling
    }

    /// The hosts that have steps.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = HostAddress> {
        self.queues.keys().copied()
    }

    /// Records that the session with the host is open: its steps may start.
    pub(crate) fn open(&mut self, host: HostAddress) {
        if let Some(queue) = self.queues.get_mut(&host) {
            queue.open = true;
            self.changed_hosts.insert(host);
        }
    }

    /// Takes every step that may start now, in plan order on each host. They count as running until they are
    /// done or failed.
    pub(crate) fn start(&mut self) -> Vec<usize> {
        let mut started = Vec::new();
        for host in std::mem::take(&mut self.changed_hosts) {
            let Some(queue) = self.queues.get_mut(&host) else { continue };
            while let Some(index) = queue.take(self.capacity) {
                self.phase[index] = Phase::Running;
                started.push(index);
            }
        }
        started
    }

    /// Records that the bytes of a part have arrived: those of the next one may be sent. Returns the index of its step.
    pub(crate) fn received(&mut self, step: &StepId) -> Option<usize> {
        let index = *self.indexes.get(step)?;
        let host = self.steps[index].host;
        if let Some(queue) = self.queues.get_mut(&host)
            && queue.arriving == Some(index)
        {
            queue.arriving = None;
            self.changed_hosts.insert(host);
        }
        Some(index)
    }

    /// Records that the step is done. Steps whose last open need it was become ready.
    pub(crate) fn done(&mut self, index: usize) {
        if !self.settle(index) {
            return;
        }
        for follower in self.followers[index].clone() {
            self.open_needs[follower] -= 1;
            if self.open_needs[follower] == 0 {
                self.ready(follower);
            }
        }
    }

    /// Records that the step failed. Returns the steps that need it, directly or through others; they are
    /// settled too.
    pub(crate) fn failed(&mut self, index: usize) -> Vec<usize> {
        self.settle(index);
        let mut skipped = Vec::new();
        let mut open = self.followers[index].clone();
        while let Some(next) = open.pop() {
            // A running or settled step had all its needs done, or was skipped before with its followers.
            if self.phase[next] == Phase::Waiting {
                self.settle(next);
                skipped.push(next);
                open.extend(&self.followers[next]);
            }
        }
        skipped.sort_unstable();
        skipped
    }

    /// Settles the steps of the host that have not started, and returns them in plan order.
    pub(crate) fn give_up(&mut self, host: HostAddress) -> Vec<usize> {
        let mut given_up = self.queues.get(&host).map(|queue| queue.all.clone()).unwrap_or_default();
        given_up.retain(|index| self.phase[*index] == Phase::Waiting);
        for index in &given_up {
            self.settle(*index);
        }
        given_up
    }

    /// The steps that have not started.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        (0..self.steps.len()).filter(|index| self.phase[*index] == Phase::Waiting).collect()
    }

    /// The running steps.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.steps.len()).filter(|index| self.phase[*index] == Phase::Running).collect()
    }

    fn ready(&mut self, index: usize) {
        let step = &self.steps[index];
        if self.phase[index] != Phase::Waiting {
            return;
        }
        let queue = self.queues.entry(step.host).or_default();
        let ready = if is_part(step) { &mut queue.parts } else { &mut queue.steps };
        ready.insert(index);
        self.changed_hosts.insert(step.host);
    }

    /// Marks the step as settled. Returns whether it was not settled before.
    fn settle(&mut self, index: usize) -> bool {
        let step = &self.steps[index];
        let before = std::mem::replace(&mut self.phase[index], Phase::Settled);
        let queue = self.queues.entry(step.host).or_default();
        match before {
            Phase::Running if is_part(step) => {
                if queue.arriving == Some(index) {
                    queue.arriving = None;
                }
            }
            Phase::Running => queue.running_steps -= 1,
            Phase::Waiting | Phase::Settled => {
                queue.parts.remove(&index);
                queue.steps.remove(&index);
            }
        }
        self.changed_hosts.insert(step.host);
        before != Phase::Settled
    }
}

impl HostQueue {
    /// Takes the next step that may start.
    fn take(&mut self, capacity: usize) -> Option<usize> {
        if !self.open {
            return None;
        }
        if self.arriving.is_none()
            && let Some(part) = self.parts.pop_first()
        {
            self.arriving = Some(part);
            return Some(part);
        }
        if self.running_steps >= capacity {
            return None;
        }
        let step = self.steps.pop_first()?;
        self.running_steps += 1;
        Some(step)
    }
}

fn is_part(step: &Step) -> bool {
    matches!(step.op, Op::Part { .. })
}

#[cfg(test)]
mod tests {
    use kubeon_testkit::{plan_of, step, step_id};

    use super::*;

    #[test]
    fn the_next_part_is_sent_when_the_bytes_of_the_one_before_have_arrived() {
        let host = "10.0.0.1";
        let plan = plan_of(["first", "second", "third"].map(|id| step(id, host).unpacks(id)));
        let mut order = Order::new(&plan.steps, 1);
        order.open(plan.steps[0].host);
        assert_eq!(order.start(), [0]);
        assert_eq!(order.received(&step_id("first")), Some(0));
        assert_eq!(order.start(), [1]);
        order.done(0);
        assert!(order.start().is_empty(), "the second one is being sent");
        // Not every host reports it.
        order.done(1);
        assert_eq!(order.start(), [2]);
        assert_eq!(order.received(&step_id("second")), Some(1));
        assert!(order.start().is_empty());
    }
}
