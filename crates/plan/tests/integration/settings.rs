//! Settings of a living cluster: what a change writes, and what restarts.

use std::collections::BTreeSet;

use crate::support::{address, bare_hosts, created, intent, named, step, texts, with_settings};
use kubeon_api::kubernetes_cluster::NodeTaint;
use kubeon_plan::sim::{apply, run_to_completion};
use kubeon_plan::{Intent, Plan, StepId, lint, plan, validate};
use kubeon_wire::{Check, Op};
use serde_json::json;

const HEALTHY: [Option<bool>; 3] = [Some(true), Some(true), Some(true)];

/// The ids of the steps that start, stop or select programs.
fn interruptions(made: &Plan) -> Vec<String> {
    let interrupts = |op: &Op| matches!(op, Op::Service { .. } | Op::Links { .. } | Op::StopServices { .. });
    texts(made.steps.iter().filter(|step| interrupts(&step.op)).map(|step| &step.id))
}

fn with_parameter(intent: Intent, value: &str) -> Intent {
    with_settings(intent, |settings| {
        settings.kernel_parameters.insert("vm.max_map_count".to_owned(), value.to_owned());
    })
}

/// The intent with these taints of its last worker.
fn with_taints(intent: Intent, taints: &[NodeTaint]) -> Intent {
    let mut spec = (*intent.spec).clone();
    spec.workers.last_mut().unwrap().taints = taints.iter().cloned().collect();
    let version = spec.version;
    Intent { spec: validate(spec, &[version]).unwrap().0, ..intent }
}

fn gpu() -> NodeTaint {
    serde_json::from_value(json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"})).unwrap()
}

#[test]
fn a_kernel_parameter_is_set_on_every_host_and_restarts_nothing() {
    let mut snapshot = created(3, 2, &HEALTHY);
    let intent = with_parameter(named(3, 2), "262144");
    let made = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    assert_eq!(interruptions(&made), Vec::<String>::new());
    let kernel = step(&made, "prepare/kernel@h5");
    assert!(kernel.title.contains(" and vm.max_map_count=262144, swap off"), "{}", kernel.title);
    let Op::Kernel { parameters, optional, .. } = &kernel.op else { panic!("{kernel:?}") };
    assert_eq!(parameters["vm.max_map_count"], "262144");
    assert!(!optional.contains(&"vm.max_map_count".to_owned()), "a declared one is required");
    run_to_completion(&intent, &mut snapshot, 2);
    let back = plan(&named(3, 2), &snapshot).unwrap();
    let Op::Kernel { parameters, .. } = &step(&back, "prepare/kernel@h1").op else { panic!() };
    assert!(!parameters.contains_key("vm.max_map_count"));
}

#[test]
fn declared_taints_come_and_go_without_a_restart() {
    let mut snapshot = created(3, 2, &HEALTHY);
    assert!(plan(&named(3, 2), &snapshot).unwrap().steps.is_empty(), "no node has a step for taints");
    let intent = with_taints(named(3, 2), &[gpu()]);
    let made = plan(&intent, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let ids = texts(made.steps.iter().map(|step| &step.id));
    assert_eq!(ids, ["control/declaration", "join/taints-h5"]);
    assert_eq!(step(&made, "join/taints-h5").title, "taint node h5 with dedicated=gpu:NoSchedule");
    run_to_completion(&intent, &mut snapshot, 2);
    assert!(plan(&intent, &snapshot).unwrap().steps.is_empty());
    let removal = plan(&named(3, 2), &snapshot).unwrap();
    let step = step(&removal, "join/taints-h5");
    assert_eq!(step.title, "remove the declared taints of node h5");
    assert!(matches!(&step.op, Op::NodeTaints { taints, .. } if taints.is_empty()), "{step:?}");
    apply(&removal, removal.steps.len(), &mut snapshot);
    assert!(plan(&named(3, 2), &snapshot).unwrap().steps.is_empty());
}

/// Pods start on a node as soon as it is Ready.
#[test]
fn a_new_node_does_not_wait_to_be_ready_for_its_taints() {
    let made = plan(&with_taints(intent(1, 1), &[gpu()]), &bare_hosts(2)).unwrap();
    assert_eq!(lint(&made, &bare_hosts(2)), []);
    let needs = texts(&step(&made, "join/taints-h2").needs);
    assert_eq!(needs, ["control/rights", "join/kubelet@h2"]);
}

#[test]
fn another_size_of_packets_restarts_containerd_on_one_node_after_another() {
    let snapshot = created(3, 2, &HEALTHY);
    let smaller = with_settings(named(3, 2), |settings| settings.mtu = Some(1400));
    let made = plan(&smaller, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let restarted: BTreeSet<String> = interruptions(&made).into_iter().collect();
    let runtimes: BTreeSet<String> = (1..=5).map(|number| format!("join/runtime@h{number}")).collect();
    assert_eq!(restarted, runtimes);
    assert_eq!(made.rolling.len(), 2, "masters, then workers");
    assert!(texts(&step(&made, "join/runtime@h2").needs).contains(&"verify/node@h1".to_owned()));
    assert!(step(&made, "join/runtime-config@h2").title.contains("1400 bytes"));
}

/// The check is on every host, so that an argument that does not exist stops the change before any restart.
#[test]
fn programs_are_asked_for_their_arguments_before_anything_restarts() {
    let snapshot = created(3, 2, &HEALTHY);
    let more = with_settings(named(3, 2), |settings| {
        settings.extra_args.kubelet.insert("v".to_owned(), "4".to_owned());
        settings.extra_args.etcd.insert("snapshot-count".to_owned(), "5000".to_owned());
    });
    let made = plan(&more, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let asked = |host: &str| {
        let step = step(&made, &format!("artifacts/arguments@{host}"));
        let Op::Await { checks } = &step.op else { panic!("{step:?}") };
        let program = |check: &Check| match check {
            Check::AcceptsArguments { program, arguments } => {
                format!("{} {}", program.rsplit('/').next().unwrap(), arguments.join(" "))
            }
            other => panic!("{other:?}"),
        };
        checks.iter().map(program).collect::<Vec<_>>()
    };
    assert_eq!(asked("h1"), ["etcd --snapshot-count=5000", "kubelet --v=4"]);
    assert_eq!(asked("h5"), ["kubelet --v=4"]);
    for id in interruptions(&made) {
        let step = step(&made, &id);
        let host = made.hosts[&step.host].name.as_str();
        let check: StepId = format!("artifacts/arguments@{host}").parse().unwrap();
        assert!(step.needs.contains(&check), "{id} does not wait: {:?}", step.needs);
    }
    let joins = plan(&more, &bare_hosts(5)).unwrap();
    let check = step(&joins, "artifacts/arguments@h5");
    assert_eq!((check.host, texts(&check.needs)), (address(4), vec!["artifacts/kubelet@h5".to_owned()]));
}

/// `--help` answers nothing about gates, so each program is asked in its own way, before the first of them restarts.
#[test]
fn programs_are_asked_for_their_feature_gates_before_anything_restarts() {
    let snapshot = created(3, 2, &HEALTHY);
    let gated = with_settings(named(3, 2), |settings| settings.feature_gates = "A=true".to_owned());
    let made = plan(&gated, &snapshot).unwrap();
    assert_eq!(lint(&made, &snapshot), []);
    let asked = |plan: &Plan, host: &str| {
        let Op::Await { checks } = &step(plan, &format!("artifacts/arguments@{host}")).op else {
            panic!("{host}")
        };
        let program = |check: &Check| match check {
            Check::KnowsFeatureGates { program, arguments } => {
                format!("{} {}", program.rsplit('/').next().unwrap(), arguments.join(" "))
            }
            other => panic!("{other:?}"),
        };
        checks.iter().map(program).collect::<Vec<_>>()
    };
    let control_plane = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let of_masters =
        control_plane.iter().chain(&["kubelet"]).map(|program| format!("{program} --feature-gates=A=true"));
    assert_eq!(asked(&made, "h1"), of_masters.collect::<Vec<_>>());
    assert_eq!(asked(&made, "h5"), ["kubelet --feature-gates=A=true"]);
    assert_eq!(step(&made, "artifacts/arguments@h5").title, "kubelet on h5 knows its feature gates");
    for id in interruptions(&made) {
        let step = step(&made, &id);
        let check: StepId = format!("artifacts/arguments@{}", made.hosts[&step.host].name).parse().unwrap();
        assert!(step.needs.contains(&check), "{id} does not wait: {:?}", step.needs);
    }
}
