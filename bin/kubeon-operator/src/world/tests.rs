//! Whom an object belongs to, and what is not seen.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::*;

const OWN: &str = "kubeon-system";

fn world() -> World {
    World::new(OWN.to_owned())
}

fn shop() -> Lane {
    Lane::Business { namespace: "team-b".into(), name: "shop".into() }
}

/// What the operator writes on a Job and its pods, on one in this namespace.
fn labelled(namespace: &str, lane: &Lane) -> Value {
    json!({"metadata": {"name": "x", "namespace": namespace, "uid": format!("x of {namespace}"), "resourceVersion": "1",
        "labels": {"kubeon.io/operation": "uid-o"}, "annotations": {"kubeon.io/lane": lane.to_string()}}})
}

fn declared(namespace: &str, change: &Value) -> KubernetesCluster {
    let mut object = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "shop", "namespace": namespace, "uid": format!("shop of {namespace}"), "resourceVersion": "1"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}]}}});
    for part in ["metadata", "spec", "status"] {
        for (key, value) in change[part].as_object().into_iter().flatten() {
            object[part][key] = value.clone();
        }
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_job_and_a_pod_count_only_where_jobs_of_their_lane_are_made() {
    for (lane, home, others) in
        [(shop(), "team-b", ["team-a", OWN]), (Lane::Cluster("sample".into()), OWN, ["team-a", "team-b"])]
    {
        let world = world();
        for namespace in others {
            let pod: Pod = serde_json::from_value(labelled(namespace, &lane)).unwrap();
            let job: Job = serde_json::from_value(labelled(namespace, &lane)).unwrap();
            assert!(world.apply(pod).is_empty() && world.apply(job).is_empty(), "{lane} in {namespace}");
        }
        let room = world.room(&lane);
        assert!(room.jobs.is_empty() && room.pods.is_empty() && world.lanes().is_empty(), "{lane}");
        world.apply::<Pod>(serde_json::from_value(labelled(home, &lane)).unwrap());
        world.apply::<Job>(serde_json::from_value(labelled(home, &lane)).unwrap());
        let room = world.room(&lane);
        assert_eq!((room.jobs.len(), room.pods.len()), (1, 1), "{lane}");
    }
}

#[test]
fn nothing_is_decided_for_clusters_of_a_namespace_that_cannot_be_listed_and_of_no_other() {
    let world = world();
    let other = Lane::Business { namespace: "team-a".into(), name: "shop".into() };
    for namespace in ["team-a", "team-b"] {
        world.apply(declared(namespace, &json!({})));
    }
    for kind in ["Job", "Pod"] {
        assert!(world.refused("team-b", kind, "forbidden"));
    }
    let subject = |lane: &Lane| world.room(lane).subject;
    let is_held = || match subject(&shop()) {
        Subject::Business(Seen::Unreadable(why)) => why.contains("namespace team-b"),
        _ => false,
    };
    assert!(is_held() && matches!(subject(&other), Subject::Business(Seen::Is(_))));
    assert_eq!((world.held().len(), world.hidden().len()), (1, 1));
    assert!(world.answered("team-b", "Job") && is_held(), "its pods are not known yet");
    assert!(world.answered("team-b", "Pod") && world.held().is_empty());
    assert!(matches!(subject(&shop()), Subject::Business(Seen::Is(_))));
}

#[test]
fn who_tells_what_is_held_wakes_when_there_is_another_thing_to_tell_and_sleeps_else() {
    let world = world();
    let wakes = || world.held_anew().now_or_never().is_some();
    world.apply(declared("team-b", &json!({})));
    assert!(!wakes(), "nothing is hidden");
    world.refused("team-b", "Job", "forbidden");
    assert!(wakes());
    assert!(!wakes(), "once for one change");
    world.refused("team-b", "Job", "forbidden");
    world.apply(declared("team-a", &json!({})));
    world.apply::<Job>(serde_json::from_value(labelled("team-b", &shop())).unwrap());
    assert!(!wakes(), "as before");
    world.refused("team-b", "Job", "the namespace is gone");
    assert!(wakes(), "for another reason");
    world.apply(declared("team-b", &json!({"metadata": {"resourceVersion": "2"}})));
    assert!(wakes(), "another status");
    world.answered("team-b", "Job");
    assert!(wakes(), "nothing is hidden any more");
}

/// It may still be on its way to the operator.
#[test]
fn a_cluster_that_is_not_seen_where_nothing_can_be_listed_is_not_gone() {
    let world = world();
    world.refused("team-b", "Secret", "forbidden");
    assert!(matches!(world.room(&shop()).subject, Subject::Business(Seen::Unreadable(_))));
}

#[test]
fn a_cluster_that_leaves_its_hosts_goes_though_its_namespace_cannot_be_listed() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    for (change, is_held) in [
        (json!({"metadata": deleted, "spec": {"deletionPolicy": "Retain"}}), false),
        (
            json!({"metadata": deleted, "spec": {"deletionPolicy": "Retain"}, "status": {"operation": "o"}}),
            true,
        ),
        (json!({"metadata": deleted}), true),
        (json!({"spec": {"deletionPolicy": "Retain"}}), true),
    ] {
        let world = world();
        world.apply(declared("team-b", &change));
        world.refused("team-b", "Job", "forbidden");
        let unreadable = matches!(world.room(&shop()).subject, Subject::Business(Seen::Unreadable(_)));
        assert_eq!((unreadable, world.held().len()), (is_held, usize::from(is_held)), "{change}");
    }
}

#[test]
fn what_cannot_be_listed_is_asked_for_instead_of_being_missing() {
    let world = world();
    let key = Target::new(Kind::Secret, "team-b", "key");
    assert!(world.meta(&key).is_none());
    world.refused("team-b", "Secret", "forbidden");
    assert!(world.meta(&key).is_some_and(|meta| meta.controlled), "nobody else becomes its owner");
    world.answered("team-b", "Secret");
    assert!(world.meta(&key).is_none());
}
