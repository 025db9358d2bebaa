//! Decides which steps may start: it tracks the needs of the steps and the free capacity of each host.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kubeon_api::HostAddress;
use kubeon_plan::{Step, StepId};
use kubeon_wire::Op;

/// The order of a run. A step is identified by its index in the plan.
pub(crate) struct Order<'a> {
    steps: &'a [Step],
    /// For each step, the number of needs that are not done yet.
    waits: Vec<usize>,
    /// For each step, the steps that need it.
    followers: Vec<Vec<usize>>,
    dangling: Vec<(usize, &'a StepId)>,
    phase: Vec<Phase>,
    rooms: BTreeMap<HostAddress, Room>,
    /// Hosts on which a step may have become ready to start.
    stirred: BTreeSet<HostAddress>,
    room_for: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Settled,
}

/// The ready and running steps of one host. Parts share the input stream of the session, so only one is sent at a time.
#[derive(Default)]
struct Room {
    open: bool,
    /// Every step of the host, in plan order.
    all: Vec<usize>,
    /// Steps that are ready and wait for capacity.
    steps: BTreeSet<usize>,
    /// Parts that are ready.
    parts: BTreeSet<usize>,
    running_steps: usize,
    part_running: bool,
}

impl<'a> Order<'a> {
    /// Orders the steps. At most `room_for` of them run in parallel on one host, in addition to one part. A step that needs
    /// a step which is not in the plan never starts: see [`Order::dangling`].
    pub(crate) fn new(steps: &'a [Step], room_for: usize) -> Self {
        let places: HashMap<&StepId, usize> =
            steps.iter().enumerate().map(|(place, step)| (&step.id, place)).collect();
        let mut followers = vec![Vec::new(); steps.len()];
        let mut waits = vec![0; steps.len()];
        let mut dangling = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            let needs: BTreeSet<&StepId> = step.needs.iter().collect();
            waits[place] = needs.len();
            for need in needs {
                match places.get(need) {
                    Some(before) => followers[*before].push(place),
                    None => dangling.push((place, need)),
                }
            }
        }
        let mut rooms: BTreeMap<HostAddress, Room> = BTreeMap::new();
        for (place, step) in steps.iter().enumerate() {
            rooms.entry(step.host).or_default().all.push(place);
        }
        let phase = vec![Phase::Waiting; steps.len()];
        let stirred = BTreeSet::new();
        let mut order = Self { steps, waits, followers, dangling, phase, rooms, stirred, room_for };
        for place in 0..steps.len() {
            if order.waits[place] == 0 {
                order.ready(place);
            }
        }
        order
    }

    /// The steps that need a step which is not in the plan, each with the first such need.
    pub(crate) fn dangling(&self) -> Vec<(usize, &'a StepId)> {
        let mut dangling = self.dangling.clone();
        dangling.dedup_by_key(|(place, _)| *place);
        dangling
    }

    /// The hosts that have steps.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = HostAddress> {
        self.rooms.keys().copied()
    }

    /// Records that the session with the host is open: its steps may start.
    pub(crate) fn open(&mut self, host: HostAddress) {
        if let Some(room) = self.rooms.get_mut(&host) {
            room.open = true;
            self.stirred.insert(host);
        }
    }

    /// Takes every step that may start now, in plan order on each host. They count as running until they are done or
    /// failed.
    pub(crate) fn start(&mut self) -> Vec<usize> {
        let mut started = Vec::new();
        for host in std::mem::take(&mut self.stirred) {
            let Some(room) = self.rooms.get_mut(&host) else { continue };
            while let Some(place) = room.take(self.room_for) {
                self.phase[place] = Phase::Running;
                started.push(place);
            }
        }
        started
    }

    /// Records that the step is done. Steps whose last open need it was become ready.
    pub(crate) fn done(&mut self, place: usize) {
        if !self.settle(place) {
            return;
        }
        for follower in self.followers[place].clone() {
            self.waits[follower] -= 1;
            if self.waits[follower] == 0 {
                self.ready(follower);
            }
        }
    }

    /// Records that the step failed. Returns the steps that need it, directly or through others; they are settled too.
    pub(crate) fn failed(&mut self, place: usize) -> Vec<usize> {
        self.settle(place);
        let mut skipped = Vec::new();
        let mut reach = self.followers[place].clone();
        while let Some(next) = reach.pop() {
            // A running or settled step had all its needs done, or was skipped before with its followers.
            if self.phase[next] == Phase::Waiting {
                self.settle(next);
                skipped.push(next);
                reach.extend(&self.followers[next]);
            }
        }
        skipped.sort_unstable();
        skipped
    }

    /// Settles the steps of the host that have not started, and returns them in plan order.
    pub(crate) fn give_up(&mut self, host: HostAddress) -> Vec<usize> {
        let mut given_up = self.rooms.get(&host).map(|room| room.all.clone()).unwrap_or_default();
        given_up.retain(|place| self.phase[*place] == Phase::Waiting);
        for place in &given_up {
            self.settle(*place);
        }
        given_up
    }

    /// The steps that have not started.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        (0..self.steps.len()).filter(|place| self.phase[*place] == Phase::Waiting).collect()
    }

    /// The running steps.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.steps.len()).filter(|place| self.phase[*place] == Phase::Running).collect()
    }

    fn ready(&mut self, place: usize) {
        let step = &self.steps[place];
        if self.phase[place] != Phase::Waiting {
            return;
        }
        let room = self.rooms.entry(step.host).or_default();
        let queue = if is_part(step) { &mut room.parts } else { &mut room.steps };
        queue.insert(place);
        self.stirred.insert(step.host);
    }

    /// Whether it was unsettled before.
    fn settle(&mut self, place: usize) -> bool {
        let step = &self.steps[place];
        let before = std::mem::replace(&mut self.phase[place], Phase::Settled);
        let room = self.rooms.entry(step.host).or_default();
        match before {
            Phase::Running if is_part(step) => room.part_running = false,
            Phase::Running => room.running_steps -= 1,
            Phase::Waiting | Phase::Settled => {
                room.parts.remove(&place);
                room.steps.remove(&place);
            }
        }
        self.stirred.insert(step.host);
        before != Phase::Settled
    }
}

impl Room {
    fn take(&mut self, room_for: usize) -> Option<usize> {
        if !self.open {
            return None;
        }
        if !self.part_running
            && let Some(part) = self.parts.pop_first()
        {
            self.part_running = true;
            return Some(part);
        }
        if self.running_steps >= room_for {
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
