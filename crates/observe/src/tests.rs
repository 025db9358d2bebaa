use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use kubeon_wire::{Category, StepFailure};
use tokio::time::{Instant, sleep};

use super::*;

/// Answers by the last byte of the address: 1 is silent, 2 refuses, others answer after a second.
#[derive(Default)]
struct Probe {
    now: AtomicUsize,
    most: AtomicUsize,
    asked: AtomicUsize,
}

#[async_trait]
impl ProbeHost for Probe {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let answer = match host.ip().octets()[3] {
            1 => std::future::pending().await,
            2 => Err(StepFailure {
                category: Category::Denied,
                cause: "the key was refused".into(),
                log: vec![],
            }),
            last => {
                sleep(Duration::from_secs(1)).await;
                Ok(Facts { hostname: format!("h{last}"), ..Facts::default() })
            }
        };
        self.now.fetch_sub(1, Ordering::SeqCst);
        answer
    }
}

fn host(last: u8) -> HostAddress {
    std::net::Ipv4Addr::new(10, 0, 0, last).into()
}

#[tokio::test(start_paused = true)]
async fn says_why_a_host_was_not_seen() {
    let seen = snapshot(&Probe::default(), [host(1), host(2), host(3)], 77).await;
    assert_eq!(seen.taken_at, 77);
    assert_eq!(seen.hosts[&host(1)], Seen::Unknown { why: "no answer within 15 s".into(), denied: false });
    assert_eq!(seen.hosts[&host(2)], Seen::Unknown { why: "the key was refused".into(), denied: true });
    assert_eq!(seen.hosts[&host(3)].fresh().unwrap().hostname, "h3");
}

#[tokio::test(start_paused = true)]
async fn asks_side_by_side_but_not_all_at_once() {
    let probe = Probe::default();
    let start = Instant::now();
    let seen = snapshot(&probe, (3..=202).map(host), 0).await;
    assert_eq!(seen.hosts.len(), 200);
    assert_eq!(probe.most.load(Ordering::SeqCst), HOSTS_AT_ONCE);
    assert_eq!(start.elapsed().as_secs(), 4, "200 hosts of 1 s each, 64 at a time");
}

#[tokio::test(start_paused = true)]
async fn a_silent_host_holds_nobody_up_longer_than_its_patience() {
    let start = Instant::now();
    snapshot(&Probe::default(), (0..200).map(host), 0).await;
    assert_eq!(start.elapsed(), HOST_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn asks_a_host_named_twice_once() {
    let probe = Probe::default();
    snapshot(&probe, [host(3), host(3)], 0).await;
    assert_eq!(probe.asked.load(Ordering::SeqCst), 1);
}
