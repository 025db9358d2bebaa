//! Waits until a node is lost: its kubelet does not report any more.
//!
//! The controller manager calls a node not Ready when its Lease was not renewed for 50 s. Who already knows that the host does not
//! answer need not wait that long: a kubelet renews its Lease every 10 s, so one that missed two renewals does not run or does not
//! reach the cluster. The time in the Lease is that of another host, whose clock may be wrong. It counts only if this host saw
//! one missed renewal itself; without it this host must see both. After a start of the API server kubelets need some time to reach
//! it again, so only one that has run for a while shows that they do not.

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use kubeon_api::HostName;
use serde_json::Value;

use super::cluster::not_ready;
use super::node::{microseconds, since_1970};
use crate::api::Api;
use crate::host::HostSystem;
use crate::units::API_SERVERS;

/// A Lease that is not renewed for so long is that of a lost node: two renewals and a half.
const SILENCE: Duration = Duration::from_secs(25);
/// A Lease that was not renewed for so long while it was watched: more than one renewal.
const SEEN_SILENCE: Duration = Duration::from_secs(12);
/// After this time every kubelet that runs has reached a new API server.
const SETTLED: Duration = Duration::from_secs(60);
/// The time limit of one request. A slow one could hide that no kubelet can renew its Lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The wait for the loss of a node.
pub(super) struct LostNode<'a> {
    node: &'a HostName,
    silence: Option<Silence>,
}

/// Since when a Lease was not renewed.
struct Silence {
    /// The time in the Lease.
    renewed: String,
    since: Instant,
}

/// What the API server says about a node.
enum ReportedNode {
    /// It is not Ready, or does not exist.
    Lost,
    /// It is Ready, and its Lease was renewed at this time.
    Ready { renewed: String },
}

impl<'a> LostNode<'a> {
    pub(super) fn new(node: &'a HostName) -> Self {
        Self { node, silence: None }
    }

    /// Whether the node is lost.
    ///
    /// # Errors
    /// What speaks against it. The text does not change while only time passes.
    pub(super) fn check(&mut self, host: &HostSystem, api: &Api) -> Result<(), String> {
        let asked = Instant::now();
        let report = match self.report(api) {
            Ok(report) => report,
            Err(why) => {
                // Meanwhile, a kubelet may have been unable to renew its Lease.
                self.silence = None;
                return Err(why);
            }
        };
        let (answered, today) = (Instant::now(), SystemTime::now());
        let is_lost = match report {
            ReportedNode::Lost => true,
            ReportedNode::Ready { renewed } => {
                self.is_silent(&renewed, asked..answered, today) && has_settled(host, today)
            }
        };
        if is_lost {
            return Ok(());
        }
        Err(format!("node {} is still Ready: its kubelet runs", self.node))
    }

    fn report(&self, api: &Api) -> Result<ReportedNode, String> {
        let node = read(api, &format!("/api/v1/nodes/{}", self.node))?;
        if node.is_none_or(|node| not_ready(&node).is_some()) {
            return Ok(ReportedNode::Lost);
        }
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", self.node);
        let lease = read(api, &lease)?.unwrap_or_default();
        let renewed = lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
        Ok(ReportedNode::Ready { renewed })
    }

    /// Whether the Lease was not renewed for too long. `asked` is the time from the request to its answer: the Lease was as reported at
    /// some time in it. `today` is the clock of this host.
    fn is_silent(&mut self, renewed: &str, asked: Range<Instant>, today: SystemTime) -> bool {
        match &self.silence {
            Some(silence) if silence.renewed == renewed => {
                let seen = asked.start.saturating_duration_since(silence.since);
                seen >= SILENCE || seen >= SEEN_SILENCE && age(renewed, today) >= SILENCE
            }
            _ => {
                self.silence = Some(Silence { renewed: renewed.to_owned(), since: asked.end });
                false
            }
        }
    }
}

/// Whether the API server of this host has run for so long that every kubelet that runs has reached it.
fn has_settled(host: &HostSystem, today: SystemTime) -> bool {
    let states = host.services.states(&API_SERVERS.map(str::to_owned)).unwrap_or_default();
    let mut running = states.values().filter(|state| state.active == "active" && state.started > 0);
    running.any(|state| since(since_1970(state.started), today) >= SETTLED)
}

/// The time since a time that another host wrote. Zero if it is not a time.
fn age(written: &str, today: SystemTime) -> Duration {
    microseconds(written).map(|written| since(written, today)).unwrap_or_default()
}

/// The time since a time in microseconds since 1970. Zero if it is later.
fn since(before: i64, today: SystemTime) -> Duration {
    let before = SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(before).unwrap_or(0));
    today.duration_since(before).unwrap_or_default()
}

/// An object of the API server; `None` if it does not exist.
fn read(api: &Api, path: &str) -> Result<Option<Value>, String> {
    let answer = api
        .get(path, CALL_TIMEOUT)
        .map_err(|why| format!("the API server on this host does not answer: {why}"))?;
    match answer.status {
        404 => Ok(None),
        200 => serde_json::from_str(&answer.body).map(Some).map_err(|_| format!("{path} answers no JSON")),
        status => Err(format!("{path} answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{Reply, serve};

    /// A clock that is behind all Leases of the tests.
    const PAST: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn a_ready_node_is_lost_after_two_missed_renewals() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let mut at = |renewed: &str, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            lost.is_silent(renewed, now..now, PAST)
        };
        assert!(!at("2026-01-31T12:00:00.000000Z", 0));
        assert!(!at("2026-01-31T12:00:00.000000Z", 9));
        assert!(!at("2026-01-31T12:00:10.000000Z", 10), "its kubelet runs");
        assert!(!at("2026-01-31T12:00:10.000000Z", 34));
        assert!(at("2026-01-31T12:00:10.000000Z", 35));
    }

    #[test]
    fn an_old_lease_counts_after_one_renewal_was_missed_here() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let renewed = "2026-01-31T12:00:00.000000Z";
        let noon = Duration::from_micros(u64::try_from(microseconds(renewed).unwrap()).unwrap());
        let mut at = |seen: u64, age: u64| {
            let now = begin + Duration::from_secs(seen);
            lost.is_silent(renewed, now..now, SystemTime::UNIX_EPOCH + noon + Duration::from_secs(age))
        };
        assert!(!at(0, 3600), "the clock of the other host may be wrong");
        assert!(!at(11, 3600));
        assert!(!at(12, 24));
        assert!(at(12, 25));
    }

    #[test]
    fn a_slow_answer_does_not_count_as_silence() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let mut at = |asked: u64, answered: u64| {
            let at = |seconds: u64| begin + Duration::from_secs(seconds);
            lost.is_silent("2026-01-31T12:00:00.000000Z", at(asked)..at(answered), PAST)
        };
        assert!(!at(0, 5));
        assert!(!at(29, 34), "known from second 5 to second 29");
        assert!(at(30, 30));
    }

    #[test]
    fn only_an_api_server_that_has_run_for_a_while_shows_silence() {
        let today = SystemTime::now();
        // A service and a static pod.
        for unit in API_SERVERS {
            let bench = Bench::new();
            bench.services.running.lock().insert(unit.to_owned());
            assert!(!has_settled(&bench.host, today), "it never started");
            *bench.services.started.lock() = 1;
            assert!(has_settled(&bench.host, today + SETTLED), "it has run since the boot");
            assert!(!has_settled(&bench.host, SystemTime::UNIX_EPOCH), "it started later");
            bench.services.running.lock().clear();
            assert!(!has_settled(&bench.host, today + SETTLED));
        }
    }

    #[test]
    fn an_api_server_that_does_not_answer_begins_the_wait_again() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |_, path, number| match number {
            2 => Reply::Json(500, String::new()),
            4.. => Reply::Json(404, String::new()),
            _ if path.contains("/leases/") => {
                Reply::Json(200, json!({"spec": {"renewTime": "2026-01-31T12:00:00.000000Z"}}).to_string())
            }
            _ => {
                let conditions = json!([{"type": "Ready", "status": "True"}]);
                Reply::Json(200, json!({"status": {"conditions": conditions}}).to_string())
            }
        });
        let (api, node) = (Api::local(&bench.host).unwrap(), "h3".parse().unwrap());
        let mut lost = LostNode::new(&node);
        assert_eq!(lost.check(&bench.host, &api).unwrap_err(), "node h3 is still Ready: its kubelet runs");
        assert!(lost.silence.is_some());
        let why = lost.check(&bench.host, &api).unwrap_err();
        assert!(why.contains("/api/v1/nodes/h3 answers 500"), "{why}");
        assert!(lost.silence.is_none());
        // The node is Ready, and its Lease does not exist any more: that is silence too, but not for long enough yet.
        lost.check(&bench.host, &api).unwrap_err();
        lost.check(&bench.host, &api).unwrap();
        let paths: Vec<String> = requests.lock().iter().map(|(_, path, _)| path.clone()).collect();
        assert!(paths[1].ends_with("/leases/h3"), "{paths:?}");
    }
}
