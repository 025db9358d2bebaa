//! The queue keys of objects, and namespaces that cannot be listed.

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

/// The metadata that the operator writes to a Job and its pods.
fn labelled(namespace: &str, queue_key: &QueueKey) -> Value {
    json!({"metadata": {"name": "x", "namespace": namespace, "uid": format!("x of {namespace}"), "resourceVersion": "1",
        "labels": {"kubeon.io/operation": "uid-o"}, "annotations": {"kubeon.io/queue-key": queue_key.to_string()}}})
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
fn jobs_and_pods_count_only_in_the_namespace_of_the_jobs_of_their_queue_key() {
    for (queue_key, home, others) in
        [(shop(), "team-b", ["team-a", OWN]), (QueueKey::Cluster("sample".into()), OWN, ["team-a", "team-b"])]
    {
        let cache = cache();
        for namespace in others {
            let pod: Pod = serde_json::from_value(labelled(namespace, &queue_key)).unwrap();
            let job: Job = serde_json::from_value(labelled(namespace, &queue_key)).unwrap();
            assert!(cache.apply(pod).is_empty() && cache.apply(job).is_empty(), "{queue_key} in {namespace}");
        }
        let objects = cache.objects_of(&queue_key);
        assert!(
            objects.jobs.is_empty() && objects.pods.is_empty() && cache.queue_keys().is_empty(),
            "{queue_key}"
        );
        cache.apply::<Pod>(serde_json::from_value(labelled(home, &queue_key)).unwrap());
        cache.apply::<Job>(serde_json::from_value(labelled(home, &queue_key)).unwrap());
        let objects = cache.objects_of(&queue_key);
        assert_eq!((objects.jobs.len(), objects.pods.len()), (1, 1), "{queue_key}");
    }
}

#[test]
fn only_clusters_of_an_unlistable_namespace_are_not_reconciled() {
    let cache = cache();
    let other = QueueKey::KubernetesCluster { namespace: "team-a".into(), name: "shop".into() };
    for namespace in ["team-a", "team-b"] {
        cache.apply(declared(namespace, &json!({})));
    }
    for kind in ["Job", "Pod"] {
        assert!(cache.list_refused("team-b", kind, "forbidden"));
    }
    let subject = |queue_key: &QueueKey| cache.objects_of(queue_key).subject;
    let is_held = || match subject(&shop()) {
        ClusterObject::KubernetesCluster(Observed::Unreadable(why)) => why.contains("namespace team-b"),
        _ => false,
    };
    assert!(is_held() && matches!(subject(&other), ClusterObject::KubernetesCluster(Observed::Found(_))));
    assert_eq!((cache.held().len(), cache.unlistable().len()), (1, 1));
    assert!(cache.list_succeeded("team-b", "Job") && is_held(), "its pods are not known yet");
    assert!(cache.list_succeeded("team-b", "Pod") && cache.held().is_empty());
    assert!(matches!(subject(&shop()), ClusterObject::KubernetesCluster(Observed::Found(_))));
}

#[test]
fn a_change_of_unlistable_namespaces_or_their_clusters_wakes_the_reporter() {
    let cache = cache();
    let notifies = || cache.held_changed().now_or_never().is_some();
    cache.apply(declared("team-b", &json!({})));
    assert!(!notifies(), "everything can be listed");
    cache.list_refused("team-b", "Job", "forbidden");
    assert!(notifies());
    assert!(!notifies(), "once for one change");
    cache.list_refused("team-b", "Job", "forbidden");
    cache.apply(declared("team-a", &json!({})));
    cache.apply::<Job>(serde_json::from_value(labelled("team-b", &shop())).unwrap());
    assert!(!notifies(), "nothing changed");
    cache.list_refused("team-b", "Job", "the namespace does not exist");
    assert!(notifies(), "for another reason");
    cache.apply(declared("team-b", &json!({"metadata": {"resourceVersion": "2"}})));
    assert!(notifies(), "another status");
    cache.list_succeeded("team-b", "Job");
    assert!(notifies(), "everything can be listed again");
}

/// The cluster may exist although it is not in the cache.
#[test]
fn an_unknown_cluster_of_an_unlistable_namespace_is_not_missing() {
    let cache = cache();
    cache.list_refused("team-b", "Secret", "forbidden");
    assert!(matches!(
        cache.objects_of(&shop()).subject,
        ClusterObject::KubernetesCluster(Observed::Unreadable(_))
    ));
}

#[test]
fn a_cluster_that_retains_its_hosts_is_deleted_in_an_unlistable_namespace() {
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
        cache.list_refused("team-b", "Job", "forbidden");
        let unreadable = matches!(
            cache.objects_of(&shop()).subject,
            ClusterObject::KubernetesCluster(Observed::Unreadable(_))
        );
        assert_eq!((unreadable, cache.held().len()), (is_held, usize::from(is_held)), "{change}");
    }
}

#[test]
fn an_unlistable_object_is_read_and_not_missing() {
    let cache = cache();
    let key = ObjectRef::new(ObjectKind::Secret, "team-b", "key");
    assert!(cache.meta(&key).is_none());
    cache.list_refused("team-b", "Secret", "forbidden");
    assert!(cache.meta(&key).is_some_and(|meta| meta.controlled), "it gets no other owner");
    cache.list_succeeded("team-b", "Secret");
    assert!(cache.meta(&key).is_none());
}
