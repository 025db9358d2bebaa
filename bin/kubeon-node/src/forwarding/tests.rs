use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use kubeon_api::Digest;
use kubeon_pki::RunAuthority;
use kubeon_wire::{FORWARDING_PORT, PART_PIECE, PartForwarder};
use sha2::{Digest as _, Sha256};

use super::Forwarding;
use crate::ops::part_stream::{PartReader, StreamEnd, pair};
use crate::root::Root;
use crate::ticket_lock::TicketLock;

/// A host of the run in a folder.
struct TestHost {
    forwarding: Arc<Forwarding>,
    folder: tempfile::TempDir,
}

fn host(authority: &RunAuthority) -> TestHost {
    host_at(authority, Ipv4Addr::LOCALHOST)
}

fn host_at(authority: &RunAuthority, address: Ipv4Addr) -> TestHost {
    let folder = tempfile::tempdir().unwrap();
    let identity = authority.issue(address).unwrap();
    let forwarding = Forwarding::begin(&Root::new(folder.path()), &identity).unwrap();
    TestHost { forwarding: Arc::new(forwarding), folder }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The bytes of a part, and its digest: two pieces and a bit.
fn part() -> (Vec<u8>, Digest) {
    let bytes: Vec<u8> = (0..2 * PART_PIECE + 100).map(|index| (index % 251) as u8).collect();
    let digest = sha256(&bytes).parse().unwrap();
    (bytes, digest)
}

fn source(from: &TestHost, bytes: &[u8]) -> PartForwarder {
    let pieces = bytes.chunks(PART_PIECE).map(sha256).collect();
    PartForwarder { address: Ipv4Addr::LOCALHOST, port: from.forwarding.port, pieces }
}

/// Receives a part in the background. Nothing reads it yet.
fn arrive(to: &TestHost, source: PartForwarder, digest: &Digest, size: usize) -> PartReader {
    let (forwarding, digest) = (Arc::clone(&to.forwarding), digest.clone());
    let (mut kept, reader) = forwarding.keep(&digest, size as u64).unwrap();
    let (feed, arriving) = pair(Some(reader), Arc::new(TicketLock::default()).ticket());
    thread::spawn(move || {
        forwarding.receive((&digest, size as u64), &source, feed, &mut |bytes| kept.write(bytes))
    });
    arriving
}

/// Receives and reads a part in the background.
fn receive(
    to: &TestHost,
    source: PartForwarder,
    digest: &Digest,
    size: usize,
) -> JoinHandle<(Vec<u8>, StreamEnd)> {
    let mut arriving = arrive(to, source, digest, size);
    thread::spawn(move || read(&mut arriving))
}

/// Gives a host a part, as the engine does.
fn give(to: &TestHost, digest: &Digest, bytes: &[u8]) {
    assert!(to.forwarding.keep(digest, bytes.len() as u64).unwrap().0.write(bytes));
}

fn read(arriving: &mut PartReader) -> (Vec<u8>, StreamEnd) {
    let mut received = Vec::new();
    // An error of the stream is part of its end.
    let _ = arriving.read_to_end(&mut received);
    (received, arriving.finish())
}

#[test]
fn a_part_passes_through_hosts_while_it_arrives() {
    let authority = RunAuthority::new().unwrap();
    let [first, second, third] = [(); 3].map(|()| host(&authority));
    let (bytes, digest) = part();
    // The last host asks before the first one has received anything.
    let last = receive(&third, source(&second, &bytes), &digest, bytes.len());
    let middle = receive(&second, source(&first, &bytes), &digest, bytes.len());
    let (mut kept, _) = first.forwarding.keep(&digest, bytes.len() as u64).unwrap();
    for chunk in bytes.chunks(100_000) {
        assert!(kept.write(chunk));
    }
    for receiver in [middle, last] {
        let (received, end) = receiver.join().unwrap();
        assert_eq!(end, StreamEnd::Whole(digest.to_string()));
        assert!(received == bytes);
    }
}

#[test]
fn a_host_forwards_a_part_that_it_has_not_begun_to_unpack() {
    let authority = RunAuthority::new().unwrap();
    let [first, second, third] = [(); 3].map(|()| host(&authority));
    // More than fits into the memory between the two.
    let bytes: Vec<u8> = (0..40 * PART_PIECE).map(|index| (index % 251) as u8).collect();
    let digest: Digest = sha256(&bytes).parse().unwrap();
    give(&first, &digest, &bytes);
    let mut waiting = arrive(&second, source(&first, &bytes), &digest, bytes.len());
    let (received, end) = receive(&third, source(&second, &bytes), &digest, bytes.len()).join().unwrap();
    assert_eq!(end, StreamEnd::Whole(digest.to_string()));
    assert!(received == bytes);
    assert!(waiting.is_kept());
    assert!(read(&mut waiting).0 == bytes);
}

#[test]
fn other_bytes_are_refused_with_their_piece() {
    let authority = RunAuthority::new().unwrap();
    let (from, to) = (host(&authority), host(&authority));
    let (mut bytes, digest) = part();
    let source = source(&from, &bytes);
    bytes[PART_PIECE + 1] ^= 1;
    give(&from, &digest, &bytes);
    let (received, end) = receive(&to, source, &digest, bytes.len()).join().unwrap();
    assert!(received.len() <= PART_PIECE, "no byte of the wrong piece is passed on");
    assert!(matches!(&end, StreamEnd::NotForwarded(why) if why.contains("other bytes")), "{end:?}");
}

#[test]
fn a_source_that_stops_ends_the_part() {
    let authority = RunAuthority::new().unwrap();
    let (from, to) = (host(&authority), host(&authority));
    let (bytes, digest) = part();
    let (mut kept, _) = from.forwarding.keep(&digest, bytes.len() as u64).unwrap();
    assert!(kept.write(&bytes[..PART_PIECE]));
    let receiver = receive(&to, source(&from, &bytes), &digest, bytes.len());
    drop(kept);
    let (_, end) = receiver.join().unwrap();
    let expected = format!("127.0.0.1 forwarded {PART_PIECE} of {} bytes", bytes.len());
    assert!(matches!(&end, StreamEnd::NotForwarded(why) if why.starts_with(&expected)), "{end:?}");
}

#[test]
fn a_host_of_another_run_gets_nothing() {
    let (one, other) = (RunAuthority::new().unwrap(), RunAuthority::new().unwrap());
    let (from, to) = (host(&one), host(&other));
    let (bytes, digest) = part();
    give(&from, &digest, &bytes);
    let (received, end) = receive(&to, source(&from, &bytes), &digest, bytes.len()).join().unwrap();
    assert!(received.is_empty() && matches!(end, StreamEnd::NotForwarded(_)), "{end:?}");
}

#[test]
fn a_host_serves_four_others_at_a_time() {
    let authority = RunAuthority::new().unwrap();
    let (bytes, digest) = part();
    for (others, is_served) in [(3, true), (4, false)] {
        let [from, to] = [(); 2].map(|()| host(&authority));
        give(&from, &digest, &bytes);
        // They connect and say nothing, so each is served until its time is over.
        let connect = |_| TcpStream::connect((Ipv4Addr::LOCALHOST, from.forwarding.port)).unwrap();
        let silent: Vec<TcpStream> = (0..others).map(connect).collect();
        let (received, end) = receive(&to, source(&from, &bytes), &digest, bytes.len()).join().unwrap();
        let expected = if is_served { bytes.clone() } else { Vec::new() };
        assert!(received == expected, "beside {others}: {} bytes", received.len());
        assert_eq!(matches!(end, StreamEnd::NotForwarded(_)), !is_served, "beside {others}: {end:?}");
        drop(silent);
    }
}

#[test]
fn a_host_listens_at_the_port_that_firewalls_open_unless_another_program_has_it() {
    let authority = RunAuthority::new().unwrap();
    // No other test uses this address.
    let address = Ipv4Addr::new(127, 86, 0, 1);
    let (first, second) = (host_at(&authority, address), host_at(&authority, address));
    assert_eq!(first.forwarding.port, FORWARDING_PORT);
    assert_ne!(second.forwarding.port, FORWARDING_PORT);
}

#[test]
fn a_source_that_cannot_be_reached_forwards_nothing() {
    let to = host(&RunAuthority::new().unwrap());
    let (bytes, digest) = part();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let source = PartForwarder { port: closed, ..source(&to, &bytes) };
    let (received, end) = receive(&to, source, &digest, bytes.len()).join().unwrap();
    let expected = "127.0.0.1 forwards nothing";
    assert!(received.is_empty(), "{} bytes", received.len());
    assert!(matches!(&end, StreamEnd::NotForwarded(why) if why.starts_with(expected)), "{end:?}");
}

#[test]
fn nothing_is_kept_after_the_session() {
    let from = host(&RunAuthority::new().unwrap());
    let (bytes, digest) = part();
    give(&from, &digest, &bytes);
    let folder = crate::parts::spool(&Root::new(from.folder.path()));
    assert!(folder.join(digest.as_str()).is_file());
    from.forwarding.end();
    assert!(!folder.exists());
}
