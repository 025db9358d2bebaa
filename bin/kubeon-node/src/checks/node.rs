//! The proof that the node of this host works after its services were started.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

use kubeon_api::Version;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::failure::plain;
use crate::host::HostSystem;
use crate::https::Https;

const KUBELET: &str = "kubelet.service";
/// Units that the kubelet does not use. When they restart together with it, they start after it, and its next renewal is up to 10 s
/// later.
const NETWORK_AGENTS: [&str; 2] = ["kube-proxy.service", "flanneld.service"];
/// Microseconds from the start of the kubelet to that of units that restart together with it.
const ONE_RESTART: u64 = 60_000_000;
/// The time limit of a question to the kubelet on this host.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit of a request to the API server.
const HTTPS_TIMEOUT: Duration = Duration::from_secs(10);

/// Pods that became not ready this long before the kubelet started did so because of the same change: the container runtime starts
/// first.
const PODS_BEFORE_SECONDS: i64 = 60;

/// What is known of the node of this host and how to ask for more.
pub(super) struct Proof<'a> {
    pub(super) node: &'a str,
    /// The version of the kubelet, if it was started: then its pods are looked at, too.
    pub(super) version: Option<Version>,
    pub(super) units: &'a [String],
    pub(super) health_port: u16,
    pub(super) https: Https,
    /// The URL of an API server.
    pub(super) api: String,
    /// Whether a node that lacks nothing but a network of pods is ready enough.
    pub(super) may_lack_network: bool,
}

impl Proof<'_> {
    /// Whether the node works.
    ///
    /// # Errors
    /// What is missing. The text does not change while only time passes.
    pub(super) fn check(&self, host: &HostSystem) -> Result<(), String> {
        let starts = start_times(host, self.units)?;
        kubelet_is_healthy(self.health_port)?;
        self.node_is_ready_since(starts.kubelet)?;
        self.lease_is_newer_than(starts.before_lease)?;
        // The list is long, so it is the last question.
        if self.version.is_some() { self.pods_are_ready_again(starts.kubelet) } else { Ok(()) }
    }

    /// The node is Ready, and its kubelet has reported so since its start: before, the condition is that of the kubelet
    /// before. Kubernetes writes the time of the report in whole seconds.
    fn node_is_ready_since(&self, started: i64) -> Result<(), String> {
        let node = self.get(&format!("/api/v1/nodes/{}", self.node))?;
        if let Some(why) = super::cluster::not_up(&node, self.may_lack_network) {
            return Err(format!("node {} is not Ready: {why}", self.node));
        }
        let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
        let other = |wanted: &Version| version.parse::<Version>().is_ok_and(|version| version != *wanted);
        if let Some(wanted) = self.version.filter(other) {
            return Err(format!("node {} reports kubelet {version}, not {wanted}", self.node));
        }
        let reported =
            ready_condition(&node).and_then(|ready| microseconds(ready["lastHeartbeatTime"].as_str()?));
        if reported.is_some_and(|reported| reported / 1_000_000 >= started / 1_000_000) {
            return Ok(());
        }
        Err(format!("the kubelet has not reported node {} as Ready since its last start", self.node))
    }

    /// The kubelet of this host writes the Lease, so both times are of the same clock.
    fn lease_is_newer_than(&self, started: i64) -> Result<(), String> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", self.node);
        let lease = self.get(&path)?;
        let renewed = lease["spec"]["renewTime"].as_str().and_then(microseconds);
        if renewed.is_some_and(|renewed| renewed > started) {
            return Ok(());
        }
        Err(format!("the kubelet has not renewed the Lease of node {} since its last start", self.node))
    }

    /// Pods that were ready before the kubelet started are ready. Pods that were not, that are new or that end prove nothing.
    fn pods_are_ready_again(&self, started: i64) -> Result<(), String> {
        // Of all fields, a kubelet may select the pods of its own node only.
        let list = self.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.node))?;
        let pods = list["items"].as_array().into_iter().flatten();
        let lost: Vec<&Value> = pods.filter(|pod| lost_readiness(pod, started)).collect();
        let Some(first) = lost.first() else { return Ok(()) };
        let text = |field: &str| first["metadata"][field].as_str().unwrap_or_default();
        let more = if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() };
        let why = ready_condition(first).and_then(|ready| ready["reason"].as_str()).unwrap_or("not Ready");
        let pod = format!("pod {}/{}{more}", text("namespace"), text("name"));
        Err(format!("{pod} of node {} was ready before its kubelet started: {why}", self.node))
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        let url = format!("{}{path}", self.api);
        match self.https.get(&url, HTTPS_TIMEOUT) {
            Ok(answer) if answer.status == 200 => {
                serde_json::from_str(&answer.body).map_err(|error| format!("{url} answers no JSON: {error}"))
            }
            Ok(answer) => Err(format!("{url} answers {}", answer.status)),
            Err(why) => Err(format!("{url} does not answer: {why}")),
        }
    }
}

/// The condition `Ready` of a node or a pod.
fn ready_condition(object: &Value) -> Option<&Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Ready")
}

/// Whether the pod became not ready since shortly before the kubelet started, in microseconds since 1970. The kubelet of this host
/// writes the time.
fn lost_readiness(pod: &Value, started: i64) -> bool {
    let since = (started / 1_000_000 - PODS_BEFORE_SECONDS) * 1_000_000;
    let time = |value: &Value| value.as_str().and_then(microseconds);
    let ends = !pod["metadata"]["deletionTimestamp"].is_null()
        || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let is_new = time(&pod["metadata"]["creationTimestamp"]).is_none_or(|created| created >= since);
    let lost = ready_condition(pod).filter(|ready| ready["status"] != "True");
    let changed = lost.and_then(|ready| time(&ready["lastTransitionTime"]));
    !ends && !is_new && changed.is_some_and(|changed| changed >= since)
}

/// When units were started, in microseconds since 1970.
struct StartTimes {
    kubelet: i64,
    /// The start after which the kubelet must renew the Lease.
    before_lease: i64,
}

/// When the units were started. All of them run.
fn start_times(host: &HostSystem, units: &[String]) -> Result<StartTimes, String> {
    let states = host.services.states(units).map_err(|failure| failure.cause)?;
    let kubelet = states.get(KUBELET).map_or(0, |state| state.started);
    let mut before_lease = kubelet;
    for unit in units {
        let state = states.get(unit).cloned().unwrap_or_default();
        if state.active != "active" {
            return Err(format!("{unit} is {}", state.verdict()));
        }
        if needs_lease(unit, state.started, kubelet) {
            before_lease = state.started.max(before_lease);
        }
    }
    Ok(StartTimes { kubelet: since_1970(kubelet), before_lease: since_1970(before_lease) })
}

/// Whether the kubelet must renew the Lease after the start of a unit. The times are of the monotonic clock, in microseconds.
fn needs_lease(unit: &str, started: u64, kubelet: u64) -> bool {
    !NETWORK_AGENTS.contains(&unit) || started.saturating_sub(kubelet) > ONE_RESTART
}

/// Microseconds since 1970 of a time of the monotonic clock, in microseconds.
#[must_use]
pub fn since_1970(monotonic: u64) -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0));
    let ago = now.saturating_sub(Duration::from_micros(monotonic));
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(today.saturating_sub(ago).as_micros()).unwrap_or(i64::MAX)
}

/// Whether the kubelet reports that it is healthy. It serves this without TLS, on its own host only.
fn kubelet_is_healthy(port: u16) -> Result<(), String> {
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&place, CHECK_TIMEOUT)?;
        stream.set_read_timeout(Some(CHECK_TIMEOUT))?;
        stream.set_write_timeout(Some(CHECK_TIMEOUT))?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(4096).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error: std::io::Error| {
        format!("the kubelet does not report its health on {place}: {}", plain(&error))
    })?;
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok(())
    } else {
        Err(format!("the kubelet is not healthy: {status}"))
    }
}

/// Microseconds since 1970 of a time as Kubernetes writes it: `2026-01-31T12:00:00.123456Z`.
pub(super) fn microseconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let numbers =
        |text: &str, sign| text.split(sign).map(|word| word.parse().ok()).collect::<Option<Vec<i64>>>();
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let [hour, minute, second] = numbers(time, ':')?.try_into().ok()?;
    let fraction: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000 + fraction)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that the leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
