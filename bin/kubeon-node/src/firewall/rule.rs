//! A rule of a firewall, whatever the program.

use std::time::Instant;

use kubeon_wire::{PacketMatch, StepFailure, Transport};
use serde::{Deserialize, Serialize};

use crate::command::{run, step_failure};
use crate::failure::failed;

/// A rule that lets packets pass.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FirewallRule {
    /// Packets to ports of the host, in the form of the program.
    LetIn(String),
    /// Everything that arrives on a link of the pod network, to the host and through it.
    PodLink(String),
}

/// Runs a program that must succeed; returns its standard output.
pub(super) fn must(program: &str, arguments: &[&str], deadline: Instant) -> Result<String, StepFailure> {
    must_with(program, arguments, None, deadline)
}

/// As [`must`], with this standard input.
pub(super) fn must_with(
    program: &str,
    arguments: &[&str],
    input: Option<String>,
    deadline: Instant,
) -> Result<String, StepFailure> {
    let done = run(program, arguments, input, deadline).map_err(step_failure)?;
    if done.success() {
        return Ok(done.stdout);
    }
    Err(failed(format!("{program} {}: {}", arguments.join(" "), done.last_line())))
}

/// The protocol and the ports, with `between` in a range.
pub(super) fn ports(packets: &PacketMatch, between: char) -> Option<(&'static str, String)> {
    let (first, last) = packets.ports?;
    let protocol = match packets.transport? {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    let ports = if first == last { first.to_string() } else { format!("{first}{between}{last}") };
    Some((protocol, ports))
}

/// The source without the prefix length of a single address.
pub(super) fn source(packets: &PacketMatch) -> Option<String> {
    let net = packets.source?.net();
    Some(if net.prefix_len() == 32 { net.addr().to_string() } else { net.to_string() })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The packets of one host to these ports.
    pub(in crate::firewall) fn packets(
        source: Option<&str>,
        transport: Transport,
        ports: (u16, u16),
    ) -> PacketMatch {
        let source = source.map(|text| text.parse().unwrap());
        PacketMatch { source, transport: Some(transport), ports: Some(ports), ..PacketMatch::default() }
    }
}
