use std::fs;
use std::thread;

use super::*;
use crate::ops::service::{self, Service};
use crate::testing::Bench;

const OWN: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 13);
const H1: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 11);
const H2: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 12);

/// An address as the kernel prints it.
fn printed(address: Ipv4Addr, port: u16) -> String {
    format!("{:08X}:{port:04X}", u32::from_ne_bytes(address.octets()))
}

/// The table of a host: its member and its peers, and these numbers of connections of other hosts to its member.
fn table(clients: &[(Ipv4Addr, usize)]) -> String {
    let mut lines = vec!["  sl  local_address rem_address   st tx_queue rx_queue".to_owned()];
    let mut add = |own: String, other: String, state: &str| {
        lines.push(format!("{:4}: {own} {other} {state} 00000000:00000000 00:00000000", lines.len()));
    };
    add(printed(OWN, 2379), printed(Ipv4Addr::UNSPECIFIED, 0), "0A");
    add(printed(OWN, 2379), printed(OWN, 40001), "01");
    add(printed(Ipv4Addr::LOCALHOST, 2379), printed(Ipv4Addr::LOCALHOST, 40002), "01");
    add(printed(OWN, 2380), printed(H1, 40003), "01");
    add(printed(OWN, 40004), printed(H1, 2379), "01");
    add(printed(OWN, 2379), printed(H1, 40005), "06");
    for (host, count) in clients {
        (0..*count).for_each(|_| add(printed(OWN, 2379), printed(*host, 40006), "01"));
    }
    lines.join("\n")
}

#[test]
fn only_open_connections_of_other_hosts_to_the_member_count() {
    let bench = Bench::new();
    assert_eq!(connections(&bench.host.root), BTreeMap::new());
    bench.write(CONNECTIONS, &table(&[(H1, 3), (H2, 1)]));
    assert_eq!(connections(&bench.host.root), BTreeMap::from([(H1, 3), (H2, 1)]));
    assert_eq!(address("0100007F:094B").map(|(_, port)| port), Some(2379));
}

#[test]
fn most_connections_of_every_host_must_be_back() {
    let clients = MemberClients(BTreeMap::from([(H1, 20), (H2, 1)]));
    let missing = |h1: usize, h2: usize| clients.missing(&BTreeMap::from([(H1, h1), (H2, h2)]));
    assert_eq!((missing(18, 1), missing(17, 1), missing(20, 0), missing(0, 9)), (0, 1, 1, 18));
    assert_eq!(clients.missing(&BTreeMap::new()), 19);
}

#[test]
fn the_restart_of_a_member_is_done_when_its_clients_are_back() {
    let bench = Bench::new();
    bench.write(CONNECTIONS, &table(&[(H1, 2)]));
    let clients = MemberClients::of(&bench.job());
    bench.write(CONNECTIONS, &table(&[]));
    let (place, begin) = (bench.host.root.at(CONNECTIONS), Instant::now());
    let back = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        fs::write(place, table(&[(H1, 2)])).unwrap();
    });
    clients.wait(&bench.job(), Duration::from_secs(3));
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert!(!bench.output().contains("missing"), "{}", bench.output());
    back.join().unwrap();
}

#[test]
fn a_client_that_does_not_come_back_is_named_and_fails_nothing() {
    let bench = Bench::new();
    bench.write(CONNECTIONS, &table(&[(H1, 2)]));
    let clients = MemberClients::of(&bench.job());
    bench.write(CONNECTIONS, &table(&[]));
    clients.wait(&bench.job(), Duration::from_millis(20));
    let named = "2 connections of API servers to this member are missing since its restart";
    assert!(bench.output().contains(named), "{}", bench.output());
}

#[test]
fn a_member_beside_an_api_server_waits_for_no_client() {
    let bench = Bench::new();
    bench.write(CONNECTIONS, &table(&[(H1, 2)]));
    bench.write(paths::ADMIN_CERTIFICATE, "certificate");
    assert!(MemberClients::of(&bench.job()).0.is_empty());
}

#[test]
fn the_first_start_of_a_member_waits_for_no_client() {
    let bench = Bench::new();
    bench.write(CONNECTIONS, &table(&[]));
    let unit = "[Service]\nType=notify\nExecStart=/x\n";
    let service = Service { name: "etcd.service", unit, watches: &[], ready: &[] };
    assert!(service::run(&bench.job(), &service).unwrap().changed);
    assert!(!bench.output().contains("missing"), "{}", bench.output());
}
