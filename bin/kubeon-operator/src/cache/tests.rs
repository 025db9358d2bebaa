//! Whom an object belongs to, and what is not seen.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::*;

const OWN: &str = "kubeon-system";

fn cache() -> ObjectCache {
    ObjectCache::new(OWN.to_owned())
}

fn shop() -> QueueKey {
    QueueKey::KubernetesCluster { namespace: "team-b".into(), name: "shop".into() }
}

/// What the operator writes on a Job and its pods, on one in this namespace.
fn labelled(namespace: &str, queue_key: &QueueKey) -> Value {
    json!({"metadata": {"name": "x", "namespace": namespace, "uid": format!("x of {namespace}"), "resourceVersion": "1",
        "labels": {"kubeon.io/operation": "uid-o"}, "annotations": {"kubeon.io/lane": queue_key.to_string()}}})
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
    for (queue_key, home, others) in
        [(shop(), "team-b", ["team-a", OWN]), (QueueKey::Cluster("sample".into()), OWN, ["team-a", "team-b"])]
    {
        let cache = cache();
        for namespace in others {
            let pod: Pod = serde_json::from_value(labelled(namespace, &queue_key)).unwrap();
            let job: Job = serde_json::from_value(labelled(namespace, &queue_key)).unwrap();
            assert!(cache.apply(pod).is_empty() && cache.apply(job).is_empty(), "{queue_key} in {namespace}");
        }
        let objects_of = cache.objects_of(&queue_key);
        assert!(
            objects_of.jobs.is_empty() && objects_of.pods.is_empty() && cache.queue_keys().is_empty(),
            "{queue_key}"
        );
        cache.apply::<Pod>(serde_json::from_value(labelled(home, &queue_key)).unwrap());
        cache.apply::<Job>(serde_json::from_value(labelled(home, &queue_key)).unwrap());
        let objects_of = cache.objects_of(&queue_key);
        assert_eq!((objects_of.jobs.len(), objects_of.pods.len()), (1, 1), "{queue_key}");
    }
}

#[test]
fn nothing_is_decided_for_clusters_of_a_namespace_that_cannot_be_listed_and_of_no_other() {
    let cache = cache();
    let other = QueueKey::KubernetesCluster { namespace: "team-a".into(), name: "shop".into() };
    for namespace in ["team-a", "team-b"] {
        cache.apply(declared(namespace, &json!({})));
    }
    for kind in ["Job", "Pod"] {
        assert!(cache.refused("team-b", kind, "forbidden"));
    }
    let subject = |queue_key: &QueueKey| cache.objects_of(queue_key).subject;
    let is_held = || match subject(&shop()) {
        ClusterObject::KubernetesCluster(Observed::Unreadable(why)) => why.contains("namespace team-b"),
        _ => false,
    };
    assert!(is_held() && matches!(subject(&other), ClusterObject::KubernetesCluster(Observed::Found(_))));
    assert_eq!((cache.held().len(), cache.unlistable().len()), (1, 1));
    assert!(cache.answered("team-b", "Job") && is_held(), "its pods are not known yet");
    assert!(cache.answered("team-b", "Pod") && cache.held().is_empty());
    assert!(matches!(subject(&shop()), ClusterObject::KubernetesCluster(Observed::Found(_))));
}

#[test]
fn who_tells_what_is_held_wakes_when_there_is_another_thing_to_tell_and_sleeps_else() {
    let cache = cache();
    let wakes = || cache.held_changed().now_or_never().is_some();
    cache.apply(declared("team-b", &json!({})));
    assert!(!wakes(), "nothing is hidden");
    cache.refused("team-b", "Job", "forbidden");
    assert!(wakes());
    assert!(!wakes(), "once for one change");
    cache.refused("team-b", "Job", "forbidden");
    cache.apply(declared("team-a", &json!({})));
    cache.apply::<Job>(serde_json::from_value(labelled("team-b", &shop())).unwrap());
    assert!(!wakes(), "as before");
    cache.refused("team-b", "Job", "the namespace is gone");
    assert!(wakes(), "for another reason");
    cache.apply(declared("team-b", &json!({"metadata": {"resourceVersion": "2"}})));
    assert!(wakes(), "another status");
    cache.answered("team-b", "Job");
    assert!(wakes(), "nothing is hidden any more");
}

/// It may still be on its way to the operator.
#[test]
fn a_cluster_that_is_not_seen_where_nothing_can_be_listed_is_not_gone() {
    let cache = cache();
    cache.refused("team-b", "Secret", "forbidden");
    assert!(matches!(
        cache.objects_of(&shop()).subject,
        ClusterObject::KubernetesCluster(Observed::Unreadable(_))
    ));
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
        let cache = cache();
        cache.apply(declared("team-b", &change));
        cache.refused("team-b", "Job", "forbidden");
        let unreadable = matches!(
            cache.objects_of(&shop()).subject,
            ClusterObject::KubernetesCluster(Observed::Unreadable(_))
        );
        assert_eq!((unreadable, cache.held().len()), (is_held, usize::from(is_held)), "{change}");
    }
}

#[test]
fn what_cannot_be_listed_is_asked_for_instead_of_being_missing() {
    let cache = cache();
    let key = ObjectRef::new(ObjectKind::Secret, "team-b", "key");
    assert!(cache.meta(&key).is_none());
    cache.refused("team-b", "Secret", "forbidden");
    assert!(cache.meta(&key).is_some_and(|meta| meta.controlled), "nobody else becomes its owner");
    cache.answered("team-b", "Secret");
    assert!(cache.meta(&key).is_none());
}
