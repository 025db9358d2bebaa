//! A simulated world behind the real ports. It models what the engine can observe and change, with the
//! details that a plan can depend on. The dependencies between programs are modelled: etcd needs a quorum,
//! the API server needs etcd, and a node is Ready when its kubelet reaches an API server.

mod effect;
mod etcd;
mod fault;
mod host;
mod op_effects;
mod pods;
mod ports;
mod programs;
mod render;
mod rules;
mod shared_state;
mod skew;
mod state;

use kubeon_api::{HostAddress, HostRole};
use parking_lot::MutexGuard;

use crate::hosts::{HostBuilder, address};
use crate::plans::step_id;
use crate::text::sha256_like;
pub use fault::{Fault, HostLoss};
pub use ports::{Ports, SENTINEL};
use shared_state::SharedState;
use state::{Recording, State};

/// The world. Clones share the same state.
#[derive(Clone)]
pub struct World(SharedState);

impl World {
    /// A world with the hosts and one process, at the time [`crate::NOW`].
    #[must_use]
    pub fn of(hosts: impl IntoIterator<Item = HostBuilder>) -> Self {
        Self(SharedState::new(State::of(hosts)))
    }

    /// Another world in the same state. Changes of one are no changes of the other.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(SharedState::new(self.lock().clone()))
    }

    /// Records the world after each effect from now on, except for the first ones.
    pub(crate) fn record_after(&self, skip: usize) {
        self.lock().recording = Some(Recording { skip, states: Vec::new() });
    }

    /// Ends the recording. Returns the worlds as they were after each recorded effect, each with a new process.
    pub(crate) fn recorded(&self) -> Vec<Self> {
        let states = self.lock().recording.take().map(|recording| recording.states).unwrap_or_default();
        let worlds = states.into_iter().map(|state| Self(SharedState::new(state)));
        worlds.inspect(Self::restart).collect()
    }

    /// The ports of the current process. They stop working when the process dies.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports { world: self.0.clone(), life: self.lock().life }
    }

    /// All hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostAddress> {
        self.lock().hosts.keys().copied().collect()
    }

    /// Kills the process right after the n-th effect from now. This effect happens, but its call and all
    /// later calls never return. With 0, the process dies immediately.
    pub fn die_after(&self, effects: usize) {
        let mut state = self.lock();
        state.left = Some(effects);
        state.dead |= effects == 0;
        drop(state);
        self.0.notify();
    }

    /// Returns when the process died.
    pub async fn died(&self) {
        let mut changed = self.0.changes();
        while !self.lock().dead {
            // The sender lives in `self`, so this cannot fail.
            drop(changed.changed().await);
        }
    }

    /// Starts a new process. Connections of the dead process are lost; the world is unchanged.
    pub fn restart(&self) {
        let mut state = self.lock();
        state.life += 1;
        state.dead = false;
        state.left = None;
    }

    /// Delays effects by times drawn from the seed, so that parallel steps interleave differently.
    pub fn shuffle(&self, seed: u64) {
        self.lock().random = Some(seed);
    }

    /// The host loses power: its sessions break and its programs stop.
    pub fn cut(&self, host: &str) {
        self.lose(host, HostLoss::Power);
    }

    /// The host loses its network: its sessions break, and nobody reaches it. Its programs run, such as its member of etcd, which the
    /// others do not count, and its kubelet, which reaches no API server but that of its own host.
    pub fn isolate(&self, host: &str) {
        self.lose(host, HostLoss::Network);
    }

    /// Takes a snapshot of the etcd of the only cluster. Members that are restored begin with it.
    ///
    /// # Panics
    /// When there is no cluster or more than one.
    pub fn take_snapshot(&self) {
        let mut state = self.lock();
        assert_eq!(state.clusters.len(), 1, "one cluster");
        state.snapshot = state.clusters.values().next().cloned();
    }

    /// The host is lost.
    pub fn lose(&self, host: &str, loss: HostLoss) {
        self.lock().lose(address(host), loss);
        self.0.notify();
    }

    /// The host is lost right after the n-th effect from now, the first one at the earliest. The process goes on.
    pub fn lose_after(&self, effects: usize, host: &str, loss: HostLoss) {
        self.lock().loss = Some((effects, address(host), loss));
    }

    /// The user declares that the host is lost: what still runs there does not count any more, although nobody can end it.
    pub fn declare_lost(&self, host: &str) {
        self.lock().host_mut(address(host)).declared_lost = true;
    }

    /// Whether the host has power and its network.
    #[must_use]
    pub fn is_reachable(&self, host: &str) -> bool {
        self.lock().host(address(host)).is_reachable()
    }

    /// The hosts with a program that was stopped for a restart and has not started again.
    #[must_use]
    pub fn interrupted(&self) -> Vec<HostAddress> {
        self.lock().restarting.keys().map(|(host, _)| *host).collect()
    }

    /// The host gets power or its network again. Without power, its enabled units start.
    pub fn heal(&self, host: &str) {
        self.lock().heal(address(host));
        self.0.notify();
    }

    /// The host has another address from now on. Its etcd member does not run, because it listened at the old one.
    pub fn readdress(&self, host: &str, to: &str) {
        let mut state = self.lock();
        let (from, to) = (address(host), address(to));
        let mut moved = state.hosts.remove(&from).expect("the world has the host");
        moved.readdress(to);
        state.hosts.insert(to, moved);
        let nodes = state.clusters.values_mut().flat_map(|cluster| cluster.nodes.values_mut());
        nodes.filter(|node| **node == from).for_each(|node| *node = to);
        drop(state);
        self.settle();
    }

    /// The host accepts no logins any more, but its programs run.
    pub fn refuse_logins(&self, host: &str) {
        self.lock().host_mut(address(host)).accepts_logins = false;
    }

    /// Injects faults into the next executions of the step, one fault for each execution.
    pub fn inject_faults(&self, step: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.entry(step_id(step).to_string()).or_default().extend(faults);
    }

    /// Injects faults into the next attempts to open a session with the host.
    pub fn inject_opening_faults(&self, host: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().opening_faults.entry(address(host)).or_default().extend(faults);
    }

    /// Makes the host know a writer with this generation.
    pub fn has_seen_generation(&self, host: &str, generation: u64) {
        let mut state = self.lock();
        let host = state.host_mut(address(host));
        let claim = host.claim.get_or_insert_with(|| kubeon_wire::Claim {
            cluster: "demo".parse().unwrap(),
            uid: "uid-demo".to_owned(),
            generation,
            version: "v1.36.3".parse().unwrap(),
            role: HostRole::Worker,
        });
        claim.generation = generation;
    }

    /// Removes the part with this name from the bundle.
    pub fn lose_blob(&self, name: &str) {
        self.lock().lost_blobs.insert(sha256_like(name));
    }

    /// Overwrites a file as a user would.
    pub fn overwrite(&self, host: &str, path: &str, text: &str) {
        let mut state = self.lock();
        let file = state.host_mut(address(host)).files.get_mut(path).expect("the file exists");
        text.clone_into(&mut file.text);
    }

    /// Stops a unit as a user would.
    pub fn stop_unit(&self, host: &str, unit: &str) {
        self.lock().host_mut(address(host)).units.get_mut(unit).expect("the unit exists").running = None;
        self.settle();
    }

    /// From now on, no etcd member answers the probe in time, although all members serve.
    pub fn slow_etcd(&self) {
        self.lock().slow.etcd = true;
    }

    /// From now on, no API server lists its nodes in time, although all of them serve.
    pub fn slow_nodes(&self) {
        self.lock().slow.nodes = true;
    }

    /// Blocks connections from this host to the load balancer: every address that is not the address of a
    /// host.
    pub fn block_load_balancer(&self, host: &str) {
        self.lock().blocked.insert(address(host));
    }

    /// Advances the clock.
    pub fn pass(&self, seconds: i64) {
        self.lock().now += seconds;
    }

    /// The text of a file, if it exists.
    #[must_use]
    pub fn file(&self, host: &str, path: &str) -> Option<String> {
        self.lock().host_mut(address(host)).files.get(path).map(|file| file.text.clone())
    }

    /// Every effect so far, one line each: `h11 write /etc/hosts`. Never the content of a file.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// The number of effects so far.
    #[must_use]
    pub fn effects(&self) -> usize {
        self.lock().log.len()
    }

    /// Harmful events that must never happen, such as a second etcd cluster.
    #[must_use]
    pub fn harms(&self) -> Vec<String> {
        self.lock().harms.clone()
    }

    /// The steps in the order in which hosts executed them: `+ID` when a step began, `-ID` when it ended.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// The number of sessions that were opened with the host.
    #[must_use]
    pub fn opened(&self, host: &str) -> usize {
        self.lock().opened.get(&address(host)).copied().unwrap_or(0)
    }

    /// Returns the hosts that were contacted since the last call.
    #[must_use]
    pub fn take_contacted(&self) -> Vec<HostAddress> {
        std::mem::take(&mut self.lock().contacted).into_iter().collect()
    }

    /// The generation that a command persisted last; 0 if none did.
    #[must_use]
    pub fn persisted_generation(&self) -> u64 {
        self.lock().persisted_generation.unwrap_or(0)
    }

    /// The complete world as sorted text: two worlds are equal if their texts are equal. It does not contain
    /// generations, times and numbers of restarts.
    #[must_use]
    pub fn render(&self) -> String {
        render::render(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Applies the consequences of a change, and wakes every task that waits for a change.
    fn settle(&self) {
        self.lock().settle();
        self.0.notify();
    }
}
