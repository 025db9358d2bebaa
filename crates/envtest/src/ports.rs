//! Free ports for programs that must be told their port.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::EnvtestError;

/// Linux gives connections and listeners without a port of their own one from 32768 on. Nobody else takes a port below
/// between its choice and its use.
const PORTS: Range<u16> = 20_000..30_000;

/// A free TCP port of this address. No two calls of a process return the same port.
///
/// # Errors
/// When every port is in use, or the address is not one of this machine.
pub fn free_port(address: Ipv4Addr) -> Result<u16, EnvtestError> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let mut last = None;
    for _ in PORTS {
        // Test programs that run at the same time begin at different ports.
        let at = (std::process::id() * 100 + u32::from(TAKEN.fetch_add(1, Ordering::Relaxed))) % count;
        let port = PORTS.start + u16::try_from(at).unwrap_or_default();
        match TcpListener::bind((address, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(EnvtestError::Port(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_none_that_the_kernel_gives_to_connections() {
        let ports = [(); 8].map(|()| free_port(Ipv4Addr::LOCALHOST).unwrap());
        let mut different = ports.to_vec();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ports.len(), "{ports:?}");
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(ports.iter().all(|port| PORTS.contains(port) && *port < first), "{ports:?} {range}");
    }

    #[test]
    fn a_port_in_use_is_not_returned() {
        let used = free_port(Ipv4Addr::LOCALHOST).unwrap();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, used + 1)).unwrap();
        assert_ne!(free_port(Ipv4Addr::LOCALHOST).unwrap(), used + 1);
    }
}
