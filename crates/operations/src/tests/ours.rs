//! Playbooks in a runner image: the additions to their Job.

use kubeon_api::kubeonkube::{Action, ActionSource, ClusterOperationSpec, HookAction};
use serde_json::{Value, json};

use crate::testing::{World, reference};
use crate::write::{ObjectKind, ObjectRef};

const RUNNER_IMAGE: &str = "wangzhichidocker/kubeonkube:v0.1";

fn playbook(name: &str, image: &str) -> impl FnOnce(&mut ClusterOperationSpec) {
    let (action, image) = (name.to_owned(), image.to_owned());
    move |spec| {
        spec.main = Action { action_type: "playbook".into(), action, ..Action::default() };
        spec.image = image;
    }
}

fn pod(world: &World, job: &str) -> Value {
    world.get(ObjectKind::Job, "ns", job)["spec"]["template"]["spec"].clone()
}

fn volume<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == name)
}

#[test]
fn a_playbook_gets_the_bundle_of_its_version_and_the_state_of_an_earlier_one() {
    let mut world = World::with_cluster();
    world.change(
        ObjectKind::ConfigMap,
        "ns",
        "vars",
        &json!({"data": {"group_vars.yml": "kube_version: 1.35.4\n"}}),
    );
    world.ask("one", playbook("cluster.yml", RUNNER_IMAGE));
    world.settle();
    let first = pod(&world, "kubeonkube-one-job");
    assert_eq!(first["initContainers"][0]["image"], "kubeon/kubeon-bundle:v1.35.4");
    assert_eq!(
        first["containers"][0]["image"], "kubeon/kubeon-runner:v1",
        "the name in the samples is never pulled"
    );
    assert_eq!(volume(&first, "state").unwrap()["secret"]["secretName"], "kubeonkube-sample-state");
    let command = first["containers"][0]["command"].to_string();
    for words in ["--secret-namespace=ns", "--state-secret=kubeonkube-sample-state", "--kubeconfig-secret="] {
        assert!(command.contains(words), "{words} is missing in {command}");
    }
    assert_eq!(volume(&first, "entrypoint").unwrap()["configMap"]["defaultMode"], 0o750);
    let kept =
        |world: &World| world.get(ObjectKind::Secret, "ns", "kubeonkube-sample-state")["metadata"].clone();
    assert_eq!(kept(&world)["annotations"]["kubeon.io/job"], "kubeonkube-one-job");
    assert!(kept(&world)["ownerReferences"].is_null(), "the keys outlive the object of the cluster");
    let kubeconfig = world.get(ObjectKind::Secret, "ns", "kubeonkube-sample-kubeconfig");
    assert_eq!(kubeconfig["metadata"]["ownerReferences"][0]["kind"], "Cluster");
    let owner = json!({"metadata": {"ownerReferences": [kubeconfig["metadata"]["ownerReferences"][0]]}});
    world.change(ObjectKind::Secret, "ns", "kubeonkube-sample-state", &owner);
    world.ask("two", playbook("reset.yml", RUNNER_IMAGE));
    world.job_says("kubeonkube-one-job", "Complete");
    world.settle();
    assert_eq!(kept(&world)["annotations"]["kubeon.io/job"], "kubeonkube-two-job");
    assert_eq!(kept(&world)["ownerReferences"], json!([]), "the owner that an earlier version set");
    let second = pod(&world, "kubeonkube-two-job");
    assert!(second["initContainers"].is_null(), "reset.yml needs no bundle");
}

/// Clusters of all tenants share their names.
#[test]
fn the_state_of_a_deleted_cluster_waits_for_a_person_before_the_next_one_of_the_name_gets_it() {
    const STATE: &str = "kubeonkube-sample-state";
    let mut world = World::with_cluster();
    // That of an earlier version has no UID.
    let old = json!({"metadata": {"labels": {"kubeon.io/cluster": "ns.sample"}}, "stringData": {"state.tar.zst": "keys"}});
    world.put(ObjectKind::Secret, "ns", STATE, old);
    world.ask("one", playbook("cluster.yml", RUNNER_IMAGE));
    world.settle();
    let uid = |world: &World, name: &str| {
        world.get(ObjectKind::Secret, "ns", name)["metadata"]["annotations"]["kubeon.io/cluster-uid"].clone()
    };
    for name in [STATE, "kubeonkube-sample-kubeconfig"] {
        assert_eq!(uid(&world, name), "uid-sample", "{name}");
    }
    world.job_says("kubeonkube-one-job", "Complete");
    world.settle();
    world.change(ObjectKind::Cluster, "", "sample", &json!({"metadata": {"uid": "uid-of-a-stranger"}}));
    // The garbage collector deletes the kubeconfig, and not the state.
    world.objects.remove(&ObjectRef::new(ObjectKind::Secret, "ns", "kubeonkube-sample-kubeconfig")).unwrap();
    world.ask("two", playbook("reset.yml", RUNNER_IMAGE));
    world.settle();
    assert!(!world.jobs().iter().any(|job| job.contains("two")), "{:?}", world.jobs());
    let reason = world.status("two")["reason"].as_str().unwrap().to_owned();
    for part in ["Secret ns/kubeonkube-sample-state belongs to an earlier Cluster", "kubeon.io/cluster-uid"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(uid(&world, STATE), "uid-sample");
    let continued = json!({"metadata": {"annotations": {"kubeon.io/cluster-uid": null}}});
    let reset = json!({"stringData": {"state.tar.zst": ""}});
    for decision in [continued, reset] {
        let mut world = world.clone();
        world.change(ObjectKind::Secret, "ns", STATE, &decision);
        world.settle();
        assert_eq!(uid(&world, STATE), "uid-of-a-stranger");
        let pod = pod(&world, "kubeonkube-two-job");
        assert_eq!(volume(&pod, "state").unwrap()["secret"]["secretName"], STATE);
    }
}

#[test]
fn any_other_image_and_a_command_get_contract_a_and_nothing_else() {
    for (name, image) in [("foreign", "quay.io/kubespray/kubespray:v2.28.0"), ("shell", RUNNER_IMAGE)] {
        let mut world = World::with_cluster();
        if name == "shell" {
            world.ask(name, |spec| spec.image = image.into());
        } else {
            world.ask(name, playbook("cluster.yml", image));
        }
        world.settle();
        let pod = pod(&world, &format!("kubeonkube-{name}-job"));
        assert!(volume(&pod, "state").is_none() && pod["initContainers"].is_null(), "{name}");
        assert!(!world.objects.keys().any(|target| target.name == "kubeonkube-sample-state"), "{name}");
    }
}

type Change = fn(&mut ClusterOperationSpec);

fn command(text: &str) -> Action {
    Action { action_type: "shell".into(), action: text.into(), ..Action::default() }
}

/// Creates an operation with a runner image; returns the pod of its Job.
fn requested(world: &mut World, name: &str, change: Change) -> Value {
    world.ask(name, |spec| {
        spec.image = RUNNER_IMAGE.into();
        change(spec);
    });
    world.settle();
    pod(world, &format!("kubeonkube-{name}-job"))
}

#[test]
fn a_command_that_calls_a_stateful_program_gets_the_additions() {
    let ways: [(&str, Change); 4] = [
        ("command", |spec| {
            spec.main = command("cd /kubespray\nansible-playbook -i /conf/hosts.yml cluster.yml")
        }),
        ("hook", |spec| {
            spec.post_hook = vec![HookAction { what: command("\"$KUBEON_PROGRAM\" ls"), when: None }]
        }),
        ("script", |spec| spec.entrypoint_sh_ref = Some(reference("mine"))),
        ("brought", |spec| {
            spec.main = Action {
                action_source: Some(ActionSource::Configmap),
                action_source_ref: Some(reference("mine")),
                ..command("hello.sh")
            };
        }),
    ];
    let mine = json!({"hello.sh": "exec /usr/local/bin/kubeon ls\n", "entrypoint.sh": "kubeon ls\n"});
    for (name, change) in ways {
        let mut world = World::with_cluster();
        world.put(ObjectKind::ConfigMap, "ns", "mine", json!({"data": mine}));
        let pod = requested(&mut world, name, change);
        let state = &volume(&pod, "state").unwrap_or_else(|| panic!("{name} has no state"))["secret"];
        assert_eq!(state["secretName"], "kubeonkube-sample-state", "{name}");
        let command = pod["containers"][0]["command"].to_string();
        assert!(command.contains("--state-secret=kubeonkube-sample-state"), "{name}: {command}");
        assert_eq!(pod["initContainers"][0]["image"], "kubeon/kubeon-bundle:v1.36.3", "{name}");
    }
}

/// The command itself reports an invalid inventory.
#[test]
fn a_command_gets_an_invalid_inventory() {
    let mut world = World::with_cluster();
    world.change(ObjectKind::ConfigMap, "ns", "hosts", &json!({"data": {"hosts.yml": "all: {nodes: {}}\n"}}));
    let pod = requested(&mut world, "o", |spec| {
        spec.main = command("ansible-playbook -i /conf/hosts.yml mine.yml")
    });
    assert!(volume(&pod, "state").is_some());
}

/// Whether the Job of such a command gets the state, and the number of writes until it runs.
fn state_and_writes(change: fn(&mut ClusterOperationSpec)) -> (bool, usize) {
    let mut world = World::with_cluster();
    world.settle();
    let before = world.written.len();
    let pod = requested(&mut world, "o", change);
    (volume(&pod, "state").is_some(), world.written.len() - before)
}

#[test]
fn a_command_without_a_stateful_program_needs_no_additional_write() {
    let (has_state, plain) =
        state_and_writes(|spec| spec.main = command("echo kubeonkube kubeon-runner ansible; hostname"));
    assert!(!has_state);
    assert_eq!(state_and_writes(|spec| spec.main = command("kubeon ls")), (true, plain + 2));
}

#[test]
fn an_invalid_inventory_is_reported_with_file_and_line() {
    for (map, key, text, said) in [
        ("vars", "group_vars.yml", "a: [1,\n", "group_vars.yml line"),
        (
            "hosts",
            "hosts.yml",
            "all: {hosts: {'x;rm -rf /': {}}}\n",
            "\"x;rm -rf /\": is neither a name nor an address",
        ),
        ("hosts", "hosts.yml", "all: {nodes: {}}\n", "hosts.yml line 1: nodes: is not a field of a group"),
    ] {
        let mut world = World::with_cluster();
        world.change(ObjectKind::ConfigMap, "ns", map, &json!({"data": {key: text}}));
        world.ask("o", playbook("cluster.yml", RUNNER_IMAGE));
        world.settle();
        assert!(world.jobs().is_empty());
        let reason = world.status("o")["reason"].as_str().unwrap().to_owned();
        assert!(world.status("o")["status"] == "Failed" && reason.contains(said), "{reason}");
    }
}
