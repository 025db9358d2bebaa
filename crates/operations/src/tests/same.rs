//! Equivalent specs, and changed logins of hosts.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, running, saved, scaled, world};
use crate::testing::World;
use crate::write::ObjectKind;

/// A cluster that was created with these additional fields.
fn created(cluster: &Value) -> World {
    let mut world = world(&["10.0.0.2"]);
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"cluster": cluster}}));
    world.settle();
    saved(&mut world);
    ends(&mut world, "Complete");
    world
}

fn declared(world: &mut World, cluster: &Value) {
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    let patch = json!({"spec": {"cluster": cluster}, "metadata": {"generation": generation}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

/// The file of the Job's ConfigMap with this key.
fn config_file(world: &World, key: &str) -> String {
    let volumes = job(world)["spec"]["template"]["spec"]["volumes"].clone();
    let conf = volumes.as_array().unwrap().iter().find(|volume| volume["name"] == "conf").unwrap().clone();
    let map = world.get(ObjectKind::ConfigMap, "default", conf["configMap"]["name"].as_str().unwrap());
    map["data"][key].as_str().unwrap().to_owned()
}

fn declared_spec(world: &World) -> Value {
    let desired: Value = serde_json::from_str(&config_file(world, "cluster.json")).unwrap();
    desired["spec"]["cluster"].clone()
}

fn assert_unchanged(world: &mut World, jobs: usize, said: &Value) {
    assert_eq!((phase(world).as_str(), world.jobs().len()), ("Running", jobs), "{said}");
    assert!(object(world)["status"]["reason"].is_null(), "{said}: {}", object(world)["status"]);
    let conditions = object(world)["status"]["conditions"].as_array().unwrap().clone();
    let degraded = conditions.iter().find(|one| one["type"] == "Degraded").unwrap();
    assert_eq!(degraded["status"], "False", "{said}");
    assert_eq!(world.settle(), 0, "{said}");
}

#[test]
fn an_equivalent_spec_does_not_block_a_new_worker() {
    let masters = json!([{"ip": "10.0.0.3"}, {"ip": "10.0.0.1"}]);
    for (before, now) in [
        (json!({}), json!({"kubeVersion": "v1.36.3"})),
        (json!({}), json!({"network": {"cni": "flannel", "maxPods": 250}})),
        (json!({"network": {"cni": "flannel"}}), json!({"network": null})),
        (json!({}), json!({"loadBalancer": {"mode": "haproxy"}})),
        (json!({}), json!({"masterList": masters})),
        (json!({"etcdList": null}), json!({"etcdList": masters})),
        (json!({}), json!({"region": "north"})),
    ] {
        let mut world = created(&before);
        let jobs = world.jobs().len();
        declared(&mut world, &now);
        assert_unchanged(&mut world, jobs, &now);
        declared(&mut world, &json!({"nodeList": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.4"}]}));
        assert_eq!(env(&job(&world), "OPERATION"), "scaling-up", "{now}");
        // The engine identifies masters by their order.
        assert_eq!(
            declared_spec(&world)["masterList"],
            json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.3"}]),
            "{now}"
        );
        ends(&mut world, "Complete");
        assert_unchanged(&mut world, jobs + 1, &now);
    }
}

/// The older form of the annotation, and retired field values.
#[test]
fn the_applied_spec_of_an_earlier_operator_is_compared_by_its_meaning() {
    let mut world = running(&["10.0.0.2"]);
    let jobs = world.jobs().len();
    let applied = json!({
        "kubeVersion": "1.36.3", "podCIDR": "10.96.0.0/12", "imagesRegistry": "",
        "masterList": [{"ip": "10.0.0.3", "role:omitempty": ""}, {"ip": "10.0.0.1", "role": "control-plane"}],
        "nodeList": [{"ip": "10.0.0.2"}], "etcdList": [{"ip": "10.0.0.1", "port": 22}],
    });
    let annotation = json!({"app.kubernetes.io/spec": applied.to_string()});
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"annotations": annotation}}),
    );
    declared(&mut world, &json!({"kubeVersion": "v1.36.3"}));
    assert_unchanged(&mut world, jobs, &applied);
}

/// A newer kubeon has a newer default version.
#[test]
fn a_missing_version_means_the_running_version() {
    let mut world = running(&["10.0.0.2"]);
    world.settings.default_version = "v1.36.9".to_owned();
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(declared_spec(&world)["kubeVersion"], "v1.36.3");
    assert!(job(&world).to_string().contains("kubeon-bundle:v1.36.3"), "{}", job(&world));
    ends(&mut world, "Complete");
    assert_eq!(object(&world)["status"]["version"], "v1.36.3");
    assert_eq!(world.settle(), 0);
}

#[test]
fn existing_hosts_use_the_currently_declared_logins() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    let jobs = world.jobs().len();
    let masters = json!([{"ip": "10.0.0.1", "port": 2222}, {"ip": "10.0.0.3"}]);
    let ops = json!({"ip": "10.0.0.2", "user": "ops"});
    let logins = json!({"masterList": masters, "nodeList": [ops, {"ip": "10.0.0.4"}]});
    declared(&mut world, &logins);
    assert_unchanged(&mut world, jobs, &logins);
    declared(&mut world, &json!({"nodeList": [ops, {"ip": "10.0.0.5"}]}));
    assert_eq!(env(&job(&world), "OPERATION"), "scaling-up");
    let desired = declared_spec(&world);
    assert_eq!(desired["masterList"], masters);
    assert_eq!(
        desired["nodeList"],
        json!([ops, {"ip": "10.0.0.4"}, {"ip": "10.0.0.5"}]),
        "4 goes afterwards"
    );
    ends(&mut world, "Complete");
    assert_eq!(env(&job(&world), "OPERATION"), "scaling-down");
    assert_eq!(declared_spec(&world)["nodeList"], json!([ops, {"ip": "10.0.0.5"}]));
    ends(&mut world, "Failed");
    let other = json!({"ip": "10.0.0.2", "user": "admin"});
    declared(&mut world, &json!({"nodeList": [other, {"ip": "10.0.0.5"}]}));
    assert_eq!(declared_spec(&world)["nodeList"], json!([other, {"ip": "10.0.0.5"}]), "the next try");
}

/// The teardown removes the state, so the inventory of its Job has the logins.
#[test]
fn a_teardown_uses_the_currently_declared_logins() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    let masters = json!([{"ip": "10.0.0.1", "port": 2222}, {"ip": "10.0.0.3"}]);
    let workers = json!([{"ip": "10.0.0.2", "user": "null"}]);
    let now = world.now.to_string();
    let going = json!({"spec": {"cluster": {"masterList": masters, "nodeList": workers}},
        "metadata": {"deletionTimestamp": now, "generation": 2}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &going);
    world.settle();
    assert_eq!(env(&job(&world), "OPERATION"), "terminating");
    assert!(!env(&job(&world), "HOSTS_YAML").contains("2222"), "its shape is a contract");
    let inventory =
        kubeon_inventory::read(&NAME.parse().unwrap(), &config_file(&world, "hosts.yml"), "").unwrap();
    let hosts = inventory.cluster.spec.cluster.by_address();
    let shown: Vec<_> = hosts
        .values()
        .map(|host| format!("{} {:?} {}", host.ip, host.port, host.user.as_ref().unwrap()))
        .collect();
    assert_eq!(
        shown,
        ["10.0.0.1 Some(2222) root", "10.0.0.2 None null", "10.0.0.3 None root", "10.0.0.4 None root"]
    );
}
