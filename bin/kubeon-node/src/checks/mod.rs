//! Waiting until something holds. What was last seen is kept, so that a wait in vain says why.

mod cluster;
mod dns;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use kubeon_wire::{Check, StepFailure};

use crate::failure::plain;
use crate::https::Https;
use crate::job::Job;
use crate::root::Root;

/// Between two looks at something on this host.
const NEAR: Duration = Duration::from_millis(40);
/// Between two looks at something elsewhere.
const FAR: Duration = Duration::from_millis(200);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(2);

/// Waits until all checks hold, one after the other. `healthy` is asked between looks and ends the wait
/// early when there is nothing left to wait for.
///
/// # Errors
/// `Category::Timeout` with what was last seen, or what `healthy` says.
pub fn hold(
    job: &Job<'_>,
    checks: &[Check],
    healthy: &dyn Fn() -> Result<(), StepFailure>,
) -> Result<(), StepFailure> {
    checks.iter().try_for_each(|check| hold_one(job, check, healthy))
}

fn hold_one(
    job: &Job<'_>,
    check: &Check,
    healthy: &dyn Fn() -> Result<(), StepFailure>,
) -> Result<(), StepFailure> {
    let root = &job.host.root;
    let look = |address: &Ipv4Addr| if is_near(*address) { NEAR } else { FAR };
    match check {
        Check::NodesReady { nodes } => cluster::nodes_ready(job, nodes),
        Check::DeploymentAvailable { namespace, name } => cluster::deployment_available(job, namespace, name),
        Check::Tcp { address, port } => {
            let place = SocketAddrV4::new(*address, *port);
            until(job, look(address), healthy, &mut || tcp(place))
        }
        Check::Https { address, port, path, ca_file, certificate_file, key_file } => {
            let files = [Some(ca_file), certificate_file.as_ref(), key_file.as_ref()];
            let https = open(root, files)?;
            let url = format!("https://{address}:{port}{path}");
            until(job, look(address), healthy, &mut || ask(&https, &url))
        }
        Check::Socket { path } => {
            let place = root.given(path)?;
            until(job, NEAR, healthy, &mut || match UnixStream::connect(&place) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("nothing answers on the socket {path}: {}", plain(&error))),
            })
        }
        Check::Path { path } => {
            let place = root.given(path)?;
            until(job, NEAR, healthy, &mut || match place.try_exists() {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("{path} does not exist")),
                Err(error) => Err(format!("cannot look at {path}: {}", plain(&error))),
            })
        }
        Check::Dns { server, name } => {
            let question = dns::Question::new(name)?;
            until(job, FAR, healthy, &mut || question.ask(SocketAddrV4::new(*server, 53)))
        }
        Check::Reachable { addresses, port } => addresses.iter().try_for_each(|address| {
            let place = SocketAddrV4::new(address.ip(), *port);
            until(job, FAR, healthy, &mut || tcp(place).map_err(|why| format!("from this host, {why}")))
        }),
    }
}

/// Looks again and again until it holds, the deadline comes, or `healthy` ends it.
fn until(
    job: &Job<'_>,
    interval: Duration,
    healthy: &dyn Fn() -> Result<(), StepFailure>,
    look: &mut dyn FnMut() -> Result<(), String>,
) -> Result<(), StepFailure> {
    loop {
        let Err(seen) = look() else { return Ok(()) };
        healthy()?;
        job.pause(interval, || seen.clone())?;
    }
}

fn tcp(place: SocketAddrV4) -> Result<(), String> {
    let connected = TcpStream::connect_timeout(&SocketAddr::V4(place), LOOK);
    connected.map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("nothing listens on {place}"),
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
    match https.get(url, LOOK) {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => Err(format!("{url} answers {}{}", answer.status, trouble(&answer.body))),
        Err(why) => Err(format!("{url} does not answer: {why}")),
    }
}

/// The lines of a health report that tell what is not well: `[-]etcd failed: …`.
fn trouble(body: &str) -> String {
    let bad: Vec<_> = body.lines().filter(|line| line.starts_with("[-]")).take(3).collect();
    if bad.is_empty() { String::new() } else { format!(": {}", bad.join(", ")) }
}

/// Whether an address is one of this host's own: only those can be bound.
fn is_near(address: Ipv4Addr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
