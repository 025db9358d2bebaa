//! Which host gets the node program from which other host.
//!
//! ```text
//!   this machine ─┬─► h1 ─┬─► h3 ─► …
//!                 │       └─► h5
//!                 └─► h2 ─► h4 ─► …
//! ```
//!
//! A bare host serves nothing before it has the program, so the program cannot pass through a chain of hosts while it arrives, as
//! parts do. Every host that has it serves it to a few others instead: the number of hosts with the program grows by half and more
//! in the time of one transfer.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::{Digest, HostAddress};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Up to this many hosts all get the program from this machine: that is faster than to wait for another host.
const FEW_HOSTS: usize = 3;

/// The hosts to which this machine sends the program before others wait for a host that has it.
const SENT_FROM_HERE: usize = 2;

/// The hosts to which one host serves the program, one after another. It forwards parts over the same link.
const CLIENTS_PER_HOST: usize = 2;

/// After this many hosts that did not get the program from another one, or do not serve it, nothing is tried any more: a firewall
/// may be between all of them.
const MOST_FAILED: usize = 2;

/// The longest wait for a host that serves the program.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The spread of the node programs over the hosts of a run.
#[derive(Default)]
pub(crate) struct ProgramSpread {
    state: Mutex<SpreadState>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct SpreadState {
    /// The hosts without a program, with their addresses in the cluster's network.
    hosts: BTreeMap<HostAddress, Ipv4Addr>,
    /// The hosts that have begun to get one.
    begun: BTreeSet<HostAddress>,
    programs: HashMap<Digest, SpreadProgram>,
    /// The hosts that did not get a program from another one, or do not serve it.
    failed: BTreeSet<HostAddress>,
}

/// The spread of one program.
#[derive(Default)]
struct SpreadProgram {
    sent_from_here: usize,
    /// The number of hosts that get it now.
    arriving: usize,
    sources: Vec<ProgramSource>,
}

/// A host that serves the program.
struct ProgramSource {
    host: HostAddress,
    endpoint: SocketAddrV4,
    clients_left: usize,
    busy: bool,
    /// It serves until this is dropped.
    _serving: Box<dyn Any + Send>,
}

/// Lets a host get the program. The next hosts wait until it is dropped.
pub(crate) struct SpreadPermit {
    spread: Arc<ProgramSpread>,
    digest: Digest,
    host: HostAddress,
    source: Option<(HostAddress, SocketAddrV4)>,
}

impl ProgramSpread {
    /// Begins to spread programs over hosts without one, and forgets those of an earlier run.
    pub(crate) fn begin(&self, mut hosts: BTreeMap<HostAddress, Ipv4Addr>) {
        if hosts.len() <= FEW_HOSTS {
            hosts.clear();
        }
        *self.state.lock() = SpreadState { hosts, ..SpreadState::default() };
        self.changed.send_replace(());
    }

    /// Waits until the host may get the program. `None` when it gets it from this machine like every other host.
    pub(crate) async fn join(self: &Arc<Self>, digest: &Digest, host: HostAddress) -> Option<SpreadPermit> {
        let mut changed = self.changed.subscribe();
        let end = Instant::now() + WAIT_TIMEOUT;
        let mut waits = true;
        loop {
            changed.mark_unchanged();
            let choice = self.state.lock().choose(digest, host, waits);
            match choice {
                SpreadChoice::NotSpread => return None,
                SpreadChoice::Begin(source) => {
                    let (spread, digest) = (Arc::clone(self), digest.clone());
                    return Some(SpreadPermit { spread, digest, host, source });
                }
                SpreadChoice::Wait => {}
            }
            // The sender is in `self`, so only the time limit ends the wait.
            waits = timeout_at(end, changed.changed()).await.is_ok();
        }
    }

    fn change(&self, digest: &Digest, change: impl FnOnce(&mut SpreadState, &mut SpreadProgram)) {
        let mut state = self.state.lock();
        if let Some(mut program) = state.programs.remove(digest) {
            change(&mut state, &mut program);
            let needed = state.needs_sources();
            program.sources.retain(|source| source.busy || (needed && source.clients_left > 0));
            state.programs.insert(digest.clone(), program);
        }
        drop(state);
        self.changed.send_replace(());
    }
}

/// How a host gets the program.
enum SpreadChoice {
    /// From this machine like every other host.
    NotSpread,
    /// Later.
    Wait,
    /// Now: from a host, or from this machine.
    Begin(Option<(HostAddress, SocketAddrV4)>),
}

impl SpreadState {
    fn choose(&mut self, digest: &Digest, host: HostAddress, waits: bool) -> SpreadChoice {
        if !self.hosts.contains_key(&host) || self.failed.len() >= MOST_FAILED {
            return SpreadChoice::NotSpread;
        }
        let program = self.programs.entry(digest.clone()).or_default();
        let free = program.sources.iter_mut().find(|source| !source.busy && source.clients_left > 0);
        let source = if let Some(source) = free {
            source.busy = true;
            source.clients_left -= 1;
            Some((source.host, source.endpoint))
        } else if program.sent_from_here < SENT_FROM_HERE || program.arriving == 0 || !waits {
            program.sent_from_here += 1;
            None
        } else {
            return SpreadChoice::Wait;
        };
        program.arriving += 1;
        self.begun.insert(host);
        SpreadChoice::Begin(source)
    }

    /// Whether a host may still get a program from another one.
    fn needs_sources(&self) -> bool {
        self.failed.len() < MOST_FAILED && self.begun.len() < self.hosts.len()
    }
}

impl SpreadPermit {
    /// Where the host gets the program; `None` when this machine sends it.
    pub(crate) fn source(&self) -> Option<SocketAddrV4> {
        self.source.map(|(_, endpoint)| endpoint)
    }

    /// The address at which the host should serve the program afterwards; `None` when no further host needs it.
    pub(crate) fn serves_at(&self) -> Option<Ipv4Addr> {
        let state = self.spread.state.lock();
        state.needs_sources().then(|| state.hosts.get(&self.host).copied()).flatten()
    }

    /// The host did not get the program from its source, which no other host tries any more.
    pub(crate) fn source_failed(&mut self) {
        let Some((failed, _)) = self.source.take() else { return };
        let host = self.host;
        self.spread.change(&self.digest, |state, program| {
            state.failed.insert(host);
            program.sources.retain(|source| source.host != failed);
        });
    }

    /// The host does not serve the program, although others need it. If none does, they would get it one after another.
    pub(crate) fn serves_nothing(&self) {
        let host = self.host;
        self.spread.change(&self.digest, |state, _| {
            state.failed.insert(host);
        });
    }

    /// The host serves the program until `serving` is dropped.
    pub(crate) fn serves(&self, endpoint: SocketAddrV4, serving: Box<dyn Any + Send>) {
        let host = self.host;
        self.spread.change(&self.digest, |_, program| {
            let clients_left = CLIENTS_PER_HOST;
            let source = ProgramSource { host, endpoint, clients_left, busy: false, _serving: serving };
            program.sources.push(source);
        });
    }
}

impl Drop for SpreadPermit {
    fn drop(&mut self) {
        let source = self.source.map(|(host, _)| host);
        self.spread.change(&self.digest, |_, program| {
            program.arriving = program.arriving.saturating_sub(1);
            let used = program.sources.iter_mut().filter(|other| Some(other.host) == source);
            used.for_each(|source| source.busy = false);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    fn host(last: u8) -> HostAddress {
        HostAddress::from(address(last))
    }

    fn digest() -> Digest {
        "ab".repeat(32).parse().unwrap()
    }

    fn spread(hosts: u8) -> Arc<ProgramSpread> {
        let spread = Arc::new(ProgramSpread::default());
        spread.begin((1..=hosts).map(|last| (host(last), address(last))).collect());
        spread
    }

    /// A host gets the program in one second and serves it then.
    async fn get(spread: Arc<ProgramSpread>, last: u8, sent_from_here: Arc<AtomicUsize>) {
        let Some(permit) = spread.join(&digest(), host(last)).await else {
            sent_from_here.fetch_add(1, Ordering::Relaxed);
            return;
        };
        sent_from_here.fetch_add(usize::from(permit.source().is_none()), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Some(address) = permit.serves_at() {
            permit.serves(SocketAddrV4::new(address, 1), Box::new(()));
        }
    }

    /// The seconds until all hosts have the program, and how many got it from this machine.
    async fn spread_to(hosts: u8) -> (u64, usize) {
        let (spread, sent, start) = (spread(hosts), Arc::new(AtomicUsize::new(0)), Instant::now());
        let all = (1..=hosts).map(|last| get(Arc::clone(&spread), last, Arc::clone(&sent)));
        futures::future::join_all(all).await;
        (start.elapsed().as_secs(), sent.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn this_machine_sends_the_program_to_two_of_many_hosts() {
        assert_eq!(spread_to(20).await, (5, 2));
        assert_eq!(spread_to(200).await.1, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn few_hosts_do_not_wait_for_each_other() {
        assert_eq!(spread_to(3).await, (0, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_fails_lets_others_go_on() {
        let spread = spread(9);
        // Two hosts that get it from this machine are lost, and serve nothing.
        let lost = [spread.join(&digest(), host(1)).await, spread.join(&digest(), host(2)).await];
        let waiting = tokio::spawn({
            let spread = Arc::clone(&spread);
            async move { spread.join(&digest(), host(3)).await.is_some_and(|permit| permit.source().is_none()) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        drop(lost);
        assert!(waiting.await.unwrap(), "this machine sends it");
    }

    #[tokio::test(start_paused = true)]
    async fn after_two_failures_every_host_gets_it_from_this_machine() {
        let (spread, start) = (spread(9), Instant::now());
        let sent = [spread.join(&digest(), host(1)).await, spread.join(&digest(), host(2)).await];
        for (permit, last) in sent.into_iter().flatten().zip(1..) {
            permit.serves(SocketAddrV4::new(address(last), 1), Box::new(()));
        }
        let mut permits = Vec::new();
        for last in 3..=4 {
            let permit = spread.join(&digest(), host(last)).await.unwrap();
            assert_eq!(permit.source(), Some(SocketAddrV4::new(address(last - 2), 1)));
            permits.push(permit);
        }
        let waiting = tokio::spawn({
            let spread = Arc::clone(&spread);
            async move { spread.join(&digest(), host(5)).await.is_none() }
        });
        permits.iter_mut().for_each(SpreadPermit::source_failed);
        assert!(waiting.await.unwrap());
        assert!(permits[0].serves_at().is_none() && spread.join(&digest(), host(6)).await.is_none());
        assert_eq!(start.elapsed(), Duration::ZERO, "nobody waits");
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_do_not_wait_for_each_other_when_none_serves() {
        let (spread, start) = (spread(9), Instant::now());
        let sent = [spread.join(&digest(), host(1)).await, spread.join(&digest(), host(2)).await];
        let waiting = tokio::spawn({
            let spread = Arc::clone(&spread);
            async move { spread.join(&digest(), host(3)).await.is_none() }
        });
        sent.iter().flatten().for_each(SpreadPermit::serves_nothing);
        assert!(waiting.await.unwrap(), "this machine sends it to all of them at once");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_host_that_neither_gets_nor_serves_it_ends_nothing() {
        let spread = spread(9);
        let first = spread.join(&digest(), host(1)).await.unwrap();
        first.serves(SocketAddrV4::new(address(1), 1), Box::new(()));
        let mut apart = spread.join(&digest(), host(2)).await.unwrap();
        apart.source_failed();
        apart.serves_nothing();
        assert!(spread.join(&digest(), host(3)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn no_host_serves_longer_than_others_need_it() {
        let spread = spread(4);
        let serving = Arc::new(());
        let mut permits = Vec::new();
        for last in 1..=2 {
            let permit = spread.join(&digest(), host(last)).await.unwrap();
            permit.serves(SocketAddrV4::new(address(last), 1), Box::new(Arc::clone(&serving)));
            permits.push(permit);
        }
        for last in 3..=4 {
            permits.push(spread.join(&digest(), host(last)).await.unwrap());
        }
        assert_eq!(Arc::strong_count(&serving), 3, "both serve now");
        drop(permits);
        assert_eq!(Arc::strong_count(&serving), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends() {
        let (spread, start) = (spread(9), Instant::now());
        let _slow = [spread.join(&digest(), host(1)).await, spread.join(&digest(), host(2)).await];
        let permit = spread.join(&digest(), host(3)).await.unwrap();
        assert_eq!((permit.source(), start.elapsed()), (None, WAIT_TIMEOUT));
    }
}
