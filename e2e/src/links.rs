//! The machine's links while a lab works: what goes to the lab, and whether anything of it goes anywhere else. Counted by
//! the kernel in a table of its own, that lets everything pass and goes with the value.
//!
//! ```text
//!   a host ─► the lab's link ─► arrived ─► passed on? ─┐
//!   the machine's own programs ────────────────────────┴─► reached (the lab's link) | left (any other link)
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;

use anyhow::{Context as _, Result, ensure};

use crate::lab::TestLab;
use crate::program::must;

/// An address that is nobody's: kept for examples.
pub const OUTSIDE: &str = "198.51.100.1";

/// Counters over everything that this machine sends, until the value goes.
pub struct Links {
    table: String,
    link: String,
    /// The machine's own address in the lab.
    pub machine: String,
}

/// How many packets were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketCounts {
    /// Came from the lab for [`OUTSIDE`].
    pub arrived: u64,
    /// Came from the lab, whatever they hold, and were passed on.
    pub passed: u64,
    /// Went to the lab.
    pub reached: u64,
    /// With an address of the lab's hosts, pods or services, by another link than the lab's.
    pub left: u64,
}

impl Links {
    /// Begins to count. `inside` are networks of the lab besides its hosts' own, such as `10.64.0.0/12`.
    ///
    /// # Errors
    /// When the lab has no link, or the kernel cannot count.
    pub fn watch(lab: &TestLab, inside: &[&str]) -> Result<Self> {
        let link = lab.link()?;
        let net = lab.addresses.first().and_then(|it| it.rsplit_once('.')).context("the lab has hosts")?.0;
        let links = Self { table: format!("e2e-{link}"), machine: lab.machine()?, link };
        let hosts = format!("{net}.0/24");
        let file = lab.file("links.nft");
        fs::write(&file, links.rules(&[&[hosts.as_str()], inside].concat().join(", ")))?;
        must("nft", &["-f", &file.to_string_lossy()], &[])?;
        Ok(links)
    }

    /// Before addresses are translated, so that those of the lab are seen as such. The table of a test that was killed is
    /// replaced.
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

    /// What was counted so far.
    ///
    /// # Errors
    /// When the counters are gone.
    pub fn seen(&self) -> Result<PacketCounts> {
        let text = must("nft", &["-j", "list", "counters", "table", "inet", &self.table], &[])?;
        let told: serde_json::Value = serde_json::from_str(&text)?;
        let counters = told["nftables"].as_array().context("a list")?.iter().map(|it| &it["counter"]);
        let counts: BTreeMap<&str, u64> =
            counters.filter_map(|it| Some((it["name"].as_str()?, it["packets"].as_u64()?))).collect();
        let count = |name| counts.get(name).copied().with_context(|| format!("no counter {name}: {text}"));
        Ok(PacketCounts {
            arrived: count("arrived")?,
            passed: count("passed")?,
            reached: count("reached")?,
            left: count("left")?,
        })
    }

    /// Sends one packet of the lab's out by another link, which leads nowhere, and sees it counted as one that left.
    ///
    /// # Errors
    /// When it was not counted.
    pub fn would_see(&self) -> Result<()> {
        let before = self.seen()?.left;
        let _nowhere = Nowhere::new(&self.link)?;
        let socket = UdpSocket::bind((self.machine.as_str(), 0))?;
        // Should the route be in vain, no router passes it on.
        socket.set_ttl(1)?;
        socket.send_to(b"left", (OUTSIDE, 9))?;
        let after = self.seen()?.left;
        ensure!(after == before + 1, "a packet left and was not counted: {before}, {after}");
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        must("nft", &["delete", "table", "inet", &self.table], &[]).ok();
    }
}

/// A link with nobody at its other end, and the way to [`OUTSIDE`] over it.
struct Nowhere(String);

impl Nowhere {
    fn new(link: &str) -> Result<Self> {
        let nowhere = Self(format!("{link}-out"));
        let (near, far) = (nowhere.0.as_str(), format!("{link}-end"));
        must("ip", &["link", "add", near, "type", "veth", "peer", "name", &far], &[])?;
        must("ip", &["link", "set", &far, "up"], &[])?;
        must("ip", &["link", "set", near, "up"], &[])?;
        must("ip", &["route", "add", OUTSIDE, "dev", near], &[])?;
        Ok(nowhere)
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        must("ip", &["link", "delete", &self.0], &[]).ok();
    }
}
