//! Clusters of any size, over bare hosts.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what fails here fails the test"
)]

use std::net::Ipv4Addr;
use std::path::Path;

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_plan::sim::{artifacts, bare, cluster};
use kubeon_plan::{Intent, Observation, Plan, Snapshot, Step, StepId, validate};

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
    let intent = intent(masters, workers);
    let mut spec = (*intent.spec).clone();
    spec.settings.load_balancer =
        LoadBalancer::External { address: Ipv4Addr::new(172, 30, 9, 9).into(), port: 7443 };
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..intent }
}

pub(crate) fn bare_hosts(count: usize) -> Snapshot {
    let hosts = (0..count)
        .map(|index| (address(index), Observation::Fresh(bare(&format!("h{}", index + 1)))))
        .collect();
    Snapshot { taken_at: NOW, hosts }
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
