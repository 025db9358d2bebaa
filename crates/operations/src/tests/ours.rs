//! Playbooks in an image of ours: what their Job gets beside contract A's.

use kubeon_api::kubeonkube::{Action, ClusterOperationSpec};
use serde_json::{Value, json};

use crate::testing::World;
use crate::write::Kind;

const OURS: &str = "wangzhichidocker/kubeonkube:v0.1";

fn playbook(name: &str, image: &str) -> impl FnOnce(&mut ClusterOperationSpec) {
    let (action, image) = (name.to_owned(), image.to_owned());
    move |spec| {
        spec.main = Action { action_type: "playbook".into(), action, ..Action::default() };
        spec.image = image;
    }
}

fn pod(world: &World, job: &str) -> Value {
    world.get(Kind::Job, "ns", job)["spec"]["template"]["spec"].clone()
}

fn volume<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == name)
}

#[test]
fn a_playbook_finds_the_bundle_of_its_version_and_what_an_earlier_one_left() {
    let mut world = World::with_cluster();
    world.change(
        Kind::ConfigMap,
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
    let kept = |world: &World| world.get(Kind::Secret, "ns", "kubeonkube-sample-state")["metadata"].clone();
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
        world.change(Kind::ConfigMap, "ns", map, &json!({"data": {key: text}}));
        world.ask("o", playbook("cluster.yml", OURS));
        world.settle();
        assert!(world.jobs().is_empty());
        let reason = world.status("o")["reason"].as_str().unwrap().to_owned();
        assert!(world.status("o")["status"] == "Failed" && reason.contains(said), "{reason}");
    }
}
