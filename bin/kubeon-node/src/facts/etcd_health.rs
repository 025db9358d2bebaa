//! Whether a member of etcd serves.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::https::{Https, NoAnswer};

/// The time limit for one answer. On a slow host `/readyz` takes some seconds.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for the first connection to a member, with its TLS handshake. If it passes, it is looked whether the host of the
/// member answers at all: one that lost its power must not hold up every report for [`ANSWER_TIMEOUT`].
const FIRST_CONNECTION_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time limit for a host to accept or refuse a connection: its kernel does so at once, however slow its programs are.
const HOST_TIMEOUT: Duration = Duration::from_millis(700);
/// How long the members of etcd may elect a leader: some of its election timeouts of 1 s. It and the API server are asked
/// again so long, because a lost leader is no lost quorum.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(4);
/// How long to wait before a member without a leader is asked again.
const ELECTION_PAUSE: Duration = Duration::from_millis(200);

/// Asks again while the answer shows that etcd has no leader, until an election must have ended. Returns the last answer.
pub(super) fn after_election<A>(mut ask: impl FnMut() -> A, is_leaderless: impl Fn(&A) -> bool) -> A {
    let end = Instant::now() + ELECTION_TIMEOUT;
    loop {
        let answer = ask();
        if !is_leaderless(&answer) || Instant::now() >= end {
            return answer;
        }
        thread::sleep(ELECTION_PAUSE);
    }
}

/// A member's name and client URL. A member that was added and never started has neither: its peer URL is its
/// name.
pub(super) fn member(member: &Value) -> (String, Option<String>) {
    let first = |key: &str| member[key].as_array().and_then(|urls| urls.first()?.as_str());
    let name = member["name"].as_str().filter(|name| !name.is_empty()).or_else(|| first("peerURLs"));
    (name.unwrap_or("unnamed").to_owned(), first("clientURLs").map(str::to_owned))
}

/// Whether the member answers a read that needs a quorum; `None` if it does not answer in time.
pub(super) fn is_healthy(https: &Https, url: &str) -> Option<bool> {
    let health = format!("{}/health?serializable=false", url.trim_end_matches('/'));
    let begun = Instant::now();
    let mut first = match https.get_connecting(&health, FIRST_CONNECTION_TIMEOUT, ANSWER_TIMEOUT) {
        Err(NoAnswer::Unknown(_)) if begun.elapsed() < ANSWER_TIMEOUT => {
            if is_silent(url) {
                return None;
            }
            // Its host answers, so the member may be slow.
            None
        }
        answer => Some(answer),
    };
    let answer = after_election(
        || first.take().unwrap_or_else(|| https.get(&health, ANSWER_TIMEOUT)),
        |answer| answer.as_ref().is_ok_and(|answer| answer.status != 200 && has_no_leader(&answer.body)),
    );
    match answer {
        Ok(answer) => Some(answer.status == 200),
        Err(NoAnswer::NoServer(_)) => Some(false),
        Err(NoAnswer::Unknown(_)) => None,
    }
}

/// Whether the host at the address in a URL neither accepts nor refuses a connection. A URL without an address shows nothing.
fn is_silent(url: &str) -> bool {
    let place = url.strip_prefix("https://").map(|place| place.trim_end_matches('/'));
    let Some(place) = place.and_then(|place| place.parse::<SocketAddr>().ok()) else { return false };
    let connected = TcpStream::connect_timeout(&place, HOST_TIMEOUT);
    connected.is_err_and(|error| error.kind() != io::ErrorKind::ConnectionRefused)
}

/// Whether the member reports that it knows no leader, in the words of etcd's `/health`.
fn has_no_leader(health: &str) -> bool {
    let reasons = ["RAFT NO LEADER", "etcdserver: no leader", "etcdserver: leader changed"];
    reasons.iter().any(|reason| health.contains(reason))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_host_that_accepts_or_refuses_a_connection_is_not_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        assert!(!is_silent(&format!("https://{place}/")));
        drop(listener);
        assert!(!is_silent(&format!("https://{place}")), "it is refused");
        assert!(!is_silent("https://etcd.example:2379"), "no address");
    }
}
