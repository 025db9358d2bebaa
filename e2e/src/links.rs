//! Counts the packets on the machine's links: packets to the lab, and packets of the lab on other links. The
//! counters are in a separate nftables table that accepts all packets. Dropping the value removes the table.
//!
//! ```text
//!   a host ─► the lab's link ─► arrived ─► passed on ──┐
//!   the machine's own programs ────────────────────────┴─► reached (the lab's link) | left (any other link)
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;

use anyhow::{Context as _, Result, ensure};

use crate::lab::TestLab;
use crate::program::must;

/// An address outside the lab, reserved for documentation (RFC 5737).
pub const OUTSIDE: &str = "198.51.100.1";

/// Packet counters of this machine.
pub struct Links {
    table: String,
    link: String,
    /// The machine's address in the lab.
    pub machine: String,
}

/// Numbers of counted packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets from the lab to [`OUTSIDE`].
    pub arrived: u64,
    /// Forwarded packets from the lab.
    pub passed: u64,
    /// Packets to the lab.
    pub reached: u64,
    /// Packets with an address of the lab's hosts, pods or services on another link than the lab's.
    pub left: u64,
}

impl Links {
    /// Starts the counters. `inside` are networks of the lab in addition to that of its hosts, such as
    /// `10.64.0.0/12`.
    ///
    /// # Errors
    /// When the lab has no link, or the table cannot be created.
    pub fn watch(lab: &TestLab, inside: &[&str]) -> Result<Self> {
        let link = lab.link()?;
        let first = lab.addresses.first().and_then(|address| address.rsplit_once('.'));
        let net = first.context("the lab has no hosts")?.0;
        let links = Self { table: format!("e2e-{link}"), machine: lab.machine()?, link };
        let hosts = format!("{net}.0/24");
        let file = lab.file("links.nft");
        fs::write(&file, links.rules(&[&[hosts.as_str()], inside].concat().join(", ")))?;
        must("nft", &["-f", &file.to_string_lossy()], &[])?;
        Ok(links)
    }

    /// The rules of the table. They run before address translation, so that they match the lab's addresses.
    /// They replace the table of a killed test.
    fn rules(&self, inside: &str) -> String {
        let Self { table, link, .. } = self;
        format!(
            "table inet {table}\ndelete table inet {table}\ntable inet {table} {{
            set inside {{ type ipv4_addr; flags interval; elements = {{ {inside} }}; }}
            counter arrived {{ }}\ncounter passed {{ }}\ncounter reached {{ }}\ncounter left {{ }}
            chain arriving {{
                type filter hook prerouting priority -350; policy accept;
                iifname {link} ip daddr {OUTSIDE} counter name arrived
            }}
            chain passing {{
                type filter hook forward priority -350; policy accept;
                iifname {link} counter name passed
            }}
            chain leaving {{
                type filter hook postrouting priority -350; policy accept;
                oifname {link} ip daddr @inside counter name reached
                oifname != {{ lo, {link} }} ip saddr @inside counter name left
                oifname != {{ lo, {link} }} ip daddr @inside counter name left
            }}
            }}\n"
        )
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// When the counters do not exist.
    pub fn counts(&self) -> Result<PacketCounts> {
        let text = must("nft", &["-j", "list", "counters", "table", "inet", &self.table], &[])?;
        let list: serde_json::Value = serde_json::from_str(&text)?;
        let counters =
            list["nftables"].as_array().context("nft printed no list")?.iter().map(|item| &item["counter"]);
        let counts: BTreeMap<&str, u64> = counters
            .filter_map(|counter| Some((counter["name"].as_str()?, counter["packets"].as_u64()?)))
            .collect();
        let count = |name| counts.get(name).copied().with_context(|| format!("no counter {name}: {text}"));
        Ok(PacketCounts {
            arrived: count("arrived")?,
            passed: count("passed")?,
            reached: count("reached")?,
            left: count("left")?,
        })
    }

    /// Verifies the counter `left`: sends a packet with an address of the lab on another link without a peer.
    ///
    /// # Errors
    /// When the packet was not counted.
    pub fn verify(&self) -> Result<()> {
        let before = self.counts()?.left;
        let _link = LinkWithoutPeer::new(&self.link)?;
        let socket = UdpSocket::bind((self.machine.as_str(), 0))?;
        // If the route does not work, no router forwards the packet.
        socket.set_ttl(1)?;
        socket.send_to(b"left", (OUTSIDE, 9))?;
        let after = self.counts()?.left;
        ensure!(after == before + 1, "a packet left and was not counted: {before}, {after}");
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        must("nft", &["delete", "table", "inet", &self.table], &[]).ok();
    }
}

/// A link without a peer, and the route to [`OUTSIDE`] over it.
struct LinkWithoutPeer(String);

impl LinkWithoutPeer {
    fn new(link: &str) -> Result<Self> {
        let created = Self(format!("{link}-out"));
        let (near, far) = (created.0.as_str(), format!("{link}-end"));
        must("ip", &["link", "add", near, "type", "veth", "peer", "name", &far], &[])?;
        must("ip", &["link", "set", &far, "up"], &[])?;
        must("ip", &["link", "set", near, "up"], &[])?;
        must("ip", &["route", "add", OUTSIDE, "dev", near], &[])?;
        Ok(created)
    }
}

impl Drop for LinkWithoutPeer {
    fn drop(&mut self) {
        must("ip", &["link", "delete", &self.0], &[]).ok();
    }
}
