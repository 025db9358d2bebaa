//! Clusters of any size, over bare hosts.

#![allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what fails here fails the test"
)]

use std::net::Ipv4Addr;
use std::path::Path;

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{ClusterSettings, LoadBalancer};
use kubeon_plan::sim::{artifacts, bare, cluster, run_to_completion};
use kubeon_plan::{Intent, Observation, ObservationFailure, Plan, Snapshot, Step, StepId, validate};
use kubeon_wire::{ClusterFacts, EtcdFact, Facts, NodeFact};

pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn address(index: usize) -> HostAddress {
    format!("172.30.{}.{}", index / 200, 11 + index % 200).parse().unwrap()
}

pub(crate) fn intent(masters: usize, workers: usize) -> Intent {
    let addresses: Vec<String> = (0..masters + workers).map(|index| address(index).to_string()).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut spec = cluster(&addresses[..masters], &addresses[masters..]);
    if addresses.len() > 4000 {
        // A pod network of /12 has room for 4,096 nodes.
        spec.settings.node_mask_size = 26;
        spec.settings.max_pods = 40;
    }
    let version = spec.version;
    let (spec, _) = validate(spec, &[version]).unwrap();
    Intent::new(spec, "uid-1", 0, artifacts(&version.to_string()))
}

/// The same with an external load balancer.
pub(crate) fn behind_load_balancer(masters: usize, workers: usize) -> Intent {
    with_load_balancer(intent(masters, workers))
}

pub(crate) fn with_load_balancer(intent: Intent) -> Intent {
    balanced_by(LoadBalancer::External { address: Ipv4Addr::new(172, 30, 9, 9).into(), port: 7443 }, intent)
}

/// The same cluster with this way of the workers to the masters.
pub(crate) fn balanced_by(load_balancer: LoadBalancer, intent: Intent) -> Intent {
    with_settings(intent, |settings| settings.load_balancer = load_balancer)
}

/// The same cluster with other settings.
pub(crate) fn with_settings(intent: Intent, change: impl FnOnce(&mut ClusterSettings)) -> Intent {
    let mut spec = (*intent.spec).clone();
    change(&mut spec.settings);
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..intent }
}

pub(crate) fn bare_hosts(count: usize) -> Snapshot {
    let hosts = (0..count)
        .map(|index| (address(index), Observation::Fresh(bare(&format!("h{}", index + 1)))))
        .collect();
    Snapshot { taken_at: NOW, hosts }
}

pub(crate) fn edit(snapshot: &mut Snapshot, index: usize, change: impl FnOnce(&mut Facts)) {
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&address(index)) else {
        panic!("not observed")
    };
    change(facts);
}

/// The intent with the stored names of all nodes.
pub(crate) fn named(masters: usize, workers: usize) -> Intent {
    let intent = intent(masters, workers);
    let mut spec = (*intent.spec).clone();
    let hosts = spec.masters.iter_mut().chain(&mut spec.workers);
    hosts.enumerate().for_each(|(index, host)| host.name = format!("h{}", index + 1).parse().ok());
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..intent }
}

/// A created cluster whose masters report Ready nodes, and etcd members with this health.
pub(crate) fn created(masters: usize, workers: usize, health: &[Option<bool>]) -> Snapshot {
    let mut snapshot = bare_hosts(masters + workers);
    run_to_completion(&named(masters, workers), &mut snapshot, 1);
    let name = |index: usize| format!("h{}", index + 1);
    let ready = || NodeFact { ready: true, ..NodeFact::default() };
    let nodes = (0..masters + workers).map(|index| (name(index), ready())).collect();
    let members = health.iter().enumerate().map(|(index, health)| (name(index), *health)).collect();
    let report = ClusterFacts {
        api_ready: true,
        nodes: Some(nodes),
        etcd: EtcdFact::Members(members),
        ..ClusterFacts::default()
    };
    for index in 0..masters {
        edit(&mut snapshot, index, |facts| facts.cluster = Some(report.clone()));
    }
    snapshot
}

pub(crate) fn lose(snapshot: &mut Snapshot, index: usize) {
    let (why, failure) = ("no route to host".to_owned(), ObservationFailure::NoAnswer);
    snapshot.hosts.insert(address(index), Observation::Unknown { why, failure });
}

/// The step of the plan with this id.
pub(crate) fn step<'a>(plan: &'a Plan, id: &str) -> &'a Step {
    let id: StepId = id.parse().unwrap();
    plan.steps.iter().find(|step| step.id == id).unwrap()
}

/// Step ids as text.
pub(crate) fn texts<'a>(ids: impl IntoIterator<Item = &'a StepId>) -> Vec<String> {
    ids.into_iter().map(ToString::to_string).collect()
}

/// Compares with `tests/stories/NAME.txt`.
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        wanted == text,
        "{} differs; review the change, then set UPDATE_GOLDEN=1\n{text}",
        path.display()
    );
}
