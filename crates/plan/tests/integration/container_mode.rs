//! Clusters whose control plane and haproxy are static pods. Read the texts in `tests/stories/`.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::DeployMode;
use kubeon_plan::sim::{artifacts, run_to_completion};
use kubeon_plan::{HostSpec, Intent, Plan, Snapshot, lint, plan, validate};
use kubeon_wire::{ClusterFacts, EtcdFact, NodeFact, Op, ResultState, StaticPod};

use crate::support::{address, bare_hosts, edit, golden, intent, named, step, texts, with_settings};

const OLD: &str = "v1.36.3";
const NEW: &str = "v1.37.2";

fn container(intent: Intent) -> Intent {
    with_settings(intent, |settings| settings.deploy_mode = DeployMode::Container)
}

/// A created cluster whose masters report Ready nodes of the old version, and members that serve.
fn created(masters: usize, workers: usize) -> Snapshot {
    let mut snapshot = bare_hosts(masters + workers);
    run_to_completion(&container(named(masters, workers)), &mut snapshot, 1);
    let name = |index: usize| format!("h{}", index + 1);
    let ready = || NodeFact { ready: true, kubelet: OLD.to_owned(), ..NodeFact::default() };
    let report = ClusterFacts {
        api_ready: true,
        nodes: Some((0..masters + workers).map(|index| (name(index), ready())).collect()),
        etcd: EtcdFact::Members((0..masters).map(|index| (name(index), Some(true))).collect()),
        ..ClusterFacts::default()
    };
    for index in 0..masters {
        edit(&mut snapshot, index, |facts| facts.cluster = Some(report.clone()));
    }
    snapshot
}

fn upgraded(masters: usize, workers: usize) -> Intent {
    let intent = container(named(masters, workers));
    let mut spec = (*intent.spec).clone();
    spec.version = NEW.parse().unwrap();
    let known = [spec.version];
    Intent { spec: validate(spec, &known).unwrap().0, artifacts: artifacts(NEW), ..intent }
}

/// The unit of a step: its name, and the pod.
fn pod(plan: &Plan, id: &str) -> (String, StaticPod) {
    match &step(plan, id).op {
        Op::Service { name, unit, .. } => (name.clone(), serde_json::from_str(unit).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn needs(plan: &Plan, id: &str) -> Vec<String> {
    texts(&step(plan, id).needs)
}

fn has(needs: &[String], id: &str) -> bool {
    needs.iter().any(|need| need == id)
}

#[test]
fn the_kubelet_of_a_new_host_runs_before_its_static_pods() {
    let (desired, mut snapshot) = (container(intent(1, 1)), bare_hosts(2));
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let kubelet = needs(&made, "join/kubelet@h1");
    assert!(has(&kubelet, "control/keys@h1") && !has(&kubelet, "control/apiserver@h1"), "{kubelet:?}");
    for (id, image) in [
        ("etcd/member@h1", "join/image-etcd@h1"),
        ("control/apiserver@h1", "join/image-kube-apiserver@h1"),
        ("control/controller-manager@h1", "join/image-kube-controller-manager@h1"),
        ("control/scheduler@h1", "join/image-kube-scheduler@h1"),
    ] {
        let needs = needs(&made, id);
        let all = ["join/kubelet@h1", "control/choose@h1", image];
        assert!(all.iter().all(|need| has(&needs, need)), "{id}: {needs:?}");
    }
    let haproxy = needs(&made, "join/haproxy@h2");
    assert!(has(&haproxy, "join/kubelet@h2") && has(&haproxy, "join/image-haproxy@h2"), "{haproxy:?}");
    assert!(!has(&needs(&made, "join/kubelet@h2"), "join/haproxy-reload@h2"));
    assert!(has(&needs(&made, "join/ready-h2"), "join/haproxy-reload@h2"), "its way to the API");
    golden("container-mode", &run_to_completion(&desired, &mut snapshot, 3));
    assert_eq!(plan(&desired, &snapshot).unwrap().steps, []);
}

#[test]
fn kubeadm_makes_the_pods_of_the_control_plane() {
    let made = plan(&container(intent(1, 1)), &bare_hosts(2)).unwrap();
    for (id, unit, phase) in [
        ("etcd/member@h1", "etcd.pod", "etcd local"),
        ("control/apiserver@h1", "kube-apiserver.pod", "control-plane apiserver"),
        ("control/controller-manager@h1", "kube-controller-manager.pod", "control-plane controller-manager"),
        ("control/scheduler@h1", "kube-scheduler.pod", "control-plane scheduler"),
    ] {
        let (name, pod) = pod(&made, id);
        let StaticPod::Kubeadm { program, phase: words, configuration, .. } = pod else {
            panic!("{id} is not made by kubeadm")
        };
        assert_eq!((name.as_str(), words.join(" ").as_str()), (unit, phase));
        assert_eq!(program, "/var/lib/kubeon/current/kubeadm/bin/kubeadm");
        assert!(configuration.contains("kubeadm.k8s.io/v1beta4") && configuration.contains(OLD));
    }
    let (name, haproxy) = pod(&made, "join/haproxy@h2");
    assert!(matches!(haproxy, StaticPod::Text { .. }) && name == "haproxy.pod", "{name} {haproxy:?}");
    let parts: Vec<String> = texts(made.steps.iter().map(|step| &step.id));
    let sent = |id: &str| parts.iter().any(|part| part == id);
    assert!(sent("artifacts/kubeadm@h1") && sent("artifacts/image-kube-apiserver@h1"), "{parts:?}");
    assert!(!sent("artifacts/kube-apiserver@h1") && !sent("artifacts/haproxy@h2"), "{parts:?}");
    assert!(!sent("artifacts/kubeadm@h2") && !sent("artifacts/image-etcd@h2"), "{parts:?}");
}

#[test]
fn a_kubelet_that_runs_changes_after_its_api_server() {
    let mut snapshot = created(3, 1);
    let desired = upgraded(3, 1);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(has(&needs(&made, "join/kubelet@h2"), "control/apiserver@h2"));
    assert!(!has(&needs(&made, "etcd/member@h2"), "join/kubelet@h2"));
    let stop = &step(&made, "etcd/stop-api-server@h2").op;
    assert_eq!(*stop, Op::StopServices { units: vec!["kube-apiserver.pod".to_owned()], before_member: true });
    golden("container-upgrade", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn a_kubelet_that_was_stopped_starts_before_the_pods() {
    let mut snapshot = created(1, 0);
    edit(&mut snapshot, 0, |facts| {
        for entry in &mut facts.journal {
            if ["join/kubelet@", "control/apiserver@"].iter().any(|id| entry.id.starts_with(id)) {
                entry.state = ResultState::Stopped("is inactive".to_owned());
            }
        }
    });
    let made = plan(&container(named(1, 0)), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(has(&needs(&made, "control/apiserver@h1"), "join/kubelet@h1"));
}

#[test]
fn masters_of_static_pods_join_one_after_another() {
    let mut snapshot = created(1, 1);
    let bare = bare_hosts(4).hosts;
    snapshot.hosts.extend(bare.into_iter().filter(|(at, _)| [address(2), address(3)].contains(at)));
    let all = named(9, 0);
    let host = |index: usize| -> HostSpec { all.spec.masters[index].clone() };
    let mut spec = (*container(intent(1, 0)).spec).clone();
    (spec.masters, spec.workers) = (vec![host(0), host(2), host(3)], vec![host(1)]);
    let known = [spec.version];
    let spec = validate(spec, &known).unwrap().0;
    let desired = Intent { spec, joining_masters: [address(2), address(3)].into(), ..all.clone() };
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(has(&needs(&made, "etcd/join@h4"), "etcd/promote@h3"));
    assert!(has(&needs(&made, "etcd/member@h4"), "join/kubelet@h4"));
    assert!(has(&needs(&made, "control/apiserver@h4"), "etcd/promote@h4"));
    let restarts =
        made.steps.iter().filter(|step| step.host == address(0) && matches!(step.op, Op::Service { .. }));
    assert_eq!(restarts.count(), 0, "nothing restarts on the master that exists");
    golden("container-masters", &run_to_completion(&desired, &mut snapshot, 3));
}

#[test]
fn a_bundle_without_the_images_is_refused() {
    let mut desired = container(intent(1, 1));
    desired.artifacts.images.retain(|name, _| !["etcd", "haproxy"].contains(&name.as_str()));
    desired.artifacts.parts.remove("kubeadm");
    let error = plan(&desired, &bare_hosts(2)).unwrap_err();
    let reasons: Vec<&str> = error.refusals().iter().map(|refusal| refusal.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["does not hold kubeadm", "does not hold the image etcd", "does not hold the image haproxy"]
    );
    let binary = Intent { artifacts: desired.artifacts.clone(), ..intent(1, 1) };
    assert!(plan(&binary, &bare_hosts(2)).is_ok(), "binary mode needs none of them");
}

/// The texts of the units of a mode: a change of the mode would restart everything.
#[test]
fn the_mode_changes_no_unit_of_a_node() {
    let units = |intent: Intent| -> BTreeMap<String, String> {
        let made = plan(&intent, &bare_hosts(2)).unwrap();
        let unit = |step: &kubeon_plan::Step| match &step.op {
            Op::Service { name, unit, .. } => Some((format!("{} {name}", step.host), unit.clone())),
            _ => None,
        };
        made.steps.iter().filter_map(unit).filter(|(name, _)| name.ends_with(".service")).collect()
    };
    let (binary, container) = (units(intent(1, 1)), units(container(intent(1, 1))));
    assert!(container.iter().all(|(name, unit)| binary.get(name) == Some(unit)), "{container:?}");
    assert!(container.keys().any(|name| name.ends_with("kubelet.service")), "{container:?}");
}

#[test]
fn the_nodes_of_static_pods_go_back_alone() {
    let mut snapshot = created(3, 1);
    let current = container(named(3, 1));
    let older = current.artifacts.with_nodes_of(&artifacts("v1.35.7"));
    let behind = Intent { nodes_at: "v1.35.7".parse().ok(), artifacts: older, ..current };
    let made = plan(&behind, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let ids = texts(made.steps.iter().map(|step| &step.id));
    let of_masters: Vec<_> =
        ids.iter().filter(|id| id.starts_with("control/") || id.starts_with("etcd/")).collect();
    assert_eq!(of_masters, ["control/declaration"]);
    assert!(has(&ids, "join/kubelet@h1") && has(&ids, "join/drain-h4"), "{ids:?}");
    run_to_completion(&behind, &mut snapshot, 3);
    assert_eq!(plan(&behind, &snapshot).unwrap().steps.len(), 0);
}
