//! Commands of a person or of a systemd unit on the host.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kubeon_node::host::HostSystem;
use kubeon_node::root::Root;
use kubeon_node::{api_service, firewall, program_server, renewal, reset};

/// Time limit for the programs of the firewall.
const FIREWALL_TIMEOUT: Duration = Duration::from_secs(50);

/// Renews the certificates that are due.
///
/// The lines start with a priority of the journal, because the service hides less important ones.
pub(crate) fn renew(root: Root) -> io::Result<u8> {
    let mut out = io::stderr();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
    let now = i64::try_from(now).map_err(io::Error::other)?;
    match renewal::run(&HostSystem::new(root), now) {
        Ok(report) => {
            report.notes.iter().try_for_each(|note| writeln!(out, "<5>{note}"))?;
            report.failures.iter().try_for_each(|failure| writeln!(out, "<3>error: {failure}"))?;
            Ok(u8::from(!report.failures.is_empty()))
        }
        Err(failure) => writeln!(out, "<3>error: {failure}").map(|()| 1),
    }
}

/// Opens the firewall again with the recorded rules.
pub(crate) fn restore_firewall(root: Root) -> io::Result<u8> {
    match firewall::restore(&root, Instant::now() + FIREWALL_TIMEOUT) {
        Ok(()) => Ok(0),
        Err(failure) => writeln!(io::stderr(), "<3>error: {failure}").map(|()| 1),
    }
}

/// Keeps the endpoints of the API's Service equal to the API servers that serve, until it is stopped.
pub(crate) fn publish_api(root: Root) -> ! {
    api_service::publish(&HostSystem::new(root), &mut print_line)
}

/// Keeps the API's name leading to an API server that answers, until it is stopped.
pub(crate) fn reach_api(root: Root) -> ! {
    api_service::reach(&HostSystem::new(root), &mut print_line)
}

/// Removes what [`reach_api`] wrote.
pub(crate) fn end_reach_api(root: Root) -> io::Result<u8> {
    match api_service::end(&HostSystem::new(root)) {
        Ok(()) => Ok(0),
        Err(failure) => writeln!(io::stderr(), "<3>error: {failure}").map(|()| 1),
    }
}

/// Prints a line into the journal. Without a reader of the lines, the service goes on.
fn print_line(line: &str) {
    let _ = writeln!(io::stderr(), "<5>{line}");
}

/// Removes everything of a cluster from this host.
pub(crate) fn reset(root: Root, name: &str) -> io::Result<u8> {
    let mut out = io::stdout();
    let outcome = match name.parse() {
        Ok(cluster) => reset::by_hand(&HostSystem::new(root), &cluster),
        Err(error) => return writeln!(io::stderr(), "error: {error}").map(|()| 2),
    };
    match outcome {
        Ok(true) => writeln!(out, "removed cluster {name} from this host").map(|()| 0),
        Ok(false) => writeln!(out, "nothing to remove: kubeon has no data on this host").map(|()| 0),
        Err(failure) => {
            writeln!(io::stderr(), "error: {failure}")?;
            failure.log.iter().try_for_each(|line| writeln!(io::stderr(), "  {line}"))?;
            Ok(1)
        }
    }
}

/// Serves the packed node program to other hosts, and prints the port, until standard input ends.
pub(crate) fn serve_program(address: &str, file: &str) -> io::Result<u8> {
    let mut out = io::stdout();
    let port = match address.parse() {
        Ok(address) => program_server::begin(address, Path::new(file)),
        Err(_) => Err(io::Error::other("it is not an IPv4 address")),
    };
    match port {
        Ok(port) => {
            writeln!(out, "{port}")?;
            out.flush()?;
            program_server::wait_for_end(io::stdin().lock());
            Ok(0)
        }
        Err(error) => writeln!(io::stderr(), "error: cannot serve {file} at {address}: {error}").map(|()| 1),
    }
}
