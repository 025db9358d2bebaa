//! One command at a time per lab.
//!
//! The lock is an abstract Unix socket. It is not a file, so `down` leaves none, and the kernel releases it however
//! the owner ends. A child owns a copy until its exec, so the process that gets the lock after a crash finds every
//! child of the last owner with the lab's mark.

use std::{
    io::ErrorKind,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Error, LabName, Result};

/// A lock; released when dropped.
#[derive(Debug)]
pub(crate) struct LabLock(#[allow(dead_code, reason = "owning the socket is the lock")] UnixListener);

impl LabLock {
    /// The lock of one lab. Waits up to 10 s for another command.
    pub(crate) fn lab(name: &LabName) -> Result<Self> {
        Self::take(&format!("kubeon-lab/{name}"), &format!("lab {name}"), Duration::from_secs(10))
    }

    /// The lock of the machine's subnets: a command owns it while it chooses a subnet and reserves it by a route.
    pub(crate) fn subnets() -> Result<Self> {
        Self::take("kubeon-lab//subnets", "the list of lab subnets", Duration::from_secs(20))
    }

    fn take(socket: &str, what: &str, timeout: Duration) -> Result<Self> {
        let start = |source| Error::Start { program: format!("lock of {what}"), source };
        let address = SocketAddr::from_abstract_name(socket).map_err(start)?;
        let begin = Instant::now();
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(listener) => return Ok(Self(listener)),
                Err(error) if error.kind() != ErrorKind::AddrInUse => return Err(start(error)),
                Err(_) if begin.elapsed() >= timeout => {
                    return Err(Error::Busy { what: what.to_owned(), waited: begin.elapsed() });
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_command_is_refused_until_the_first_ends() {
        let socket = format!("kubeon-lab/test-{}", std::process::id());
        let first = LabLock::take(&socket, "x", Duration::ZERO).unwrap();
        assert!(matches!(LabLock::take(&socket, "x", Duration::ZERO), Err(Error::Busy { .. })));
        drop(first);
        // A child that another test starts owns a copy until its exec.
        LabLock::take(&socket, "x", Duration::from_secs(10)).unwrap();
    }
}
