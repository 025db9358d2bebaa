//! Changes of masters, settings and versions of a built cluster.

use super::*;

/// Three masters, two workers, v1.36.1.
fn highly_available() -> Value {
    let mut old = running(&["10.0.0.2", "10.0.0.4"]);
    old["spec"]["cluster"]["masterList"] = list(&["10.0.0.1", "10.0.0.3", "10.0.0.5"]);
    old["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(old["spec"].to_string());
    old
}

#[test]
fn masters_may_change_while_most_of_them_stay() {
    let old = highly_available();
    let masters = |hosts: &[&str]| with(old.clone(), "/spec/cluster/masterList", list(hosts));
    for hosts in [
        &["10.0.0.1", "10.0.0.3", "10.0.0.5", "10.0.0.7", "10.0.0.9"][..],
        &["10.0.0.1", "10.0.0.3"],
        &["10.0.0.1", "10.0.0.3", "10.0.0.7"],
    ] {
        allowed(&masters(hosts), Some(&old));
        allowed(&with(masters(hosts), "/spec/cluster/etcdList", list(hosts)), Some(&old));
    }
    let failed = masters(&["10.0.0.1", "10.0.0.3", "10.0.0.7"]);
    allowed(&asking(failed.clone(), "scaling-up"), Some(&failed));
    for (hosts, message) in [
        (
            &["10.0.0.7"][..],
            "spec.cluster.masterList: would keep no master; one master of the cluster must stay",
        ),
        (
            &["10.0.0.1"],
            "spec.cluster.masterList: 2 of 3 masters would leave at once, a majority; remove fewer",
        ),
    ] {
        assert_eq!(refused(&masters(hosts), Some(&old)), message);
    }
    let promoted = with(
        masters(&["10.0.0.1", "10.0.0.3", "10.0.0.5", "10.0.0.2"]),
        "/spec/cluster/nodeList",
        list(&["10.0.0.4"]),
    );
    let message = refused(&promoted, Some(&old));
    assert!(message.contains("10.0.0.2 is a worker of the cluster; remove it first"), "{message}");
    let demoted = with(
        masters(&["10.0.0.1", "10.0.0.3"]),
        "/spec/cluster/nodeList",
        list(&["10.0.0.2", "10.0.0.4", "10.0.0.5"]),
    );
    let message = refused(&demoted, Some(&old));
    assert!(message.contains("10.0.0.5 is a master of the cluster; remove it first"), "{message}");
}

#[test]
fn some_settings_of_a_built_cluster_may_change() {
    let old = running(&["10.0.0.2"]);
    for (pointer, value) in [
        ("/spec/cluster/network", json!({"maxPods": 99, "nodePortRange": "30000-30999"})),
        ("/spec/cluster/apiServer", json!({"certSANs": ["api.example.com"]})),
        ("/spec/cluster/extraArgs", json!({"kubelet": {"v": "4"}})),
        ("/spec/cluster/nodeList/0/labels", json!({"disk": "ssd"})),
    ] {
        let new = with(old.clone(), pointer, value);
        allowed(&new, Some(&old));
        allowed(&asking(new, "updating"), Some(&old));
    }
}

#[test]
fn a_newer_version_of_the_catalogue_is_allowed() {
    let old = highly_available();
    let new = with(old.clone(), "/spec/cluster/kubeVersion", json!("v1.36.3"));
    allowed(&new, Some(&old));
    allowed(&asking(new, "updating"), Some(&old));
    let mut without = old.clone();
    without["spec"]["cluster"].as_object_mut().unwrap().remove("kubeVersion");
    let message = refused(&without, Some(&old));
    assert!(message.contains("cannot be left out any more: declare v1.36.1"), "{message}");
    let message = refused(&asking(cluster(&["10.0.0.2"]), "updating"), Some(&cluster(&["10.0.0.2"])));
    assert!(message.contains("this one was never made"), "{message}");
}
