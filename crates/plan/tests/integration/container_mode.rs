//! Clusters whose control plane and haproxy are static pods. Read the texts in `tests/stories/`.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::DeployMode;
use kubeon_api::{ClusterKeys, RotationPhase};
use kubeon_plan::sim::{apply, artifacts, run_to_completion};
use kubeon_plan::{HostSpec, Intent, PartInfo, Plan, Snapshot, SnapshotRestore, lint, plan, validate};
use kubeon_wire::{Check, ClusterFacts, EtcdFact, NodeFact, Op, ResultState, StaticPod};

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
fn the_stopped_kubelet_of_a_worker_takes_a_minor_version_after_the_api_servers() {
    let mut snapshot = created(3, 1);
    edit(&mut snapshot, 3, |facts| {
        let kubelet = facts.journal.iter_mut().find(|entry| entry.id.starts_with("join/kubelet@"));
        kubelet.unwrap().state = ResultState::Stopped("is inactive".to_owned());
    });
    let made = plan(&upgraded(3, 1), &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let kubelet = needs(&made, "join/kubelet@h4");
    for master in ["h1", "h2", "h3"] {
        assert!(has(&kubelet, &format!("control/apiserver@{master}")), "{kubelet:?}");
    }
    assert!(has(&needs(&made, "join/haproxy@h4"), "join/kubelet@h4"), "it runs haproxy");
}

/// The masters h3 and h4 join h1, which has the worker h2.
fn joined_by_two() -> Intent {
    let all = named(9, 0);
    let host = |index: usize| -> HostSpec { all.spec.masters[index].clone() };
    let mut spec = (*container(intent(1, 0)).spec).clone();
    (spec.masters, spec.workers) = (vec![host(0), host(2), host(3)], vec![host(1)]);
    let known = [spec.version];
    let spec = validate(spec, &known).unwrap().0;
    Intent { spec, joining_masters: [address(2), address(3)].into(), ..all.clone() }
}

/// The bare hosts h3 and h4, too.
fn with_two_bare_hosts(mut snapshot: Snapshot) -> Snapshot {
    let bare = bare_hosts(4).hosts;
    snapshot.hosts.extend(bare.into_iter().filter(|(at, _)| [address(2), address(3)].contains(at)));
    snapshot
}

#[test]
fn masters_of_static_pods_join_one_after_another() {
    let (mut snapshot, desired) = (with_two_bare_hosts(created(1, 1)), joined_by_two());
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

/// The steps of a plan whose ids contain the text.
fn ids(plan: &Plan, text: &str) -> Vec<String> {
    let ids = texts(plan.steps.iter().map(|step| &step.id));
    ids.into_iter().filter(|id| id.contains(text)).collect()
}

#[test]
fn a_tried_version_replaces_the_pods_of_the_control_plane_only_and_goes_back() {
    let mut snapshot = created(3, 1);
    let own = container(named(3, 1));
    let tried = own.artifacts.with_control_plane_of(&artifacts(NEW));
    let trial = Intent { trial: NEW.parse().ok(), artifacts: tried, ..own.clone() };
    let made = plan(&trial, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(has(&needs(&made, "control/apiserver@h2"), "join/image-kube-apiserver@h2"));
    assert!(has(&needs(&made, "control/apiserver@h2"), "control/choose@h2"));
    let configuration = |made: &Plan| match pod(made, "control/apiserver@h2").1 {
        StaticPod::Kubeadm { configuration, .. } => configuration,
        other => panic!("{other:?}"),
    };
    let text = configuration(&made);
    assert!(text.contains(NEW) && text.contains("emulated-version"), "{text}");
    assert_eq!((ids(&made, "etcd/"), ids(&made, "join/kubelet@")), (Vec::new(), Vec::new()));
    apply(&made, made.steps.len(), &mut snapshot);
    assert_eq!(plan(&trial, &snapshot).unwrap().steps, []);

    let back = plan(&own, &snapshot).unwrap();
    assert_eq!(lint(&back, &snapshot), []);
    let text = configuration(&back);
    assert!(text.contains(OLD) && !text.contains("emulated-version"), "{text}");
    assert!(has(&needs(&back, "control/apiserver@h2"), "control/choose@h2"));
    assert_eq!(
        (ids(&back, "etcd/"), ids(&back, "artifacts/")),
        (Vec::new(), Vec::new()),
        "the host has the old parts"
    );
}

#[test]
fn haproxy_runs_on_while_only_the_name_of_its_image_changes() {
    let snapshot = created(1, 1);
    let mut desired = upgraded(1, 1);
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(ids(&made, "join/haproxy@"), ["join/haproxy@h2"], "another program");
    let same = container(named(1, 1)).artifacts.parts["haproxy"].clone();
    desired.artifacts.parts.insert("haproxy".to_owned(), same);
    desired.artifacts.images.get_mut("haproxy").unwrap().name = format!("registry.k8s.io/haproxy:{NEW}");
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(ids(&made, "haproxy@h2"), ["artifacts/image-haproxy@h2", "join/image-haproxy@h2"]);
    assert_eq!(ids(&made, "haproxy-"), ["join/haproxy-image@h2"]);
}

/// A created cluster after a rotation of its keys, its keys, and the plan of each phase.
fn rotated(masters: usize, workers: usize) -> (Snapshot, ClusterKeys, Vec<(RotationPhase, Plan)>) {
    let mut snapshot = created(masters, workers);
    let (mut keys, mut plans) = (ClusterKeys::default().advanced(), Vec::new());
    while let Some(phase) = keys.rotation() {
        let intent = Intent { keys, ..container(named(masters, workers)) };
        let made = plan(&intent, &snapshot).unwrap();
        assert_eq!(lint(&made, &snapshot), [], "{phase}");
        apply(&made, made.steps.len(), &mut snapshot);
        assert_eq!(plan(&intent, &snapshot).unwrap().steps, [], "{phase}");
        plans.push((phase, made));
        keys = keys.advanced();
    }
    (snapshot, keys, plans)
}

#[test]
fn static_pods_read_new_keys_and_the_next_node_waits_for_the_certificate_of_a_kubelet() {
    let (_, _, plans) = rotated(3, 1);
    for (phase, made) in &plans {
        let renews = *phase == RotationPhase::Renew;
        assert_eq!(ids(made, "etcd/member@h2").len(), usize::from(!renews), "{phase}");
        assert_eq!(ids(made, "control/scheduler@h2").len(), usize::from(!renews), "{phase}");
        assert_eq!(ids(made, "join/identity@h2").len(), usize::from(renews), "{phase}");
        if !ids(made, "join/certificate@h2").is_empty() {
            assert!(has(&needs(made, "join/ready-h2"), "join/certificate@h2"), "{phase}");
            assert!(has(&needs(made, "join/certificate@h2"), "join/kubelet@h2"), "{phase}");
        }
    }
    let (_, renew) = plans.iter().find(|(phase, _)| *phase == RotationPhase::Renew).unwrap();
    assert_eq!(ids(renew, "join/certificate@").len(), 4);
    assert!(has(&needs(renew, "join/identity@h2"), "verify/node@h1"), "a kubelet stops in its turn");
}

#[test]
fn masters_of_static_pods_join_after_a_rotation() {
    let (snapshot, keys, _) = rotated(1, 1);
    let mut snapshot = with_two_bare_hosts(snapshot);
    let desired = Intent { keys, ..joined_by_two() };
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(has(&needs(&made, "etcd/member@h4"), "join/kubelet@h4"));
    // The kubelet reaches no API server before its own one runs.
    let waits =
        |check: &Check| matches!(check, Check::Path { path } if path.ends_with("kubelet-client-current.pem"));
    match &step(&made, "join/kubelet@h4").op {
        Op::Service { ready, .. } => assert!(!ready.iter().any(waits), "{ready:?}"),
        other => panic!("{other:?}"),
    }
    let certificate = needs(&made, "join/certificate@h4");
    assert!(
        has(&certificate, "control/apiserver@h4") && has(&certificate, "join/kubelet@h4"),
        "{certificate:?}"
    );
    apply(&made, made.steps.len(), &mut snapshot);
    let again = plan(&desired, &snapshot).unwrap();
    assert_eq!(texts(again.steps.iter().map(|step| &step.id)), [""; 0]);
}

#[test]
fn a_cluster_with_new_keys_is_made_out_of_a_snapshot() {
    let mut snapshot = bare_hosts(4);
    let digest = "d".repeat(64).parse().unwrap();
    let part = PartInfo { digest, size: 1 << 10, unpacked_size: 1 << 20, version: "of etcd".to_owned() };
    let restore = SnapshotRestore { attempt: "0a1b2c3d".to_owned(), snapshot: part };
    let keys = ClusterKeys::settled(ClusterKeys::default().advanced().newest());
    let desired = Intent { restore: Some(restore), keys, ..container(named(3, 1)) };
    let made = plan(&desired, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let member = needs(&made, "etcd/member@h2");
    assert!(has(&member, "join/kubelet@h2") && has(&member, "etcd/restore-0a1b2c3d@h2"), "{member:?}");
    assert!(has(&needs(&made, "join/ready-h2"), "join/certificate@h2"), "its node comes from the snapshot");
    apply(&made, made.steps.len(), &mut snapshot);
    let left = plan(&desired, &snapshot).unwrap();
    let changes = ids(&left, "@").into_iter().filter(|id| !id.starts_with("verify/"));
    assert_eq!(changes.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_kubelet_that_was_stopped_starts_before_the_pods_after_a_rotation_too() {
    let (mut snapshot, keys, _) = rotated(3, 1);
    edit(&mut snapshot, 0, |facts| {
        for entry in &mut facts.journal {
            if ["join/kubelet@", "control/apiserver@"].iter().any(|id| entry.id.starts_with(id)) {
                entry.state = ResultState::Stopped("is inactive".to_owned());
            }
        }
    });
    let made = plan(&Intent { keys, ..container(named(3, 1)) }, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert!(has(&needs(&made, "control/apiserver@h1"), "join/kubelet@h1"));
    assert!(has(&needs(&made, "join/ready-h1"), "join/certificate@h1"));
}

/// A master restarted, and its kubelet does not start: nothing of it runs.
#[test]
fn a_master_whose_kubelet_and_pods_are_down_is_repaired() {
    const RUNNING: [&str; 3] = ["join/kubelet@", "etcd/member@", "control/"];
    for down in 0..3 {
        let (mut snapshot, name) = (created(3, 1), format!("h{}", down + 1));
        for index in 0..3 {
            edit(&mut snapshot, index, |facts| {
                let report = facts.cluster.as_mut().unwrap();
                report.nodes.as_mut().unwrap().get_mut(&name).unwrap().ready = false;
                let EtcdFact::Members(members) = &mut report.etcd else { panic!("no members") };
                members.insert(name.clone(), Some(false));
            });
        }
        edit(&mut snapshot, down, |facts| {
            facts.cluster = Some(ClusterFacts { etcd: EtcdFact::Down, ..ClusterFacts::default() });
            facts.cluster_steps = None;
            let services = ["apiserver@", "controller-manager@", "scheduler@", "member@", "kubelet@"];
            for entry in &mut facts.journal {
                let runs = services.iter().any(|service| entry.id.contains(service));
                if runs && RUNNING.iter().any(|begin| entry.id.starts_with(begin)) {
                    entry.state = ResultState::Stopped("is inactive".to_owned());
                }
            }
        });
        let made = plan(&container(named(3, 1)), &snapshot).unwrap();
        assert_eq!(lint(&made, &snapshot), [], "{name}");
        let member = needs(&made, &format!("etcd/member@{name}"));
        assert!(has(&member, &format!("join/kubelet@{name}")), "{name}: {member:?}");
        let api = needs(&made, &format!("control/apiserver@{name}"));
        assert!(has(&api, &format!("etcd/member@{name}")), "{name}: {api:?}");
    }
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
