//! Many hosts are observed and checked within a time limit, even if they do not answer.

use std::time::Duration;

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_plan::{Intent, precheck};
use kubeon_ports::ProbeHost;
use kubeon_testkit::{NOW, World, cluster, host};
use kubeon_wire::{Category, Facts, StepFailure};

fn address(index: usize) -> String {
    format!("172.30.{}.{}", index / 200, 11 + index % 200)
}

fn intent(hosts: usize) -> Intent {
    (1..hosts).fold(cluster().master(&address(0)), |spec, index| spec.worker(&address(index))).intent()
}

fn world(hosts: usize) -> World {
    World::of((0..hosts).map(|index| host(&address(index)).named(&format!("h{index}"))))
}

/// The time after which the probe of a real host ends a connection that shows no progress.
const SILENCE: Duration = Duration::from_secs(30);

/// Refuses every login, or is silent.
struct BadProbe {
    silent: bool,
}

#[async_trait]
impl ProbeHost for BadProbe {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        if self.silent {
            tokio::time::sleep(SILENCE).await;
            let cause = format!("{host} sent nothing for 30 s");
            return Err(StepFailure { category: Category::Unreachable, cause, log: Vec::new() });
        }
        let cause = format!("{host} refused the login of root");
        Err(StepFailure { category: Category::Denied, cause, log: Vec::new() })
    }
}

#[tokio::test(start_paused = true)]
async fn every_host_has_one_result_in_time() {
    for count in [1, 2, 50, 200] {
        let (intent, world) = (intent(count), world(count));
        let start = tokio::time::Instant::now();
        let snapshot = kubeon_observe::snapshot(&world.ports(), intent.hosts(), NOW).await;
        let report = precheck(&intent, &snapshot);
        assert!(report.ok, "{:?}", report.refusals().collect::<Vec<_>>());
        assert_eq!(report.hosts.len(), count);
        assert!(start.elapsed() < Duration::from_secs(35));
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_refuse_or_do_not_answer_are_checked_in_time() {
    for silent in [false, true] {
        let intent = intent(120);
        let start = tokio::time::Instant::now();
        let snapshot = kubeon_observe::snapshot(&BadProbe { silent }, intent.hosts(), NOW).await;
        let report = precheck(&intent, &snapshot);
        assert_eq!((report.ok, report.errors, report.hosts.len()), (false, 120, 120));
        let check = if silent { "reach" } else { "login" };
        assert!(report.hosts.iter().all(|host| host.checks.last().unwrap().check == check));
        assert!(start.elapsed() < Duration::from_secs(35), "{:?}", start.elapsed());
        assert_eq!(report.refusals().count(), 120, "one refusal for each host");
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_address_is_observed_once() {
    let intent = intent(2);
    let twice = intent.hosts().chain(intent.hosts());
    let snapshot = kubeon_observe::snapshot(&world(2).ports(), twice, NOW).await;
    assert_eq!(precheck(&intent, &snapshot).hosts.len(), 2);
}
