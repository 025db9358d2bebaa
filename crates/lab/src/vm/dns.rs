//! The name server of a lab of virtual machines, in place of the servers that real hosts forward to. It knows one name.

use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error, LabName, Result,
    cgroup::Cgroups,
    net::{self, SWITCH},
    process,
    tool::Tool,
};

/// The name that it answers, with the address of the switch; any other name does not exist.
const NAME: &str = "outside.test";
const PROGRAM: &str = "dnsmasq";
const LOG: &str = "dns.log";
/// Time limit for the first answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts it unless it runs. It lives in the switch's cgroup and ends with it.
pub(crate) fn ensure(
    lab: &LabName,
    cgroups: &Cgroups,
    switch: i32,
    script: &Path,
    addresses: &[Ipv4Addr],
) -> Result<()> {
    if runs(lab, cgroups)? {
        return Ok(());
    }
    let Some(&address) = addresses.first() else { return Ok(()) };
    let log = script.with_file_name(LOG);
    Tool::of_lab(lab, "setsid")
        .args(["--fork", "bash"])
        .args([script])
        .args(["dns"])
        .args(command(addresses, address))
        .env("LAB_HOST", SWITCH)
        .env("LAB_CGROUPS", cgroups.lines(lab, SWITCH))
        .env("LAB_SWITCH", net::namespace(switch))
        .detach(&log)?;
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        if answers(address) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(Error::Wait {
        what: format!("the name server of lab {lab} does not answer"),
        waited: begin.elapsed(),
        log: fs::read_to_string(log).unwrap_or_default(),
    })
}

fn runs(lab: &LabName, cgroups: &Cgroups) -> Result<bool> {
    let pids = cgroups.processes(lab, SWITCH, "payload")?;
    Ok(pids.into_iter().any(|pid| process::argument_zero(pid).as_deref() == Some(PROGRAM)))
}

fn command(addresses: &[Ipv4Addr], answer: Ipv4Addr) -> Vec<String> {
    let mut line: Vec<String> = vec![PROGRAM.into()];
    line.extend(["--keep-in-foreground", "--log-facility=-", "--log-queries"].map(str::to_owned));
    line.extend(["--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file="].map(str::to_owned));
    line.extend(
        ["--user=root", "--cache-size=0", "--bind-interfaces", "--except-interface=lo"].map(str::to_owned),
    );
    line.extend(addresses.iter().map(|address| format!("--listen-address={address}")));
    // The record has no IPv6 address, and no other name exists: both are answers, so nobody asks again.
    line.extend([format!("--host-record={NAME},{answer}"), "--address=/#/".to_owned()]);
    line
}

/// Whether the server answers a question for the name.
fn answers(server: Ipv4Addr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        socket.connect((server, 53))?;
        socket.send(&question())?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        Ok(length > 12 && answer[..2] == question()[..2])
    };
    ask().unwrap_or(false)
}

/// A DNS message that asks for the IPv4 address of the name (RFC 1035, section 4).
fn question() -> Vec<u8> {
    let mut message = vec![0x6b, 0x6c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in NAME.split('.') {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_on_the_switch_only_and_forwards_nothing() {
        let line = command(
            &[Ipv4Addr::new(172, 30, 0, 1), Ipv4Addr::new(172, 27, 0, 1)],
            Ipv4Addr::new(172, 30, 0, 1),
        );
        let line = line.join(" ");
        assert!(line.contains("--listen-address=172.30.0.1 --listen-address=172.27.0.1"), "{line}");
        assert!(line.contains("--no-resolv") && line.contains("--except-interface=lo"), "{line}");
        assert!(line.contains("--host-record=outside.test,172.30.0.1"), "{line}");
    }

    #[test]
    fn a_question_is_a_well_formed_message() {
        assert_eq!(&question()[12..], b"\x07outside\x04test\x00\x00\x01\x00\x01");
    }
}
