//! The clients of an etcd member on a host without an API server: the API servers of other hosts. While the member restarts they use
//! the other members, and they connect to it again at growing intervals. The next member must not restart before they did: it may be
//! the last one to which a client is connected, whose requests would fail.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::durable::read_text;
use crate::job::Job;
use crate::paths;
use crate::root::Root;

/// The TCP connections of the host, one in each line.
const CONNECTIONS: &str = "/proc/net/tcp";
/// The port at which a member serves clients.
const CLIENT_PORT: u16 = 2379;
/// The state of an open connection.
const ESTABLISHED: &str = "01";
/// The interval between two looks at the connections.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long clients are waited for while none comes back. gRPC tries again after about the time for which the port was closed, which are
/// the seven seconds that a member gives its open requests, such as watches, when it stops.
const LIMIT: Duration = Duration::from_secs(15);

/// How many connections each other host has to the member of this host.
pub(super) struct MemberClients(BTreeMap<Ipv4Addr, usize>);

impl MemberClients {
    /// Those that are connected now. An API server on the host of the member uses no other one and ends before it, so there are none.
    pub(super) fn of(job: &Job<'_>) -> Self {
        let root = &job.host.root;
        let has_api_server = root.at(paths::ADMIN_CERTIFICATE).exists();
        Self(if has_api_server { BTreeMap::new() } else { connections(root) })
    }

    /// Waits until they are connected again. One that does not come back, such as one whose host died, is not waited for longer than some
    /// seconds, and is no failure.
    pub(super) fn wait_until_back(&self, job: &Job<'_>) {
        self.wait(job, LIMIT);
    }

    fn wait(&self, job: &Job<'_>, limit: Duration) {
        let (mut fewest, mut changed) = (usize::MAX, Instant::now());
        loop {
            let missing = self.missing(&connections(&job.host.root));
            if missing == 0 {
                return;
            }
            if missing < fewest {
                (fewest, changed) = (missing, Instant::now());
            }
            let what = || format!("{missing} connections of API servers to this member are missing");
            if changed.elapsed() >= limit {
                job.note(format!("{} since its restart", what()));
                return;
            }
            // The member works. That the step is cancelled or late meanwhile is no failure of its restart.
            if job.pause(INTERVAL.min(limit), what).is_err() {
                return;
            }
        }
    }

    /// How many connections of `now` are missing. A few that were short-lived do not count.
    fn missing(&self, now: &BTreeMap<Ipv4Addr, usize>) -> usize {
        let missing = |(host, before): (&Ipv4Addr, &usize)| {
            let wanted = (before * 9).div_ceil(10);
            wanted.saturating_sub(now.get(host).copied().unwrap_or(0))
        };
        self.0.iter().map(missing).sum()
    }
}

/// The number of open connections of each other host to the member of this host.
fn connections(root: &Root) -> BTreeMap<Ipv4Addr, usize> {
    let table = read_text(&root.at(CONNECTIONS)).ok().flatten().unwrap_or_default();
    let mut hosts = BTreeMap::new();
    for host in table.lines().filter_map(client) {
        *hosts.entry(host).or_insert(0) += 1;
    }
    hosts
}

/// The other host of an open connection to the member, from a line `NUMBER: OWN:PORT OTHER:PORT STATE …`.
fn client(line: &str) -> Option<Ipv4Addr> {
    let mut words = line.split_whitespace().skip(1);
    let (own, port) = address(words.next()?)?;
    let (other, _) = address(words.next()?)?;
    let is_open = words.next()? == ESTABLISHED;
    (is_open && port == CLIENT_PORT && other != own).then_some(other)
}

/// An address and a port as the kernel prints them: in hexadecimal, the address as a number of the processor.
fn address(text: &str) -> Option<(Ipv4Addr, u16)> {
    let (address, port) = text.split_once(':')?;
    let number = u32::from_str_radix(address, 16).ok()?;
    Some((Ipv4Addr::from(number.to_ne_bytes()), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
#[path = "member_clients_tests.rs"]
mod tests;
