//! Clusters that kubeadm made, and that kubeon takes over while they run.

use kubeon_api::HostRole;
use kubeon_api::kubernetes_cluster::{Cni, DeployMode};
use kubeon_plan::sim::{bare, made_by_kubeadm, run_to_completion};
use kubeon_plan::{
    DesiredCluster, Intent, Observation, Plan, Snapshot, lint, plan, validate_existing, with_kubeadm_steps,
};
use kubeon_wire::{Claim, Op};

use crate::support::{NOW, address, edit, golden, named, step, texts};

fn adopted_spec(masters: usize, workers: usize) -> DesiredCluster {
    let mut spec = (*named(masters, workers).spec).clone();
    (spec.settings.deploy_mode, spec.settings.cni) = (DeployMode::Container, Cni::None);
    spec
}

/// An adopted cluster on which kubeon changed nothing yet.
fn adopted(masters: usize, workers: usize) -> Intent {
    let spec = adopted_spec(masters, workers);
    let taken_over = spec.hosts().map(|host| host.address).collect();
    let version = spec.version;
    let spec = validate_existing(spec, &[version]).unwrap().0;
    Intent { spec, taken_over, ..named(masters, workers) }
}

/// The hosts as kubeadm left them.
fn hosts_of_kubeadm(masters: usize, workers: usize) -> Snapshot {
    let facts = |index: usize| {
        let role = HostRole::of(index < masters);
        made_by_kubeadm(&format!("h{}", index + 1), &role)
    };
    let hosts = (0..masters + workers).map(|index| (address(index), Observation::Fresh(facts(index))));
    Snapshot { taken_at: NOW, hosts: hosts.collect() }
}

fn ids(plan: &Plan) -> Vec<String> {
    texts(plan.steps.iter().map(|step| &step.id))
}

#[test]
fn hosts_of_kubeadm_change_in_the_rolling_order() {
    let (desired, snapshot) = (adopted(3, 2), hosts_of_kubeadm(3, 2));
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &with_kubeadm_steps(&desired, &snapshot)), []);
    for id in [
        "etcd/member@h1",
        "control/keys@h2",
        "control/apiserver@h3",
        "control/scheduler@h3",
        "join/runtime@h4",
        "join/kubelet@h5",
    ] {
        assert_eq!(step(&made, id).why, "kubeadm made it", "{id}");
    }
    let rolling: Vec<_> = made.rolling.iter().map(|group| group.hosts.clone()).collect();
    assert_eq!(rolling.len(), 3, "the control planes, the nodes of the masters, the workers");
    assert_eq!(made.rolling[0].at_once, 1);
    let sorted = |mut hosts: Vec<_>| {
        hosts.sort_unstable();
        hosts
    };
    assert_eq!(sorted(rolling[0].clone()), [address(0), address(1), address(2)]);
    assert_eq!(sorted(rolling[1].clone()), [address(0), address(1), address(2)]);
    assert_eq!(sorted(rolling[2].clone()), [address(3), address(4)]);
    assert!(ids(&made).contains(&"etcd/stop-api-server@h2".to_owned()), "{:?}", ids(&made));
}

#[test]
fn kube_proxy_of_kubeadm_goes_last_and_the_network_stays() {
    let made = plan(&adopted(1, 1), &hosts_of_kubeadm(1, 1)).unwrap();
    assert!(!made.awaits_network, "the cluster has its network");
    let removal = step(&made, "network/remove-kubeadm");
    let needs = texts(&removal.needs);
    assert!(
        ["network/kube-proxy@h1", "network/kube-proxy@h2"].iter().all(|id| needs.contains(&(*id).to_owned()))
    );
    let Op::RemoveObjects { paths, .. } = &removal.op else { panic!("{:?}", removal.op) };
    assert_eq!(paths[0], "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy");
    let all = ids(&made);
    assert!(all.iter().all(|id| !id.contains("flannel@")), "{all:?}");
    for id in ["control/rights", "control/declaration", "network/dns", "join/kubelet-additions@h2"] {
        assert!(all.contains(&id.to_owned()), "{id} is missing in {all:?}");
    }
    let Op::Files { files } = &step(&made, "join/runtime-config@h1").op else { panic!("no files") };
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["/etc/containerd/config.toml"]);
    let kubelet = texts(&step(&made, "join/kubelet@h2").needs);
    assert!(kubelet.contains(&"join/kubelet-additions@h2".to_owned()), "{kubelet:?}");
}

#[test]
fn a_takeover_ends_with_nothing_to_do() {
    let (desired, mut snapshot) = (adopted(3, 2), hosts_of_kubeadm(3, 2));
    let log = run_to_completion(&desired, &mut snapshot, 4);
    assert_eq!(plan(&desired, &snapshot).unwrap().steps, [], "{log}");
    let later = Intent { taken_over: [].into(), ..desired };
    assert_eq!(plan(&later, &snapshot).unwrap().steps, [], "as for a cluster that kubeon made");
    golden("takeover", &log);
}

#[test]
fn a_takeover_that_was_interrupted_continues() {
    let (desired, mut snapshot) = (adopted(3, 1), hosts_of_kubeadm(3, 1));
    let made = plan(&desired, &snapshot).unwrap();
    for count in [1, made.steps.len() / 3, made.steps.len() / 2] {
        let mut snapshot = hosts_of_kubeadm(3, 1);
        kubeon_plan::sim::apply(&made, count, &mut snapshot);
        let rest = plan(&desired, &snapshot).unwrap();
        assert_eq!(lint(&rest, &with_kubeadm_steps(&desired, &snapshot)), [], "after {count} steps");
        assert!(ids(&rest).contains(&"join/kubelet@h4".to_owned()), "after {count} steps");
        let joined = rest.steps.iter().any(|step| matches!(step.op, Op::JoinEtcd { .. }));
        assert!(!joined, "after {count} steps");
    }
    run_to_completion(&desired, &mut snapshot, 4);
    assert_eq!(plan(&desired, &snapshot).unwrap().steps, []);
}

#[test]
fn only_hosts_of_the_adopted_cluster_are_taken_over() {
    let desired = adopted(1, 1);
    let reasons = |desired: &Intent, snapshot: &Snapshot| -> Vec<String> {
        plan(desired, snapshot).unwrap_err().refusals().iter().map(|refusal| refusal.reason.clone()).collect()
    };
    let mut claimed = hosts_of_kubeadm(1, 1);
    edit(&mut claimed, 1, |facts| {
        facts.claim = Some(Claim {
            cluster: desired.spec.name.clone(),
            uid: "another".to_owned(),
            generation: 3,
            version: desired.spec.version,
            role: HostRole::Worker,
        });
    });
    let found = reasons(&desired, &claimed);
    assert!(found.iter().any(|reason| reason.contains("which was created elsewhere")), "{found:?}");
    let other = Intent { taken_over: [address(0)].into(), ..desired.clone() };
    let found = reasons(&other, &hosts_of_kubeadm(1, 1));
    assert!(found.iter().any(|reason| reason.contains("contains another cluster")), "{found:?}");
    let mut installed_again = hosts_of_kubeadm(1, 1);
    installed_again.hosts.insert(address(1), Observation::Fresh(bare("h2")));
    let made = plan(&desired, &installed_again).unwrap();
    assert_eq!(step(&made, "join/kubelet@h2").why, "the cluster does not know the host");
}
