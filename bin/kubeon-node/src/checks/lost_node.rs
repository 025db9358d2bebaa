//! Waits until a node is lost: its kubelet does not report any more.
//!
//! The controller manager calls a node not Ready when its Lease was not renewed for 50 s. Who already knows that the host does not
//! answer need not wait that long: a kubelet renews its Lease every 10 s, so one that missed two renewals does not run or does not
//! reach the cluster. The time is that of this host, not that in the Lease: the clocks of two hosts may differ.

use std::time::{Duration, Instant};

use kubeon_api::HostName;
use serde_json::Value;

use super::cluster::not_ready;
use crate::api::Api;

/// A Lease that is not renewed for so long is that of a lost node: two renewals and a half.
const SILENCE: Duration = Duration::from_secs(25);
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
    pub(super) fn check(&mut self, api: &Api) -> Result<(), String> {
        let asked = Instant::now();
        let report = match self.report(api) {
            Ok(report) => report,
            Err(why) => {
                // Meanwhile, a kubelet may have been unable to renew its Lease.
                self.silence = None;
                return Err(why);
            }
        };
        if self.is_lost(&report, asked, Instant::now()) {
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

    /// `asked` and `answered` are the times of the request and of its answer: the Lease is as it was at some time between them.
    fn is_lost(&mut self, report: &ReportedNode, asked: Instant, answered: Instant) -> bool {
        let ReportedNode::Ready { renewed } = report else { return true };
        match &self.silence {
            Some(silence) if silence.renewed == *renewed => {
                asked.saturating_duration_since(silence.since) >= SILENCE
            }
            _ => {
                self.silence = Some(Silence { renewed: renewed.clone(), since: answered });
                false
            }
        }
    }
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

    fn ready(renewed: &str) -> ReportedNode {
        ReportedNode::Ready { renewed: renewed.to_owned() }
    }

    #[test]
    fn a_node_that_is_not_ready_is_lost_at_once() {
        let node = "h3".parse().unwrap();
        let (mut lost, now) = (LostNode::new(&node), Instant::now());
        assert!(!lost.is_lost(&ready("12:00:00"), now, now));
        assert!(lost.is_lost(&ReportedNode::Lost, now, now));
    }

    #[test]
    fn a_ready_node_is_lost_after_two_missed_renewals() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let mut at = |renewed: &str, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            lost.is_lost(&ready(renewed), now, now)
        };
        assert!(!at("12:00:00", 0));
        assert!(!at("12:00:00", 9));
        assert!(!at("12:00:10", 10), "its kubelet runs");
        assert!(!at("12:00:10", 34));
        assert!(at("12:00:10", 35));
    }

    #[test]
    fn a_slow_answer_does_not_count_as_silence() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert!(!lost.is_lost(&ready("12:00:00"), at(0), at(5)));
        assert!(!lost.is_lost(&ready("12:00:00"), at(29), at(34)), "known from second 5 to second 29");
        assert!(lost.is_lost(&ready("12:00:00"), at(30), at(30)));
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
        assert_eq!(lost.check(&api).unwrap_err(), "node h3 is still Ready: its kubelet runs");
        assert!(lost.silence.is_some());
        let why = lost.check(&api).unwrap_err();
        assert!(why.contains("/api/v1/nodes/h3 answers 500"), "{why}");
        assert!(lost.silence.is_none());
        // The node is Ready, and its Lease does not exist any more: that is silence too, but not for long enough yet.
        lost.check(&api).unwrap_err();
        lost.check(&api).unwrap();
        let paths: Vec<String> = requests.lock().iter().map(|(_, path, _)| path.clone()).collect();
        assert!(paths[1].ends_with("/leases/h3"), "{paths:?}");
    }
}
