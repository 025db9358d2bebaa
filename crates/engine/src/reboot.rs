//! Reboots hosts that a cluster was removed from.

use std::time::Duration;

use futures::StreamExt as _;
use kubeon_api::HostAddress;
use kubeon_link_host::SshHosts;

use crate::cluster_nodes::{MAX_CONCURRENT, command_output};
use crate::error::EngineError;

/// Time limit until a host has accepted its reboot.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The identity of this machine. A control machine may be a host of its cluster.
const MACHINE_ID: &str = "/etc/machine-id";
/// A machine without identity, such as a container, is no host of a cluster.
const NO_IDENTITY: &str = "none";
/// Reboots the host unless its identity is `$1`. The reboot begins after this command has ended, so that its answer arrives.
const REBOOT: &str =
    "set -eu; [ \"$(cat /etc/machine-id)\" != \"$1\" ] || { echo 'kubeon runs on this host' >&2; exit 1; }
exec systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot";

/// Asks all hosts to reboot. Returns the hosts that did not accept it, with the cause.
///
/// # Errors
/// When the identity of this machine cannot be read.
pub(crate) async fn reboot(
    hosts: &SshHosts,
    addresses: &[HostAddress],
) -> Result<Vec<(HostAddress, String)>, EngineError> {
    let own = match std::fs::read_to_string(MACHINE_ID) {
        Ok(own) => own,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => NO_IDENTITY.to_owned(),
        Err(error) => return Err(EngineError::failed(format!("cannot read {MACHINE_ID}: {error}"))),
    };
    let line = shlex::try_join(["sh", "-c", REBOOT, "kubeon", own.trim()])
        .map_err(|error| EngineError::failed(format!("{MACHINE_ID} is no text: {error}")))?;
    let line = &line;
    let answers = futures::stream::iter(addresses.iter().copied())
        .map(|host| async move { (host, command_output(hosts, host, line, TIMEOUT).await) })
        .buffered(MAX_CONCURRENT)
        .collect::<Vec<_>>()
        .await;
    Ok(answers.into_iter().filter_map(|(host, answer)| Some((host, answer.err()?))).collect())
}
