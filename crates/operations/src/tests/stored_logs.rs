//! The logs of operations that ended, and the place that they take.

use serde_json::{Value, json};

use crate::ObjectRef;
use crate::testing::World;
use crate::write::ObjectKind;

/// Operations that ended one after the other, whose Jobs are gone, each with a log of so many KiB.
fn ended(results: &[(&str, &str, Option<u32>)]) -> World {
    let mut world = World::with_cluster();
    for (name, condition, _) in results {
        world.ask(name, |_| {});
        world.settle();
        world.job_says(&format!("kubeonkube-{name}-job"), condition);
        world.settle();
    }
    for (name, _, kib) in results {
        let owner = json!({"apiVersion": "v1", "kind": "ClusterOperation", "name": name, "uid": format!("uid-{name}")});
        let size = kib.map(|kib| json!({"kubeon.io/stored-bytes": (kib * 1024).to_string()}));
        let map =
            json!({"metadata": {"ownerReferences": [owner], "annotations": size}, "data": {"log": "x"}});
        world.put(ObjectKind::ConfigMap, "ns", &format!("kubeonkube-{name}-job-log"), map);
        world.objects.remove(&ObjectRef::new(ObjectKind::Job, "ns", format!("kubeonkube-{name}-job")));
    }
    world
}

fn kept(world: &World, names: &[&str]) -> Vec<bool> {
    let log = |name: &&str| ObjectRef::new(ObjectKind::ConfigMap, "ns", format!("kubeonkube-{name}-job-log"));
    names.iter().map(|name| world.objects.contains_key(&log(name))).collect()
}

#[test]
fn the_oldest_logs_go_when_those_of_a_cluster_are_too_large() {
    let mut world = ended(&[
        ("o1", "Complete", Some(1)),
        ("o2", "Complete", None),
        ("o3", "Failed", Some(30)),
        ("o4", "Complete", Some(40)),
        ("o5", "Complete", Some(20)),
    ]);
    let names = ["o1", "o2", "o3", "o4", "o5"];
    world.settle();
    assert_eq!(kept(&world, &names), [false, false, true, true, true], "60 KiB of two, and the last failure");
    world.settings.log_kib = 1;
    world.settle();
    assert_eq!(kept(&world, &names), [false, false, true, false, true], "the newest one always stays");
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_log_is_not_removed_while_its_job_exists() {
    let mut world = ended(&[("o1", "Complete", Some(70)), ("o2", "Complete", Some(70))]);
    world.put(
        ObjectKind::Job,
        "ns",
        "kubeonkube-o1-job",
        json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
    );
    world.settle();
    assert_eq!(kept(&world, &["o1", "o2"]), [true, true]);
}

#[test]
fn the_size_of_a_log_is_known_and_a_long_one_is_compressed() {
    let mut world = World::with_cluster();
    world.ask("o1", |_| {});
    world.settle();
    world.log = "one line of a log\n".repeat(10_000);
    super::lifecycle::succeeded_pod(&mut world, "o1");
    world.job_says("kubeonkube-o1-job", "Complete");
    world.settle();
    let map: Value = world.get(ObjectKind::ConfigMap, "ns", "kubeonkube-o1-job-log").clone();
    let end = map["data"]["log"].as_str().unwrap();
    assert!(end.ends_with("one line of a log\n") && end.len() <= 4096, "{end}");
    let bytes: usize =
        map["metadata"]["annotations"]["kubeon.io/stored-bytes"].as_str().unwrap().parse().unwrap();
    assert!(bytes > end.len() && bytes < 8192, "{bytes}");
    let map = serde_json::from_value(map).unwrap();
    assert_eq!(kubeon_operation_log::whole_log(&map).unwrap(), world.log);
}
