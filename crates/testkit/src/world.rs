//! A world in memory behind the real ports. It models what the engine can see and do: no more detail than
//! a plan can depend on, but the dependencies between programs are real: etcd needs a quorum, the API server
//! needs etcd, a node is Ready when its kubelet reached an API server.

mod effect;
mod fault;
mod host;
mod op_effects;
mod picture;
mod ports;
mod rules;
mod shared_state;
mod state;

use kubeon_api::{HostAddress, HostRole};
use parking_lot::MutexGuard;

use crate::hosts::{HostBuilder, address};
use crate::plans::step_id;
use crate::text::sha256_like;
pub use fault::Fault;
pub use ports::{Ports, SENTINEL};
use shared_state::SharedState;
use state::State;

/// The world. Clones are the same world.
#[derive(Clone)]
pub struct World(SharedState);

impl World {
    /// A world of the hosts, at the time [`crate::NOW`], with one process in it.
    #[must_use]
    pub fn of(hosts: impl IntoIterator<Item = HostBuilder>) -> Self {
        Self(SharedState::new(State::of(hosts)))
    }

    /// The ports of the process that lives now. They stop working when it dies.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports { world: self.0.clone(), life: self.lock().life }
    }

    /// All hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostAddress> {
        self.lock().hosts.keys().copied().collect()
    }

    /// The process dies right after the n-th effect from now: that one happens, but nobody hears of it, and
    /// every later call never returns. With 0 it is dead at once.
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

    /// Starts a new process; what the dead one held is gone, the world is as it was left.
    pub fn restart(&self) {
        let mut state = self.lock();
        state.life += 1;
        state.dead = false;
        state.left = None;
    }

    /// Effects come at times drawn from the seed, so that what runs side by side overlaps differently.
    pub fn shuffle(&self, seed: u64) {
        self.lock().random = Some(seed);
    }

    /// The host loses power: sessions break, its programs stand still.
    pub fn cut(&self, host: &str) {
        let mut state = self.lock();
        let host = state.host_mut(address(host));
        host.up = false;
        host.cuts += 1;
        drop(state);
        self.settle();
    }

    /// The host comes back, its enabled units start again.
    pub fn heal(&self, host: &str) {
        self.lock().host_mut(address(host)).up = true;
        self.settle();
    }

    /// The next time the step is sent, this happens instead; several are used up in order.
    pub fn trouble(&self, step: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.entry(step_id(step).to_string()).or_default().extend(faults);
    }

    /// The next times that the host is opened, this happens instead.
    pub fn trouble_opening(&self, host: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().opening_faults.entry(address(host)).or_default().extend(faults);
    }

    /// The host has seen a writer of this generation already.
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

    /// The bundle loses the part of the name.
    pub fn lose_blob(&self, name: &str) {
        self.lock().lost_blobs.insert(sha256_like(name));
    }

    /// Somebody overwrites a file by hand.
    pub fn overwrite(&self, host: &str, path: &str, text: &str) {
        let mut state = self.lock();
        let file = state.host_mut(address(host)).files.get_mut(path).expect("the file exists");
        text.clone_into(&mut file.text);
    }

    /// Somebody stops a unit by hand.
    pub fn stop_unit(&self, host: &str, unit: &str) {
        self.lock().host_mut(address(host)).units.get_mut(unit).expect("the unit exists").running = None;
        self.settle();
    }

    /// From now on no etcd member answers a look in time, though all of them serve.
    pub fn slow_etcd(&self) {
        self.lock().slow.etcd = true;
    }

    /// From now on no API server tells its nodes in time, though all of them serve.
    pub fn slow_nodes(&self) {
        self.lock().slow.nodes = true;
    }

    /// The load balancer, at whatever address that is no host's, leads nowhere from this host.
    pub fn block_load_balancer(&self, host: &str) {
        self.lock().blocked.insert(address(host));
    }

    /// Time passes.
    pub fn pass(&self, seconds: i64) {
        self.lock().now += seconds;
    }

    /// The text of a file, if it is there.
    #[must_use]
    pub fn file(&self, host: &str, path: &str) -> Option<String> {
        self.lock().host_mut(address(host)).files.get(path).map(|file| file.text.clone())
    }

    /// Every effect so far, one line each: `h11 write /etc/hosts`. Never the content of a file.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// How many effects there were so far.
    #[must_use]
    pub fn effects(&self) -> usize {
        self.lock().log.len()
    }

    /// What should never have happened, such as a second etcd cluster.
    #[must_use]
    pub fn harms(&self) -> Vec<String> {
        self.lock().harms.clone()
    }

    /// Steps as they reached the hosts: `+ID` when one began, `-ID` when it ended.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// How often a session with the host was opened.
    #[must_use]
    pub fn opened(&self, host: &str) -> usize {
        self.lock().opened.get(&address(host)).copied().unwrap_or(0)
    }

    /// The whole world as text, sorted: two worlds are equal when their pictures are. Generations, times and
    /// the number of restarts are left out.
    #[must_use]
    pub fn picture(&self) -> String {
        picture::draw(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Applies the consequences of a change, and wakes every task that waits for one.
    fn settle(&self) {
        self.lock().settle();
        self.0.notify();
    }
}
