//! Which host forwards a part to which other host.
//!
//! ```text
//!   this machine ─► h1 ─► h2 ─► h3 …
//! ```
//!
//! The first host that needs a part gets it from this machine, each other one from the host before it, which forwards the bytes
//! while they arrive. When a host is lost, those behind it get the part from the host before it. A host that cannot get a part
//! from another host gets it from this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use kubeon_api::{Digest, HostAddress};
use kubeon_plan::Plan;
use kubeon_ports::ForwardingIdentities;
use kubeon_wire::{Category, ForwardingIdentity, Op, PART_PIECE, PartForwarder};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

/// The forwarding of parts in a run.
pub(crate) struct PartForwarding<'a> {
    identities: &'a dyn ForwardingIdentities,
    /// The parts that several hosts need.
    parts: BTreeMap<Digest, ForwardedPart>,
    /// Hosts that do not forward, or that cannot get anything from others.
    apart: Mutex<BTreeSet<HostAddress>>,
    /// Hosts that got bytes from others.
    reached: Mutex<BTreeSet<HostAddress>>,
    /// Hosts to which another one did not forward all bytes of a part.
    missed: Mutex<BTreeSet<HostAddress>>,
}

/// The pieces of a part, which are being read.
type PiecesReading = JoinHandle<std::io::Result<Vec<String>>>;

/// A part that hosts forward.
#[derive(Default)]
struct ForwardedPart {
    /// The hosts that receive it or received it in this run, in the order in which they began. The last one forwards it to
    /// nobody yet.
    chain: Mutex<Vec<ForwardingHost>>,
    reading: Mutex<Option<PiecesReading>>,
    pieces: OnceCell<Vec<String>>,
}

/// A host that forwards parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForwardingHost {
    pub host: HostAddress,
    /// Its address in the cluster's network.
    pub address: Ipv4Addr,
    /// The port there.
    pub port: u16,
}

impl<'a> PartForwarding<'a> {
    /// `None` if no part is needed by several hosts.
    pub(crate) fn of(plan: &Plan, identities: &'a dyn ForwardingIdentities) -> Option<Self> {
        let mut needed: BTreeMap<Digest, usize> = BTreeMap::new();
        for step in &plan.steps {
            if let Op::Part { digest, .. } = &step.op {
                *needed.entry(digest.clone()).or_default() += 1;
            }
        }
        let forwarded = needed.into_iter().filter(|(_, hosts)| *hosts > 1);
        let parts: BTreeMap<_, _> = forwarded.map(|(digest, _)| (digest, ForwardedPart::default())).collect();
        (!parts.is_empty()).then(|| Self::new(identities, parts))
    }

    fn new(identities: &'a dyn ForwardingIdentities, parts: BTreeMap<Digest, ForwardedPart>) -> Self {
        let (apart, reached, missed) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { identities, parts, apart, reached, missed }
    }

    /// Whether hosts forward the part.
    pub(crate) fn forwards(&self, digest: &Digest) -> bool {
        self.parts.contains_key(digest)
    }

    /// The identity with which a host forwards parts; `None` if it has none.
    pub(crate) fn identity(&self, host: HostAddress) -> Option<ForwardingIdentity> {
        let identity = self.identities.identity(host);
        identity.inspect_err(|error| tracing::warn!(%host, %error, "the host forwards no parts")).ok()
    }

    /// The host from which `host` gets the part; `None`: from this machine. From now on it forwards the part too.
    pub(crate) fn join(&self, digest: &Digest, host: ForwardingHost) -> Option<ForwardingHost> {
        if self.apart.lock().contains(&host.host) {
            return None;
        }
        let mut chain = self.parts.get(digest)?.chain.lock();
        chain.retain(|other| other.host != host.host);
        let source = chain.last().copied();
        chain.push(host);
        source
    }

    /// Records that the host got bytes from another one.
    pub(crate) fn reached(&self, host: HostAddress) {
        self.reached.lock().insert(host);
    }

    /// Records that the host did not get the part from `source`, or from this machine. If the source did not forward all of it,
    /// another host may: once, and only to a host that reaches others at all. Otherwise the host gets parts from this machine from
    /// now on. Hosts get nothing any more from those that depend on a lost one.
    pub(crate) fn failed(
        &self,
        digest: &Digest,
        host: HostAddress,
        source: Option<HostAddress>,
        why: Category,
    ) {
        let Some(part) = self.parts.get(digest) else { return };
        // What follows in the chain depends on it.
        let is_broken = |other: HostAddress| match why {
            // The session of the host ended, and with it what the host kept. Its source may be well.
            Category::Unreachable => other == host,
            Category::Timeout => source.is_some_and(|source| other == source || other == host),
            _ => false,
        };
        {
            let mut chain = part.chain.lock();
            let end = chain.iter().position(|other| is_broken(other.host));
            chain.truncate(end.unwrap_or(usize::MAX));
        }
        let forwarded = source.is_some() && why == Category::Timeout && self.reached.lock().contains(&host);
        if !forwarded || !self.missed.lock().insert(host) {
            self.set_apart(host);
        }
    }

    /// From now on the host gets parts from this machine, and is no source.
    pub(crate) fn set_apart(&self, host: HostAddress) {
        self.apart.lock().insert(host);
        for part in self.parts.values() {
            part.chain.lock().retain(|other| other.host != host);
        }
    }

    /// Begins to read the part for the hosts that will get it from others.
    pub(crate) fn prepare(&self, digest: &Digest, blob: &Path) {
        if let Some(part) = self.parts.get(digest)
            && !part.pieces.initialized()
        {
            part.reading.lock().get_or_insert_with(|| read_pieces(digest, blob));
        }
    }

    /// The source as a host gets it, with the pieces of the part.
    ///
    /// # Errors
    /// When the file of the part cannot be read, or is another one.
    pub(crate) async fn source(
        &self,
        digest: &Digest,
        blob: &Path,
        from: ForwardingHost,
    ) -> std::io::Result<PartForwarder> {
        let Some(part) = self.parts.get(digest) else { return Err(std::io::ErrorKind::NotFound.into()) };
        let read = || async {
            let begun = part.reading.lock().take();
            let reading = begun.unwrap_or_else(|| read_pieces(digest, blob));
            reading.await.map_err(std::io::Error::other)?
        };
        let pieces = part.pieces.get_or_try_init(read).await?;
        Ok(PartForwarder { address: from.address, port: from.port, pieces: pieces.clone() })
    }
}

fn read_pieces(digest: &Digest, blob: &Path) -> PiecesReading {
    let (digest, blob): (Digest, PathBuf) = (digest.clone(), blob.to_owned());
    tokio::task::spawn_blocking(move || pieces(&digest, &blob))
}

/// SHA-256 of each piece of a file. A host that gets these pieces need not compute the digest of all of them, so it is compared
/// here.
fn pieces(digest: &Digest, file: &Path) -> std::io::Result<Vec<String>> {
    use std::io::Read as _;
    let mut file = std::fs::File::open(file)?;
    let (mut pieces, mut whole) = (Vec::new(), Sha256::new());
    let mut piece = Vec::with_capacity(PART_PIECE);
    loop {
        piece.clear();
        (&mut file).take(PART_PIECE as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        whole.update(&piece);
        pieces.push(hex::encode(Sha256::digest(&piece)));
    }
    if hex::encode(whole.finalize()) == digest.as_str() {
        Ok(pieces)
    } else {
        Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the file of the part is damaged"))
    }
}

#[cfg(test)]
mod tests {
    use kubeon_ports::SecretError;

    use super::*;

    struct NoIdentities;

    impl ForwardingIdentities for NoIdentities {
        fn identity(&self, host: HostAddress) -> Result<ForwardingIdentity, SecretError> {
            Err(SecretError { what: host.to_string(), why: "a test".to_owned() })
        }
    }

    fn host(last: u8) -> ForwardingHost {
        let address = Ipv4Addr::new(10, 0, 0, last);
        ForwardingHost { host: HostAddress::from(address), address, port: 1000 + u16::from(last) }
    }

    fn forwarding() -> (PartForwarding<'static>, Digest) {
        let digest: Digest = "ab".repeat(32).parse().unwrap();
        let parts = BTreeMap::from([(digest.clone(), ForwardedPart::default())]);
        (PartForwarding::new(&NoIdentities, parts), digest)
    }

    #[test]
    fn each_host_forwards_a_part_to_one_other() {
        let (forwarding, digest) = forwarding();
        let sources: Vec<_> = (1..=4).map(|last| forwarding.join(&digest, host(last))).collect();
        assert_eq!(sources, [None, Some(host(1)), Some(host(2)), Some(host(3))]);
    }

    #[test]
    fn a_host_that_is_set_apart_is_no_source_and_has_none() {
        let (forwarding, digest) = forwarding();
        for last in 1..=3 {
            forwarding.join(&digest, host(last));
        }
        forwarding.set_apart(host(3).host);
        assert_eq!(forwarding.join(&digest, host(3)), None);
        assert_eq!(forwarding.join(&digest, host(4)), Some(host(2)));
    }

    #[test]
    fn hosts_behind_a_lost_host_get_the_part_from_the_one_before_it() {
        let (forwarding, digest) = forwarding();
        for last in 1..=5 {
            forwarding.join(&digest, host(last));
            forwarding.reached(host(last).host);
        }
        // The third host is lost; the fifth one may be reported before the fourth.
        forwarding.failed(&digest, host(5).host, Some(host(4).host), Category::Timeout);
        forwarding.failed(&digest, host(4).host, Some(host(3).host), Category::Timeout);
        assert_eq!(forwarding.join(&digest, host(4)), Some(host(2)));
        assert_eq!(forwarding.join(&digest, host(5)), Some(host(4)));
        // At the second failure nothing is tried any more.
        forwarding.failed(&digest, host(5).host, Some(host(4).host), Category::Timeout);
        assert_eq!(forwarding.join(&digest, host(5)), None);
    }

    #[test]
    fn the_source_of_a_lost_host_stays_a_source() {
        for lost_is_reported_first in [true, false] {
            let (forwarding, digest) = forwarding();
            for last in 1..=4 {
                forwarding.join(&digest, host(last));
                forwarding.reached(host(last).host);
            }
            let lose = || forwarding.failed(&digest, host(3).host, Some(host(2).host), Category::Unreachable);
            if lost_is_reported_first {
                lose();
            }
            forwarding.failed(&digest, host(4).host, Some(host(3).host), Category::Timeout);
            assert_eq!(forwarding.join(&digest, host(4)), Some(host(2)));
            if !lost_is_reported_first {
                lose();
            }
            assert_eq!(forwarding.join(&digest, host(5)), Some(host(4)));
        }
    }

    #[test]
    fn no_host_joins_behind_a_lost_first_one() {
        let (forwarding, digest) = forwarding();
        for last in 1..=3 {
            forwarding.join(&digest, host(last));
        }
        forwarding.failed(&digest, host(1).host, None, Category::Unreachable);
        assert_eq!(forwarding.join(&digest, host(4)), None);
        // A host whose disk is full still forwards what it received.
        assert_eq!(forwarding.join(&digest, host(5)), Some(host(4)));
        assert_eq!(forwarding.join(&digest, host(6)), Some(host(5)));
        forwarding.failed(&digest, host(5).host, Some(host(4).host), Category::Exhausted);
        assert_eq!(forwarding.join(&digest, host(7)), Some(host(6)));
    }

    #[test]
    fn a_host_that_never_reached_another_one_gets_parts_from_this_machine() {
        let (forwarding, digest) = forwarding();
        for last in 1..=3 {
            forwarding.join(&digest, host(last));
        }
        forwarding.failed(&digest, host(2).host, Some(host(1).host), Category::Timeout);
        assert_eq!(forwarding.join(&digest, host(2)), None);
        // Its connection to this machine broke.
        forwarding.reached(host(3).host);
        forwarding.failed(&digest, host(3).host, None, Category::Unreachable);
        assert_eq!(forwarding.join(&digest, host(3)), None);
    }

    #[tokio::test]
    async fn a_part_is_checked_piece_by_piece() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = vec![7; PART_PIECE + 1];
        std::fs::write(file.path(), &bytes).unwrap();
        let expected =
            [&bytes[..PART_PIECE], &bytes[PART_PIECE..]].map(|piece| hex::encode(Sha256::digest(piece)));
        let digest: Digest = hex::encode(Sha256::digest(&bytes)).parse().unwrap();
        let parts = BTreeMap::from([(digest.clone(), ForwardedPart::default())]);
        let forwarding = PartForwarding::new(&NoIdentities, parts);
        forwarding.prepare(&digest, file.path());
        for _ in 0..2 {
            let source = forwarding.source(&digest, file.path(), host(1)).await.unwrap();
            assert_eq!((source.port, source.pieces), (1001, expected.to_vec()));
        }
        assert!(pieces(&"ab".repeat(32).parse().unwrap(), file.path()).is_err(), "another file");
    }
}
