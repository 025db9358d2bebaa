//! How a host that receives a part forwards it to another one.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A host that forwards the bytes of a part while it receives them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartForwarder {
    /// Its address in the cluster's network.
    pub address: Ipv4Addr,
    /// The port at which it forwards parts in this run.
    pub port: u16,
    /// SHA-256 of each piece of [`PART_PIECE`] bytes in hexadecimal; the last piece may be shorter.
    pub pieces: Vec<String>,
}

/// The TCP port at which hosts forward parts, on their address in the cluster's network. While another program has it, they use
/// a free port.
pub const FORWARDING_PORT: u16 = 10270;

/// Bytes of a piece of a part, each of which is checked when it arrives. A host passes a piece on when all of it is there, so a
/// small piece delays the last host of a long chain little.
pub const PART_PIECE: usize = 256 << 10;
