use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use kubeon_wire::{Category, StepFailure};
use tokio::time::{Instant, sleep};

use super::*;

/// Answers by the last byte of the address: 1 never answers, 2 refuses the login, others answer after 1 s.
#[derive(Default)]
struct Probe {
    current: AtomicUsize,
    maximum: AtomicUsize,
    calls: AtomicUsize,
}

#[async_trait]
impl ProbeHost for Probe {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.maximum.fetch_max(self.current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let [_, _, high, low] = host.ip().octets();
        let answer = match u16::from_be_bytes([high, low]) {
            1 => std::future::pending().await,
            2 => Err(StepFailure {
                category: Category::Denied,
                cause: "the key was refused".into(),
                log: vec![],
            }),
            number => {
                sleep(Duration::from_secs(1)).await;
                Ok(Facts { hostname: format!("h{number}"), ..Facts::default() })
            }
        };
        self.current.fetch_sub(1, Ordering::SeqCst);
        answer
    }
}

fn host(number: u16) -> HostAddress {
    let [high, low] = number.to_be_bytes();
    std::net::Ipv4Addr::new(10, 0, high, low).into()
}

#[tokio::test(start_paused = true)]
async fn reports_why_a_host_was_not_observed() {
    let snapshot = snapshot(&Probe::default(), [host(1), host(2), host(3)], 77).await;
    assert_eq!(snapshot.taken_at, 77);
    assert_eq!(
        snapshot.hosts[&host(1)],
        Observation::Unknown { why: "no answer within 600 s".into(), failure: ObservationFailure::NoAnswer }
    );
    assert_eq!(
        snapshot.hosts[&host(2)],
        Observation::Unknown { why: "the key was refused".into(), failure: ObservationFailure::LoginRefused }
    );
    assert_eq!(snapshot.hosts[&host(3)].fresh().unwrap().hostname, "h3");
}

#[tokio::test(start_paused = true)]
async fn observes_hosts_in_parallel_up_to_the_limit() {
    let probe = Probe::default();
    let start = Instant::now();
    let snapshot = snapshot(&probe, (3..=802).map(host), 0).await;
    assert_eq!(snapshot.hosts.len(), 800);
    assert_eq!(probe.maximum.load(Ordering::SeqCst), HOSTS_AT_ONCE);
    assert_eq!(start.elapsed().as_secs(), 4, "800 hosts of 1 s each, 256 at a time");
}

#[tokio::test(start_paused = true)]
async fn silent_hosts_end_at_the_timeout() {
    let start = Instant::now();
    snapshot(&Probe::default(), (0..200).map(host), 0).await;
    assert_eq!(start.elapsed(), HOST_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn observes_a_duplicate_host_once() {
    let probe = Probe::default();
    snapshot(&probe, [host(3), host(3)], 0).await;
    assert_eq!(probe.calls.load(Ordering::SeqCst), 1);
}
