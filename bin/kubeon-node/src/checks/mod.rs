//! Waits until checks pass. A timeout reports the last result of the check.

mod arguments;
mod cluster;
mod dns;
mod feature_gates;
mod lost_node;
mod node;
mod overlay;
mod progress;
mod tokens;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kubeon_wire::{Check, StepFailure};

use crate::api::Api;
use crate::durable::read_text;
use crate::failure::plain;
use crate::https::Https;
use crate::job::Job;
use crate::root::Root;
pub use node::since_1970;
use progress::SeenStates;

/// The interval between two checks of something on this host.
const LOCAL_INTERVAL: Duration = Duration::from_millis(40);
/// The interval between two checks of something on another host.
const REMOTE_INTERVAL: Duration = Duration::from_millis(200);
/// How much longer than a check the pause after it is, at least: otherwise the checks take the processor of a slow host from what
/// they wait for.
const PAUSE_FACTOR: u32 = 4;
/// The longest pause between two checks.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);
/// The time limit of one connection.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit of one HTTPS request. A slow host needs some seconds for `/readyz`.
const HTTPS_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until all checks pass, one after the other. `healthy` is called between two checks; its error ends
/// the wait early.
///
/// # Errors
/// `Category::Timeout` with the last result of the check, or the error of `healthy`.
pub fn wait_for(
    job: &Job<'_>,
    checks: &[Check],
    healthy: &dyn Fn() -> Result<(), StepFailure>,
) -> Result<(), StepFailure> {
    checks.iter().try_for_each(|check| wait_for_one(job, check, healthy))
}

fn wait_for_one(
    job: &Job<'_>,
    check: &Check,
    healthy: &dyn Fn() -> Result<(), StepFailure>,
) -> Result<(), StepFailure> {
    let root = &job.host.root;
    let interval = |address: &Ipv4Addr| if is_local(*address) { LOCAL_INTERVAL } else { REMOTE_INTERVAL };
    match check {
        Check::NodesReady { nodes, may_lack_network } => cluster::nodes_ready(job, nodes, *may_lack_network),
        Check::NodeNotReady { node } => {
            let (api, mut lost) = (Api::local(job.host)?, lost_node::LostNode::new(node));
            until(job, REMOTE_INTERVAL, healthy, &mut || lost.check(job.host, &api))
        }
        Check::DeploymentAvailable { namespace, name } => cluster::deployment_available(job, namespace, name),
        Check::NodeWorks {
            node,
            version,
            units,
            health_port,
            address,
            port,
            ca_file,
            identity_file,
            may_lack_network,
        } => {
            let https = open(root, [Some(ca_file), Some(identity_file), Some(identity_file)])?;
            let (node, version, health_port) = (node.as_str(), *version, *health_port);
            let (api, may_lack_network) = (format!("https://{address}:{port}"), *may_lack_network);
            let proof = node::Proof { node, version, units, health_port, https, api, may_lack_network };
            until(job, LOCAL_INTERVAL, healthy, &mut || proof.check(job.host))
        }
        Check::Tcp { address, port } => {
            let place = SocketAddrV4::new(*address, *port);
            until(job, interval(address), healthy, &mut || tcp(place))
        }
        Check::Https { address, port, path, ca_file, certificate_file, key_file } => {
            let files = [Some(ca_file), certificate_file.as_ref(), key_file.as_ref()];
            let https = open(root, files)?;
            let url = format!("https://{address}:{port}{path}");
            until(job, interval(address), healthy, &mut || ask(&https, &url))
        }
        Check::Socket { path } => {
            let place = root.given(path)?;
            until(job, LOCAL_INTERVAL, healthy, &mut || match UnixStream::connect(&place) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("no program answers on the socket {path}: {}", plain(&error))),
            })
        }
        Check::Path { path } => {
            let place = root.given(path)?;
            until(job, LOCAL_INTERVAL, healthy, &mut || match place.try_exists() {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("{path} does not exist")),
                Err(error) => Err(format!("cannot check {path}: {}", plain(&error))),
            })
        }
        Check::Dns { server, name } => {
            let query = dns::Query::new(name)?;
            until(job, REMOTE_INTERVAL, healthy, &mut || query.ask(SocketAddrV4::new(*server, 53)))
        }
        Check::DnsUpstream { server, resolv_conf } => upstream(job, *server, resolv_conf, healthy),
        Check::Overlay { node, name } => {
            let query = dns::Query::new(name)?;
            let api = Api::as_node(job.host)?;
            let ask = |pod| query.is_answered(SocketAddrV4::new(pod, 53));
            until(job, REMOTE_INTERVAL, healthy, &mut || overlay::prove(&api, node, &ask))
        }
        Check::PodTokens { unit } => {
            let mut wait = tokens::TokenWait::default();
            until(job, REMOTE_INTERVAL, healthy, &mut || wait.check(job.host, unit))
        }
        Check::AcceptsArguments { program, arguments } => arguments::accepted(job, program, arguments),
        Check::KnowsFeatureGates { program, arguments } => feature_gates::known(job, program, arguments),
        Check::Reachable { addresses, port } => addresses.iter().try_for_each(|address| {
            let place = SocketAddrV4::new(address.ip(), *port);
            until(job, REMOTE_INTERVAL, healthy, &mut || {
                tcp(place).map_err(|why| format!("from this host, {why}"))
            })
        }),
    }
}

/// Waits until the cluster's DNS server resolves names outside of the cluster as the name servers of this host do.
fn upstream(
    job: &Job<'_>,
    server: Ipv4Addr,
    resolv_conf: &str,
    healthy: &dyn Fn() -> Result<(), StepFailure>,
) -> Result<(), StepFailure> {
    let text = read_text(&job.host.root.given(resolv_conf)?)?.unwrap_or_default();
    let (query, servers) = (dns::Query::root(), dns::name_servers(&text));
    let mut found = dns::Upstream::Answers;
    until(job, REMOTE_INTERVAL, healthy, &mut || {
        found = query.ask_through(SocketAddrV4::new(server, 53), &servers)?;
        Ok(())
    })?;
    if found == dns::Upstream::Silent {
        job.note(format!("no name server in {resolv_conf} answers: only names of the cluster are resolved"));
    }
    Ok(())
}

/// Repeats `check` until it passes, the deadline is reached, or `healthy` returns an error.
fn until(
    job: &Job<'_>,
    interval: Duration,
    healthy: &dyn Fn() -> Result<(), StepFailure>,
    check: &mut dyn FnMut() -> Result<(), String>,
) -> Result<(), StepFailure> {
    let mut progress = SeenStates::default();
    loop {
        let start = Instant::now();
        let Err(seen) = check() else { return Ok(()) };
        let pause = start.elapsed().saturating_mul(PAUSE_FACTOR).clamp(interval, LONGEST_INTERVAL);
        progress.observe(job, &seen);
        healthy()?;
        job.pause(pause, || seen.clone())?;
    }
}

fn tcp(place: SocketAddrV4) -> Result<(), String> {
    let connected = TcpStream::connect_timeout(&SocketAddr::V4(place), CHECK_TIMEOUT);
    connected.map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("no program listens on {place}"),
        io::ErrorKind::TimedOut => format!("{place} does not answer"),
        _ => format!("{place} cannot be reached: {}", plain(&error)),
    })
}

fn open(root: &Root, files: [Option<&String>; 3]) -> Result<Https, StepFailure> {
    let [ca, certificate, key] = files.map(|file| file.map(|file| root.given(file)).transpose());
    let (ca, certificate, key) = (ca?, certificate?, key?);
    let identity = certificate.as_deref().zip(key.as_deref());
    Https::open(ca.as_deref().unwrap_or(std::path::Path::new("")), identity)
}

fn ask(https: &Https, url: &str) -> Result<(), String> {
    match https.get(url, HTTPS_TIMEOUT) {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => Err(format!("{url} answers {}{}", answer.status, trouble(&answer.body))),
        Err(why) => Err(format!("{url} does not answer: {why}")),
    }
}

/// The lines of a health report for failed checks: `[-]etcd failed: …`.
fn trouble(body: &str) -> String {
    let bad: Vec<_> = body.lines().filter(|line| line.starts_with("[-]")).take(3).collect();
    if bad.is_empty() { String::new() } else { format!(": {}", bad.join(", ")) }
}

/// Whether an address belongs to this host: only such an address can be bound.
fn is_local(address: Ipv4Addr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
