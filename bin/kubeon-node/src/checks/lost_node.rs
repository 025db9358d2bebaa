//! Waits until a node is lost: its kubelet does not report any more.
//!
//! The controller manager calls a node not Ready when its Lease was not renewed for 50 s. Who already knows that the host does not
//! answer need not wait that long: a kubelet renews its Lease every 10 s, so one that missed two renewals does not run or does not
//! reach the cluster. The time in the Lease is that of another host, whose clock may be wrong. It counts only if this host saw
//! one missed renewal itself; without it this host must see both.
//!
//! After a start of the API server kubelets need some time to reach it again. Silence counts if this kubelet has reached it since,
//! or if it has run for a while. Before, silence must outlast the Lease, and other kubelets must renew theirs meanwhile.
//!
//! This host also connects to the port of the kubelet. While nothing there accepts or refuses a connection, the host of the node
//! is off or cut off: then one missed renewal is enough. The two proofs are independent. A host that only this one does not reach
//! renews its Lease through another API server, and one whose clock is behind accepts the connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use kubeon_api::HostName;
use serde_json::Value;

use super::cluster::not_ready;
use super::node::{microseconds, since_1970};
use crate::api::Api;
use crate::host::HostSystem;
use crate::units::API_SERVERS;

/// The silence that shows a lost node when its kubelet has reached the API server: two missed renewals and a half, of which this
/// host saw more than one.
const SETTLED_LIMITS: SilenceLimits =
    SilenceLimits { silence: Duration::from_secs(25), seen: Duration::from_secs(12) };
/// The silence that shows a lost node whose host does not answer this one: a missed renewal. Kubelets renew every 10 s, and up to
/// 0.4 s later.
const CUT_OFF_LIMITS: SilenceLimits =
    SilenceLimits { silence: Duration::from_secs(12), seen: Duration::from_secs(4) };
/// After so many connections in a row to the port of a kubelet without an answer, its host does not answer.
const SILENT_CONNECTIONS: u32 = 3;
/// The time limit of such a connection: a host that runs accepts or refuses it at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// After this time every kubelet that runs has reached a new API server.
const SETTLED: Duration = Duration::from_secs(60);
/// A renewal so much later than the start of the API server was after it: a difference of half of it between two clocks is warned
/// of when a host is checked. With a larger one this host must still see the whole silence.
const CLOCK_MARGIN: Duration = Duration::from_secs(10);
/// How much longer than its Lease a kubelet must be silent when it has not reached the API server since its start.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// How much of that silence this host must see.
const UNSETTLED_SEEN: Duration = Duration::from_secs(25);
/// The duration of a Lease that names none, in seconds: kubeon does not change Kubernetes' own.
const LEASE_SECONDS: u64 = 40;
/// So many other nodes must renew their Leases, so often each, while this host watches. One of them can be the node of this host.
const RENEWING_NODES: usize = 2;
const RENEWALS: u32 = 2;
/// The Leases of so many nodes are watched at most.
const WATCHED_LEASES: u32 = 100;
/// The time limit of one request. A slow one could hide that no kubelet can renew its Lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The wait for the loss of a node.
pub(super) struct LostNode<'a> {
    node: &'a HostName,
    silence: Option<Silence>,
    others: SeenRenewals,
    port: KubeletPort,
}

/// Since when a Lease was not renewed.
struct Silence {
    /// The time in the Lease.
    renewed: String,
    since: Instant,
}

/// For how long a Lease must not have been renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SilenceLimits {
    /// Since the last renewal.
    silence: Duration,
    /// How much of it this host saw.
    seen: Duration,
}

/// The last renewal of each other node's Lease, and how many renewals this host saw.
#[derive(Default)]
struct SeenRenewals(BTreeMap<String, (String, u32)>);

/// The port of the kubelet, to which this host connects again and again.
#[derive(Default)]
struct KubeletPort {
    /// The connection that is being tried: whether the host answers it.
    attempt: Option<Receiver<bool>>,
    /// The connections since the last answer.
    silent: u32,
}

/// What the API server says about a node.
enum ReportedNode {
    /// It is not Ready, or does not exist.
    Lost,
    /// It is Ready. Its Lease was renewed at this time. Without limits, silence proves nothing yet.
    Ready { renewed: String, limits: Option<SilenceLimits> },
}

impl<'a> LostNode<'a> {
    pub(super) fn new(node: &'a HostName) -> Self {
        Self { node, silence: None, others: SeenRenewals::default(), port: KubeletPort::default() }
    }

    /// Whether the node is lost.
    ///
    /// # Errors
    /// What speaks against it. The text does not change while only time passes.
    pub(super) fn check(&mut self, host: &HostSystem, api: &Api) -> Result<(), String> {
        let asked = Instant::now();
        let report = match self.report(host, api) {
            Ok(report) => report,
            Err(why) => {
                // Meanwhile, a kubelet may have been unable to renew its Lease.
                self.silence = None;
                self.others = SeenRenewals::default();
                return Err(why);
            }
        };
        let (answered, today) = (Instant::now(), SystemTime::now());
        let is_lost = match report {
            ReportedNode::Lost => true,
            ReportedNode::Ready { renewed, limits } => {
                self.is_silent(&renewed, asked..answered, today, limits)
            }
        };
        if is_lost {
            return Ok(());
        }
        Err(format!("node {} is still Ready: its kubelet runs", self.node))
    }

    fn report(&mut self, host: &HostSystem, api: &Api) -> Result<ReportedNode, String> {
        let node = read(api, &format!("/api/v1/nodes/{}", self.node))?;
        let Some(node) = node.filter(|node| not_ready(node).is_none()) else {
            return Ok(ReportedNode::Lost);
        };
        let is_cut_off = self.port.is_silent(kubelet_place(&node));
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let lease = read(api, &format!("{leases}/{}", self.node))?.unwrap_or_default();
        let renewed = lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
        let started = api_server_start(host);
        if is_cut_off && has_renewed_since(started, &renewed) {
            return Ok(ReportedNode::Ready { renewed, limits: Some(CUT_OFF_LIMITS) });
        }
        if has_settled(started, &renewed, SystemTime::now()) {
            return Ok(ReportedNode::Ready { renewed, limits: Some(SETTLED_LIMITS) });
        }
        let list = read(api, &format!("{leases}?limit={WATCHED_LEASES}"))?.unwrap_or_default();
        self.others.see(self.node, &list);
        let limits = self.others.reach_the_cluster().then(|| {
            let seconds = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(LEASE_SECONDS);
            SilenceLimits { silence: Duration::from_secs(seconds) + LEASE_MARGIN, seen: UNSETTLED_SEEN }
        });
        Ok(ReportedNode::Ready { renewed, limits })
    }

    /// Whether the Lease was not renewed for too long. `asked` is the time from the request to its answer: the Lease was as reported at
    /// some time in it. `today` is the clock of this host.
    fn is_silent(
        &mut self,
        renewed: &str,
        asked: Range<Instant>,
        today: SystemTime,
        limits: Option<SilenceLimits>,
    ) -> bool {
        match &self.silence {
            Some(silence) if silence.renewed == renewed => {
                let seen = asked.start.saturating_duration_since(silence.since);
                let lasts = |limits: SilenceLimits| {
                    seen >= limits.silence || seen >= limits.seen && age(renewed, today) >= limits.silence
                };
                limits.is_some_and(lasts)
            }
            _ => {
                self.silence = Some(Silence { renewed: renewed.to_owned(), since: asked.end });
                false
            }
        }
    }
}

impl SeenRenewals {
    /// Compares a list of Leases with those seen before. That of `lost` does not count.
    fn see(&mut self, lost: &HostName, list: &Value) {
        for lease in list["items"].as_array().into_iter().flatten() {
            let (name, renewed) = (lease["metadata"]["name"].as_str(), lease["spec"]["renewTime"].as_str());
            let Some((name, renewed)) = name.zip(renewed).filter(|(name, _)| *name != lost.as_str()) else {
                continue;
            };
            let (last, count) = self.0.entry(name.to_owned()).or_insert_with(|| (renewed.to_owned(), 0));
            if last.as_str() != renewed {
                renewed.clone_into(last);
                *count += 1;
            }
        }
    }

    /// Whether enough kubelets, so at least one of another host, reach the cluster.
    fn reach_the_cluster(&self) -> bool {
        self.0.values().filter(|(_, count)| *count >= RENEWALS).count() >= RENEWING_NODES
    }
}

impl KubeletPort {
    /// Takes the result of the last connection and begins the next one. Returns whether no connection is answered.
    fn is_silent(&mut self, place: Option<SocketAddr>) -> bool {
        match self.attempt.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return self.silent >= SILENT_CONNECTIONS,
            Some(Ok(true)) => self.silent = 0,
            Some(Ok(false)) => self.silent += 1,
            // A thread without a result shows nothing.
            Some(Err(TryRecvError::Disconnected)) | None => {}
        }
        self.attempt = place.map(try_connection);
        self.silent >= SILENT_CONNECTIONS
    }
}

/// Connects without waiting for the result: whether the host answers. A connection that this host itself cannot make shows nothing
/// and counts as an answer.
fn try_connection(place: SocketAddr) -> Receiver<bool> {
    let (sender, receiver) = channel();
    let answers = move || match TcpStream::connect_timeout(&place, CONNECT_TIMEOUT) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable),
    };
    // The send fails when the wait has ended.
    thread::spawn(move || {
        let _ = sender.send(answers());
    });
    receiver
}

/// Where other hosts reach the kubelet of a node; `None` if it has not reported it.
fn kubelet_place(node: &Value) -> Option<SocketAddr> {
    let status = &node["status"];
    let mut addresses = status["addresses"].as_array()?.iter();
    let internal = addresses.find(|address| address["type"] == "InternalIP")?;
    let address: IpAddr = internal["address"].as_str()?.parse().ok()?;
    let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64()?;
    Some(SocketAddr::new(address, u16::try_from(port).ok()?))
}

/// When the API server of this host was started, in microseconds since 1970; `None` if it does not run.
fn api_server_start(host: &HostSystem) -> Option<i64> {
    let states = host.services.states(&API_SERVERS.map(str::to_owned)).unwrap_or_default();
    let running = states.values().filter(|state| state.active == "active" && state.started > 0);
    running.map(|state| since_1970(state.started)).max()
}

/// Whether silence of a kubelet that renewed its Lease at this time counts: it did so after the start of the API server of this
/// host, or that was so long ago that every kubelet that runs has reached it.
fn has_settled(started: Option<i64>, renewed: &str, today: SystemTime) -> bool {
    let Some(started) = started else { return false };
    let earliest = system_time(started) + CLOCK_MARGIN;
    microseconds(renewed).is_some_and(|renewed| system_time(renewed) >= earliest)
        || since(started, today) >= SETTLED
}

/// Whether a kubelet renewed its Lease at this time and the API server of this host was started before, as their two clocks say.
fn has_renewed_since(started: Option<i64>, renewed: &str) -> bool {
    started.zip(microseconds(renewed)).is_some_and(|(started, renewed)| renewed >= started)
}

/// The time since a time that another host wrote. Zero if it is not a time.
fn age(written: &str, today: SystemTime) -> Duration {
    microseconds(written).map(|written| since(written, today)).unwrap_or_default()
}

/// The time since a time in microseconds since 1970. Zero if it is later.
fn since(before: i64, today: SystemTime) -> Duration {
    today.duration_since(system_time(before)).unwrap_or_default()
}

/// A time in microseconds since 1970.
fn system_time(microseconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
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
            lost.is_silent(renewed, now..now, PAST, Some(SETTLED_LIMITS))
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
            let today = SystemTime::UNIX_EPOCH + noon + Duration::from_secs(age);
            lost.is_silent(renewed, now..now, today, Some(SETTLED_LIMITS))
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
            let renewed = "2026-01-31T12:00:00.000000Z";
            lost.is_silent(renewed, at(asked)..at(answered), PAST, Some(SETTLED_LIMITS))
        };
        assert!(!at(0, 5));
        assert!(!at(29, 34), "known from second 5 to second 29");
        assert!(at(30, 30));
    }

    #[test]
    fn an_api_server_that_has_just_started_needs_a_longer_silence() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let renewed = "2026-01-31T12:00:00.000000Z";
        let noon = system_time(microseconds(renewed).unwrap());
        let limits = SilenceLimits { silence: Duration::from_secs(45), seen: UNSETTLED_SEEN };
        let mut at = |seen: u64, age: u64, known: Option<SilenceLimits>| {
            let now = begin + Duration::from_secs(seen);
            lost.is_silent(renewed, now..now, noon + Duration::from_secs(age), known)
        };
        assert!(!at(0, 3600, Some(limits)));
        assert!(!at(24, 3600, Some(limits)));
        assert!(!at(25, 44, Some(limits)));
        assert!(!at(100, 3600, None), "no other kubelet reaches the cluster");
        assert!(at(25, 45, Some(limits)));
        assert!(!at(44, 0, Some(limits)));
        assert!(at(45, 0, Some(limits)), "the clock of the other host is ahead");
    }

    #[test]
    fn a_node_whose_host_does_not_answer_is_lost_after_one_missed_renewal() {
        let node = "h3".parse().unwrap();
        let (mut lost, begin) = (LostNode::new(&node), Instant::now());
        let noon = system_time(microseconds("2026-01-31T12:00:00Z").unwrap());
        let mut at = |renewed: &str, seen: u64, age: u64| {
            let now = begin + Duration::from_secs(seen);
            lost.is_silent(renewed, now..now, noon + Duration::from_secs(age), Some(CUT_OFF_LIMITS))
        };
        let renewed = "2026-01-31T12:00:00.000000Z";
        assert!(!at(renewed, 0, 3600), "the clock of the other host may be wrong");
        assert!(!at(renewed, 3, 3600));
        assert!(!at(renewed, 4, 11), "it may renew");
        assert!(at(renewed, 4, 12));
        assert!(!at("2026-01-31T12:00:10.000000Z", 5, 13), "it renewed through another API server");
    }

    #[test]
    fn only_connections_without_an_answer_show_a_host_that_is_cut_off() {
        let mut port = KubeletPort::default();
        assert!(!port.is_silent(None), "the kubelet has not reported its port");
        let mut after = |answer: bool| {
            let (sender, receiver) = channel();
            sender.send(answer).unwrap();
            port.attempt = Some(receiver);
            port.is_silent(None)
        };
        assert_eq!([false, false, false, true].map(&mut after), [false, false, true, false]);
        assert_eq!([false, false, false].map(&mut after), [false, false, true]);
        // A connection that is being tried changes nothing.
        let (_sender, receiver) = channel();
        port.attempt = Some(receiver);
        assert!(port.is_silent(None) && port.attempt.is_some());
    }

    #[test]
    fn a_port_without_a_program_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        assert!(try_connection(place).recv().unwrap());
        drop(listener);
        assert!(try_connection(place).recv().unwrap(), "the host refuses the connection");
    }

    #[test]
    fn the_port_of_a_kubelet_is_that_of_its_node() {
        let node = json!({"status": {
            "addresses": [{"type": "Hostname", "address": "h3"}, {"type": "InternalIP", "address": "10.0.0.3"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        }});
        assert_eq!(kubelet_place(&node), Some("10.0.0.3:10250".parse().unwrap()));
        assert_eq!(kubelet_place(&json!({"status": {"addresses": []}})), None);
    }

    #[test]
    fn only_an_api_server_that_has_run_for_a_while_shows_silence() {
        let today = SystemTime::now();
        // A service and a static pod.
        for unit in API_SERVERS {
            let bench = Bench::new();
            let settled = |today| has_settled(api_server_start(&bench.host), "", today);
            bench.services.running.lock().insert(unit.to_owned());
            assert!(!settled(today), "it never started");
            *bench.services.started.lock() = 1;
            assert!(settled(today + SETTLED), "it has run since the boot");
            assert!(!settled(SystemTime::UNIX_EPOCH), "it started later");
            bench.services.running.lock().clear();
            assert!(!settled(today + SETTLED));
        }
    }

    #[test]
    fn a_kubelet_that_has_reached_the_api_server_since_its_start_can_be_silent() {
        let noon = microseconds("2026-01-31T12:00:00Z").unwrap();
        let today = system_time(noon) + Duration::from_secs(30);
        assert!(has_settled(Some(noon), "2026-01-31T12:00:10.000000Z", today));
        assert!(!has_settled(Some(noon), "2026-01-31T12:00:09.999999Z", today), "a clock can be ahead");
        assert!(!has_settled(Some(noon), "2026-01-31T11:59:59.000000Z", today));
        assert!(!has_settled(None, "2026-01-31T12:00:10.000000Z", today), "it does not run");
        assert!(has_renewed_since(Some(noon), "2026-01-31T12:00:00.000000Z"));
        assert!(!has_renewed_since(Some(noon), "2026-01-31T11:59:59.999999Z"));
        assert!(!has_renewed_since(None, "2026-01-31T12:00:10.000000Z"));
    }

    #[test]
    fn two_other_kubelets_that_renew_twice_reach_the_cluster() {
        let (lost, mut seen) = ("h3".parse().unwrap(), SeenRenewals::default());
        let mut see = |times: [(&str, u32); 3]| {
            let lease = |(name, second): (&str, u32)| {
                let renewed = format!("2026-01-31T12:00:{second:02}.000000Z");
                json!({"metadata": {"name": name}, "spec": {"renewTime": renewed}})
            };
            seen.see(&lost, &json!({ "items": times.map(lease) }));
            seen.reach_the_cluster()
        };
        assert!(!see([("h1", 0), ("h2", 1), ("h3", 2)]));
        assert!(!see([("h1", 10), ("h2", 11), ("h3", 12)]), "they renewed once");
        assert!(!see([("h1", 20), ("h2", 11), ("h3", 22)]), "the node itself does not count");
        assert!(!see([("h1", 30), ("h2", 11), ("h3", 22)]), "one is not enough");
        assert!(see([("h1", 30), ("h2", 21), ("h3", 22)]));
        assert!(!SeenRenewals::default().reach_the_cluster());
    }

    #[test]
    fn an_api_server_that_does_not_answer_begins_the_wait_again() {
        let mut bench = Bench::new();
        let requests = serve(&mut bench, |_, path, number| match number {
            3 => Reply::Json(500, String::new()),
            5.. => Reply::Json(404, String::new()),
            _ if path.contains("/leases") => {
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
        assert!(paths[1].ends_with("/leases/h3") && paths[2].ends_with("/leases?limit=100"), "{paths:?}");
    }
}
