//! Golden stories of how workers reach the masters, and of living clusters that change it.

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_plan::sim::run_to_completion;
use kubeon_plan::{Observation, ObservationFailure, Plan, StageName, lint, plan};

use crate::support::{
    address, balanced_by, bare_hosts, behind_load_balancer, created, golden, named, step, texts,
    with_load_balancer,
};

#[test]
fn a_living_cluster_changes_to_a_load_balancer_and_back() {
    let mut snapshot = created(3, 2, &[Some(true); 3]);
    let behind = with_load_balancer(named(3, 2));
    let made = plan(&behind, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let needs = |plan: &Plan, id: &str| texts(&step(plan, id).needs);
    assert!(needs(&made, "prepare/hosts@h4").contains(&"control/load-balancer".to_owned()), "checked before");
    assert!(
        needs(&made, "join/haproxy-removal@h4").contains(&"network/kube-proxy@h4".to_owned()),
        "removed last"
    );
    golden("load-balancer-change", &run_to_completion(&behind, &mut snapshot, 3));
    let back = plan(&named(3, 2), &snapshot).unwrap();
    assert_eq!(lint(&back, &snapshot), []);
    let names = needs(&back, "prepare/hosts@h4");
    assert!(
        names.contains(&"network/kube-proxy@h4".to_owned()),
        "programs use the name until then: {names:?}"
    );
    golden("load-balancer-change-back", &run_to_completion(&named(3, 2), &mut snapshot, 3));
}

#[test]
fn a_living_cluster_changes_to_the_service_of_the_api_servers_and_back() {
    let mut snapshot = created(3, 2, &[Some(true); 3]);
    let desired = balanced_by(LoadBalancer::Updater, named(3, 2));
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let needs = |plan: &Plan, id: &str| texts(&step(plan, id).needs);
    let kubelet = needs(&made, "join/kubelet@h4");
    assert!(kubelet.contains(&"join/apiserver-startup@h4".to_owned()), "{kubelet:?}");
    golden("updater", &run_to_completion(&desired, &mut snapshot, 3));
    let back = plan(&named(3, 2), &snapshot).unwrap();
    assert_eq!(lint(&back, &snapshot), []);
    let last = needs(&back, "control/apiserver-updater-removal@h1");
    for worker in ["h4", "h5"] {
        assert!(last.contains(&format!("join/apiserver-startup-removal@{worker}")), "{last:?}");
    }
    // A worker that is off may still use the Service.
    let (mut off, at) = (snapshot.clone(), address(4));
    off.hosts.insert(
        at,
        Observation::Unknown { why: "no answer".to_owned(), failure: ObservationFailure::NoAnswer },
    );
    let degraded = plan(&named(3, 2), &off).unwrap();
    assert!(degraded.steps.iter().all(|step| !step.id.what().starts_with("apiserver-service")));
    golden("updater-back", &run_to_completion(&named(3, 2), &mut snapshot, 3));
}

#[test]
fn an_external_load_balancer_is_checked_from_every_worker() {
    let (desired, mut snapshot) = (behind_load_balancer(3, 2), bare_hosts(5));
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let kubelet = step(&made, "join/kubelet@h4");
    assert!(kubelet.needs.contains(&"join/load-balancer@h4".parse().unwrap()), "{:?}", kubelet.needs);
    assert!(
        made.steps
            .iter()
            .all(|step| step.stage != StageName::new("join") || !step.id.what().contains("haproxy"))
    );
    golden("external-load-balancer", &run_to_completion(&desired, &mut snapshot, 3));
}
