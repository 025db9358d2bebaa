//! What the list says of a cluster.

use std::collections::BTreeMap;

use kubeon_plan::{LoadBalancer, ProxyMode};

use super::*;

fn host(i: u8) -> HostSpec {
    HostSpec {
        address: format!("10.0.0.{i}").parse().unwrap(),
        name: Some(format!("n{i}").parse().unwrap()),
        labels: BTreeMap::new(),
    }
}

fn state(status: Status) -> State {
    let spec = ClusterSpec {
        name: "demo".parse().unwrap(),
        version: "v1.36.3".parse().unwrap(),
        masters: vec![host(1)],
        workers: vec![host(2), host(3)],
        api_domain: "apiserver.cluster.local".to_owned(),
        cert_sans: Vec::new(),
        load_balancer: LoadBalancer::Haproxy,
        pod_cidr: "10.96.0.0/12".parse().unwrap(),
        service_cidr: "10.64.0.0/12".parse().unwrap(),
        node_mask_size: 24,
        max_pods: 250,
        node_ports: (10000, 30000),
        dns_domain: "cluster.local".to_owned(),
        proxy_mode: ProxyMode::Nftables,
        feature_gates: String::new(),
        ca_years: 100,
    };
    State { status, ..State::new(spec.name.clone(), spec) }
}

fn facts(ready: &[(&str, bool)]) -> ClusterFacts {
    let node =
        |ready: bool| NodeFact { ready, reason: "kubelet stopped posting".to_owned(), ..NodeFact::default() };
    ClusterFacts {
        api_ready: true,
        nodes: ready.iter().map(|(name, ready)| ((*name).to_owned(), node(*ready))).collect(),
        ..ClusterFacts::default()
    }
}

#[test]
fn ready_only_when_every_node_is() {
    let well = row(&state(Status::Running), true, Ok(facts(&[("n1", true), ("n2", true), ("n3", true)])), 0);
    assert_eq!((well.state, well.note.as_str()), ("Ready", ""));
    assert_eq!((well.masters.to_string(), well.workers.to_string()), ("1/1".into(), "2/2".into()));
    let sick = row(&state(Status::Running), true, Ok(facts(&[("n1", true), ("n2", false)])), 0);
    assert_eq!(sick.state, "Degraded");
    assert_eq!(sick.workers.to_string(), "0/2");
    assert_eq!(sick.note, "worker n2: kubelet stopped posting; 1 more");
}

#[test]
fn a_silent_cluster_is_unreachable_and_counts_nothing() {
    let row = row(&state(Status::Running), false, Err("no route".to_owned()), 0);
    assert_eq!(
        (row.state, row.masters.to_string(), row.note.as_str()),
        ("Unreachable", "?/1".into(), "no route")
    );
}

#[test]
fn an_unfinished_cluster_says_how_to_go_on() {
    let row = row(&state(Status::Creating), false, Err(String::new()), 0);
    assert_eq!((row.state, row.note.as_str()), ("Creating", "continue with: kubeon create demo"));
}
