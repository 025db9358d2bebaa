//! Playbooks in an image of ours: what their Job gets beside contract A's.

use kubeon_api::kubeonkube::{Action, ActionSource, ClusterOperationSpec, HookAction};
use serde_json::{Value, json};

use crate::testing::{World, reference};
use crate::write::ObjectKind;

const OURS: &str = "wangzhichidocker/kubeonkube:v0.1";

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
fn a_playbook_finds_the_bundle_of_its_version_and_what_an_earlier_one_left() {
    let mut world = World::with_cluster();
    world.change(
        ObjectKind::ConfigMap,
        "ns",
        "vars",
        &json!({"data": {"group_vars.yml": "kube_version: 1.35.4\n"}}),
    );
    world.ask("one", playbook("cluster.yml", OURS));
    world.settle();
    let first = pod(&world, "kubeonkube-one-job");
    assert_eq!(first["initContainers"][0]["image"], "kubeon/kubeon-bundle:v1.35.4");
    assert_eq!(volume(&first, "state").unwrap()["secret"]["secretName"], "kubeonkube-sample-state");
    let command = first["containers"][0]["command"].to_string();
    for words in ["--secret-namespace=ns", "--state-secret=kubeonkube-sample-state", "--kubeconfig-secret="] {
        assert!(command.contains(words), "{words} is missing in {command}");
    }
    assert_eq!(volume(&first, "entrypoint").unwrap()["configMap"]["defaultMode"], 0o750);
    let kept =
        |world: &World| world.get(ObjectKind::Secret, "ns", "kubeonkube-sample-state")["metadata"].clone();
    assert_eq!(kept(&world)["annotations"]["kubeon.io/job"], "kubeonkube-one-job");
    assert_eq!(kept(&world)["ownerReferences"][0]["kind"], "Cluster");
    world.ask("two", playbook("reset.yml", OURS));
    world.job_says("kubeonkube-one-job", "Complete");
    world.settle();
    assert_eq!(kept(&world)["annotations"]["kubeon.io/job"], "kubeonkube-two-job");
    let second = pod(&world, "kubeonkube-two-job");
    assert!(second["initContainers"].is_null(), "nothing is put on hosts");
}

#[test]
fn any_other_image_and_a_command_get_contract_a_and_nothing_else() {
    for (name, image) in [("foreign", "quay.io/kubespray/kubespray:v2.28.0"), ("shell", OURS)] {
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

/// Asks for an operation in an image of ours; the pod of its Job.
fn asked(world: &mut World, name: &str, change: Change) -> Value {
    world.ask(name, |spec| {
        spec.image = OURS.into();
        change(spec);
    });
    world.settle();
    pod(world, &format!("kubeonkube-{name}-job"))
}

#[test]
fn a_command_that_calls_what_playbooks_call_finds_what_they_find() {
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
        let pod = asked(&mut world, name, change);
        let state = &volume(&pod, "state").unwrap_or_else(|| panic!("{name} has no state"))["secret"];
        assert_eq!(state["secretName"], "kubeonkube-sample-state", "{name}");
        let command = pod["containers"][0]["command"].to_string();
        assert!(command.contains("--state-secret=kubeonkube-sample-state"), "{name}: {command}");
        assert_eq!(pod["initContainers"][0]["image"], "kubeon/kubeon-bundle:v1.36.3", "{name}");
    }
}

/// It is the command's to say what it makes of an inventory.
#[test]
fn a_command_is_given_an_inventory_that_nobody_else_can_work_with() {
    let mut world = World::with_cluster();
    world.change(ObjectKind::ConfigMap, "ns", "hosts", &json!({"data": {"hosts.yml": "all: {nodes: {}}\n"}}));
    let pod =
        asked(&mut world, "o", |spec| spec.main = command("ansible-playbook -i /conf/hosts.yml mine.yml"));
    assert!(volume(&pod, "state").is_some());
}

/// Whether the Job of such a command finds the state, and what it costs until it works.
fn costs(change: fn(&mut ClusterOperationSpec)) -> (bool, usize) {
    let mut world = World::with_cluster();
    world.settle();
    let before = world.written.len();
    let pod = asked(&mut world, "o", change);
    (volume(&pod, "state").is_some(), world.written.len() - before)
}

#[test]
fn a_command_that_calls_nothing_of_ours_costs_no_write_more() {
    let (finds, plain) = costs(|spec| spec.main = command("echo kubeonkube kubeon-runner ansible; hostname"));
    assert!(!finds);
    assert_eq!(costs(|spec| spec.main = command("kubeon ls")), (true, plain + 2));
}

#[test]
fn an_inventory_that_nobody_can_work_with_is_named_by_file_and_line() {
    for (map, key, text, said) in [
        ("vars", "group_vars.yml", "a: [1,\n", "group_vars.yml line"),
        (
            "hosts",
            "hosts.yml",
            "all: {hosts: {'x;rm -rf /': {}}}\n",
            "\"x;rm -rf /\": is no name and no address",
        ),
        ("hosts", "hosts.yml", "all: {nodes: {}}\n", "hosts.yml line 1: nodes: is not a field of a group"),
    ] {
        let mut world = World::with_cluster();
        world.change(ObjectKind::ConfigMap, "ns", map, &json!({"data": {key: text}}));
        world.ask("o", playbook("cluster.yml", OURS));
        world.settle();
        assert!(world.jobs().is_empty());
        let reason = world.status("o")["reason"].as_str().unwrap().to_owned();
        assert!(world.status("o")["status"] == "Failed" && reason.contains(said), "{reason}");
    }
}
