//! The denials of the rules. The numbers of cases are those of contracts A and B.

mod day_two;

use kube::core::DynamicObject;
use kube::core::admission::AdmissionRequest;
use kubeon_api::{KubernetesClusterSpec, Version};
use serde_json::{Value, json};

use crate::addresses::AddressBook;
use crate::lookup::{Lookup as _, ObjectName};
use crate::rules::decide;
use crate::verdict::AdmissionVerdict;

fn book() -> AddressBook {
    let versions = ["v1.35.4", "v1.36.1", "v1.36.3"].map(|text| text.parse::<Version>().unwrap());
    let book = AddressBook::new(versions.to_vec());
    book.begin();
    let other: KubernetesClusterSpec =
        serde_json::from_value(json!({"cluster": {"masterList": [{"ip": "10.9.9.9"}]}})).unwrap();
    book.note(&ObjectName::new("default", "other"), &other);
    book.end();
    book
}

fn list(ips: &[&str]) -> Value {
    ips.iter().map(|ip| json!({"ip": ip})).collect()
}

/// A cluster of master .1 and these workers.
fn cluster(workers: &[&str]) -> Value {
    json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "test-cluster", "namespace": "default", "annotations": {}},
        "spec": {"cluster": {"kubeVersion": "v1.36.1", "masterList": list(&["10.0.0.1"]), "nodeList": list(workers)}},
    })
}

/// The same cluster, created and running.
fn running(workers: &[&str]) -> Value {
    let mut object = cluster(workers);
    object["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(object["spec"].to_string());
    object["metadata"]["annotations"]["app.kubernetes.io/operation"] = json!("create-finished");
    object["status"] = json!({"phase": "Running", "version": "v1.36.1"});
    object
}

fn asking(mut object: Value, word: &str) -> Value {
    object["metadata"]["annotations"]["app.kubernetes.io/operation"] = json!(word);
    object
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn request(resource: (&str, &str), new: &Value, old: Option<&Value>) -> AdmissionRequest<DynamicObject> {
    serde_json::from_value(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "uid": "u", "name": new["metadata"]["name"], "namespace": new["metadata"]["namespace"],
        "kind": {"group": resource.0, "version": "v1", "kind": "K"},
        "resource": {"group": resource.0, "version": "v1", "resource": resource.1},
        "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "userInfo": {"username": "u"}, "object": new, "oldObject": old, "dryRun": false,
    }))
    .unwrap()
}

fn judged(new: &Value, old: Option<&Value>) -> AdmissionVerdict {
    decide(&request(("ecs.yun.com", "kubernetesclusters"), new, old), &book())
}

fn refused(new: &Value, old: Option<&Value>) -> String {
    let verdict = judged(new, old);
    assert!(!verdict.allowed(), "allowed: {new:#}");
    verdict.message()
}

fn allowed(new: &Value, old: Option<&Value>) -> Vec<String> {
    let verdict = judged(new, old);
    assert_eq!(verdict.message(), "");
    verdict.warnings
}

#[test]
fn allows_a_new_cluster() {
    assert_eq!(allowed(&cluster(&["10.0.0.2"]), None), Vec::<String>::new());
}

#[test]
fn refuses_a_version_that_is_not_in_the_catalogue() {
    let new = with(cluster(&[]), "/spec/cluster/kubeVersion", json!("v1.99.0"));
    assert_eq!(
        refused(&new, None),
        "spec.cluster.kubeVersion: v1.99.0 is not in the catalogue; it holds v1.35.4, v1.36.1, v1.36.3"
    );
}

#[test]
fn names_the_cluster_that_an_address_belongs_to() {
    assert_eq!(
        refused(&cluster(&["10.0.0.2", "10.9.9.9"]), None),
        "spec.cluster.nodeList[1].ip: 10.9.9.9 belongs to KubernetesCluster default/other; a host has one cluster"
    );
    let old = running(&["10.0.0.2"]);
    assert!(
        refused(&with(old.clone(), "/spec/cluster/nodeList", list(&["10.0.0.2", "10.9.9.9"])), Some(&old))
            .contains("default/other")
    );
}

#[test]
fn names_no_cluster_of_another_namespace() {
    let elsewhere = with(cluster(&["10.9.9.9"]), "/metadata/namespace", json!("team-b"));
    assert_eq!(
        refused(&elsewhere, None),
        "spec.cluster.nodeList[0].ip: 10.9.9.9 belongs to a cluster in another namespace; a host has one cluster"
    );
}

/// While the addresses are unknown, no cluster is allowed.
#[test]
fn refuses_while_not_all_clusters_are_known() {
    let empty = AddressBook::new(book().versions().to_vec());
    let verdict = decide(&request(("ecs.yun.com", "kubernetesclusters"), &cluster(&[]), None), &empty);
    assert_eq!(verdict.code(), 503);
    assert_eq!(verdict.message(), "the operator has not seen all clusters yet; try again in a moment");
}

/// B 24.
#[test]
fn refuses_masters_and_etcd_that_change_with_a_scale() {
    let old = running(&["10.0.0.2"]);
    let more = with(old.clone(), "/spec/cluster/nodeList", list(&["10.0.0.2", "10.0.0.4"]));
    let masters = with(more.clone(), "/spec/cluster/masterList", list(&["10.0.0.1", "10.0.0.3"]));
    let message = refused(&asking(masters, "scaling-up"), Some(&old));
    assert_eq!(
        message,
        "spec.cluster.masterList: scaling-up changes nodeList only; change masters without the annotation; new: 10.0.0.3"
    );
    let etcd = with(more, "/spec/cluster/etcdList", list(&["10.0.0.2"]));
    assert!(refused(&asking(etcd, "scaling-up"), Some(&old)).starts_with("spec.cluster.etcdList: "));
}

/// B 20, 21.
#[test]
fn allows_workers_to_come_and_go() {
    let (two, one) = (running(&["10.0.0.2", "10.0.0.4"]), running(&["10.0.0.2"]));
    allowed(&asking(with(one.clone(), "/spec", two["spec"].clone()), "scaling-up"), Some(&one));
    allowed(&asking(with(two.clone(), "/spec", one["spec"].clone()), "scaling-down"), Some(&two));
    allowed(&with(one.clone(), "/spec/cluster/nodeList", list(&["10.0.0.5"])), Some(&one));
}

/// B 23: the same list is allowed with a warning.
#[test]
fn says_that_a_scale_without_a_difference_does_nothing() {
    let old = running(&["10.0.0.2"]);
    assert_eq!(
        allowed(&asking(old.clone(), "scaling-up"), Some(&old)),
        ["spec.cluster.nodeList: equals the list of the cluster; nothing is done"]
    );
}

/// B 26: clients write the word, then delete the object.
#[test]
fn says_that_terminating_does_nothing_until_the_object_is_deleted() {
    let old = running(&["10.0.0.2"]);
    let said = "metadata.annotations[app.kubernetes.io/operation]: terminating takes effect with: \
                kubectl -n default delete ecs test-cluster; nothing is done until then";
    assert_eq!(allowed(&asking(old.clone(), "terminating"), Some(&old)), [said]);
    let going = with(old, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let again = asking(going.clone(), "terminating");
    assert_eq!(allowed(&again, Some(&going)), Vec::<String>::new(), "asked for once more");
}

/// B 24.
#[test]
fn refuses_a_node_that_a_scale_up_drops_and_one_that_a_scale_down_adds() {
    let old = running(&["10.0.0.2", "10.0.0.4"]);
    let new = with(old.clone(), "/spec/cluster/nodeList", list(&["10.0.0.4", "10.0.0.5"]));
    assert_eq!(
        refused(&asking(new.clone(), "scaling-up"), Some(&old)),
        "spec.cluster.nodeList: scaling-up keeps every node, but 10.0.0.2 would be removed; use scaling-down for that"
    );
    assert_eq!(
        refused(&asking(new, "scaling-down"), Some(&old)),
        "spec.cluster.nodeList: scaling-down adds no node, but 10.0.0.5 is new; use scaling-up for that"
    );
}

/// B 24.
#[test]
fn refuses_to_remove_the_last_worker_or_one_that_runs_etcd() {
    let old = running(&["10.0.0.2"]);
    let message =
        refused(&asking(with(old.clone(), "/spec/cluster/nodeList", json!([])), "scaling-down"), Some(&old));
    assert!(message.starts_with("spec.cluster.nodeList: would be empty"), "{message}");
    let mut old = cluster(&["10.0.0.2", "10.0.0.4"]);
    old["spec"]["cluster"]["etcdList"] = list(&["10.0.0.2"]);
    old["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(old["spec"].to_string());
    let new = with(old.clone(), "/spec/cluster/nodeList", list(&["10.0.0.4"]));
    assert_eq!(
        refused(&new, Some(&old)),
        "spec.cluster.nodeList: 10.0.0.2 cannot be removed: it runs etcd (etcdList)"
    );
}

#[test]
fn refuses_by_name_what_is_not_possible_yet() {
    let old = running(&["10.0.0.2"]);
    for (pointer, value, message) in [
        (
            "/spec/cluster/kubeVersion",
            json!("v1.35.4"),
            "spec.cluster.kubeVersion: v1.35.4 is older than v1.36.1: a downgrade is not possible",
        ),
        (
            "/spec/cluster/network",
            json!({"nodeMaskSize": 25, "maxPods": 99}),
            "spec.cluster.network.nodeMaskSize: cannot be changed in a cluster that is built: every node has its share of the pod network",
        ),
        (
            "/spec/cluster/imagesRegistry",
            json!("r.example.com"),
            "spec.cluster.imagesRegistry: cannot be changed in a cluster that is built: it is chosen when the cluster is created",
        ),
        (
            "/spec/cluster/clusterType",
            json!("k3s"),
            "spec.cluster.clusterType: k3s is not supported yet; use kubernetes",
        ),
        (
            "/spec/cluster/nodeList/0/name",
            json!("w1"),
            "spec.cluster.nodeList[0].name: cannot be changed; remove the node, then add it under its new name",
        ),
    ] {
        assert_eq!(refused(&with(old.clone(), pointer, value), Some(&old)), message);
    }
}

/// A cluster goes back to a snapshot: the declaration names it and its version, and changes nothing else.
#[test]
fn a_lower_version_needs_the_word_and_the_snapshot() {
    let old = running(&["10.0.0.2"]);
    let older = with(old.clone(), "/spec/cluster/kubeVersion", json!("v1.35.4"));
    let with_snapshot = |mut object: Value| {
        object["spec"]["snapshots"] = json!({"folder": "s3://backups/shop/", "credentialsRef": {"name": "store"},
            "restoreFrom": "s3://backups/shop/20260131T120000Z-v1.35.4.db"});
        object
    };
    let back = asking(with_snapshot(older.clone()), "rollbacking");
    allowed(&back, Some(&old));
    assert_eq!(
        refused(&asking(older, "rollbacking"), Some(&old)),
        "spec.snapshots.restoreFrom: rollbacking needs the snapshot to which the cluster returns"
    );
    assert_eq!(
        refused(&asking(with_snapshot(old.clone()), "rollbacking"), Some(&old)),
        "spec.cluster.kubeVersion: rollbacking returns to a version before v1.36.1: declare that of the snapshot"
    );
    let more = with(back.clone(), "/spec/cluster/nodeList", list(&["10.0.0.2", "10.0.0.4"]));
    assert_eq!(
        refused(&more, Some(&old)),
        "spec.cluster: rollbacking changes kubeVersion alone; change the other fields afterwards"
    );
    let failed = asking(back, "rollback-failed");
    let retried = asking(failed.clone(), "rollbacking");
    allowed(&retried, Some(&failed));
}

/// Three masters and two workers, created and running, with default settings.
fn of_defaults() -> Value {
    let mut object = running(&["10.0.0.2", "10.0.0.4"]);
    object["spec"]["cluster"].as_object_mut().unwrap().remove("kubeVersion");
    object["spec"]["cluster"]["masterList"] = list(&["10.0.0.1", "10.0.0.3", "10.0.0.5"]);
    object["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(object["spec"].to_string());
    object
}

#[test]
fn allows_what_only_says_the_same_in_other_words() {
    let old = of_defaults();
    for (field, value) in [
        ("kubeVersion", json!("v1.36.1")),
        ("network", json!({"cni": "flannel", "proxyMode": "nftables"})),
        ("apiServer", json!({"port": 6443})),
        ("masterList", list(&["10.0.0.5", "10.0.0.1", "10.0.0.3"])),
        ("etcdList", list(&["10.0.0.3", "10.0.0.1", "10.0.0.5"])),
    ] {
        let new = with(old.clone(), &format!("/spec/cluster/{field}"), value);
        allowed(&new, Some(&old));
        allowed(&old, Some(&new));
    }
    let old = with(old, "/status/version", json!("v1.34.9"));
    allowed(&with(old.clone(), "/spec/cluster/kubeVersion", json!("v1.34.9")), Some(&old));
}

#[test]
fn allows_another_way_to_log_in_and_no_other_name_of_a_master() {
    let old = of_defaults();
    let new = with(old.clone(), "/spec/cluster/masterList/0/port", json!(2222));
    let new = with(new, "/spec/cluster/nodeList/1/user", json!("ops"));
    allowed(&with(new, "/spec/cluster/authConfig", json!({"credentialsRef": {"name": "key"}})), Some(&old));
    let message = refused(&with(old.clone(), "/spec/cluster/masterList/0/name", json!("m1")), Some(&old));
    assert_eq!(message, "spec.cluster.masterList[0].name: cannot be changed in a cluster that is built");
}

#[test]
fn allows_etcd_on_hosts_of_its_own() {
    let etcd = list(&["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
    allowed(&with(cluster(&["10.0.0.2"]), "/spec/cluster/etcdList", etcd), None);
}

#[test]
fn allows_a_cluster_whose_owner_installs_the_network() {
    for network in [json!({"cni": "none"}), json!({"cni": "none", "proxyMode": "bpf"})] {
        allowed(&with(cluster(&["10.0.0.2"]), "/spec/cluster/network", network), None);
    }
}

#[test]
fn refuses_parts_that_no_bundle_carries() {
    for (field, value, message) in [
        ("clusterType", json!("k3s"), "spec.cluster.clusterType: k3s is not supported yet; use kubernetes"),
        (
            "network",
            json!({"cni": "calico"}),
            "spec.cluster.network.cni: no bundle carries calico; use flannel, or none and apply it yourself",
        ),
        (
            "network",
            json!({"proxyMode": "bpf"}),
            "spec.cluster.network.proxyMode: a cluster without kube-proxy needs a network plugin that replaces it; use bpf with \
             network.cni none",
        ),
        ("apiServer", json!({"port": 8443}), "spec.cluster.apiServer.port: only port 6443 is supported"),
        (
            "etcdList",
            list(&["10.0.0.1", "10.0.0.8", "10.0.0.9"]),
            "spec.cluster.etcdList: etcd runs on all masters (leave it out), or on hosts that run nothing else",
        ),
        (
            "imagesRegistry",
            json!("r.example.com"),
            "spec.cluster.imagesRegistry: every image comes from the bundle, no registry is used; leave it out",
        ),
        (
            "loadBalancer",
            json!({"mode": "external", "address": "lb.example.com", "port": 6443}),
            "spec.cluster.loadBalancer.address: a name is not supported yet; give the load balancer's IPv4 address",
        ),
        (
            "network",
            json!({"proxyMode": "ipvs"}),
            "spec.cluster.network.proxyMode: no bundle carries ipvs; use nftables or iptables",
        ),
    ] {
        assert_eq!(refused(&with(cluster(&[]), &format!("/spec/cluster/{field}"), value), None), message);
    }
}

/// A cluster that was never created may change completely.
#[test]
fn accepts_changes_of_a_cluster_that_was_never_created() {
    let mut old = asking(cluster(&["10.0.0.2"]), "creating");
    old["status"] = json!({"phase": "Failed"});
    let new = with(old.clone(), "/spec/cluster/masterList", list(&["10.0.0.7"]));
    allowed(&with(new, "/spec/cluster/kubeVersion", json!("v1.36.3")), Some(&old));
    let message = refused(&with(old.clone(), "/spec/cluster/apiServer", json!({"port": 8443})), Some(&old));
    assert_eq!(message, "spec.cluster.apiServer.port: only port 6443 is supported");
    let message = refused(&asking(old.clone(), "scaling-up"), Some(&old));
    assert!(message.contains("this one was never made; use creating"), "{message}");
    old["status"] = json!({"phase": "Creating"});
    assert!(
        refused(&with(old.clone(), "/spec/cluster/masterList", list(&["10.0.0.7"])), Some(&old))
            .starts_with("spec.cluster.masterList")
    );
}

/// Scaling is compared with the applied spec, not with a spec that was declared in between.
#[test]
fn compares_with_what_was_applied() {
    let built = running(&["10.0.0.2", "10.0.0.4"]);
    let declared = with(built.clone(), "/spec/cluster/nodeList", list(&["10.0.0.4"]));
    assert!(
        refused(&asking(declared.clone(), "scaling-up"), Some(&declared))
            .contains("10.0.0.2 would be removed")
    );
}

#[test]
fn refuses_networks_that_hold_a_host_and_names_given_twice() {
    let new = with(cluster(&["10.96.0.9"]), "/spec/cluster/nodeList/0/name", json!("w1"));
    assert_eq!(refused(&new, None), "spec.cluster.podCIDR: 10.96.0.0/12 contains the host 10.96.0.9");
    let mut new = cluster(&["10.0.0.2", "10.0.0.3"]);
    for index in 0..2 {
        new["spec"]["cluster"]["nodeList"][index]["name"] = json!("w1");
    }
    assert_eq!(refused(&new, None), "spec.cluster.nodeList[1].name: w1 is the name of 10.0.0.2 already");
}

/// B 14: an invalid SSH key is denied before an operation begins.
#[test]
fn refuses_a_key_that_is_no_key() {
    let new = with(cluster(&[]), "/spec/cluster/authConfig", json!({"privateSSHKey": "-----BEGIN RUBBISH"}));
    let message = refused(&new, None);
    assert!(message.starts_with("spec.cluster.authConfig.privateSSHKey: "), "{message}");
    assert!(!message.contains("RUBBISH"), "{message}");
}

#[test]
fn refuses_credentials_of_another_namespace() {
    let reference = |namespace: &str| {
        let logging_in = json!({"credentialsRef": {"name": "key", "namespace": namespace}});
        with(cluster(&[]), "/spec/cluster/authConfig", logging_in)
    };
    allowed(&reference("default"), None);
    assert_eq!(
        refused(&reference("kube-system"), None),
        "spec.cluster.authConfig.credentialsRef.namespace: must be default, the cluster's own; leave it out"
    );
}

#[test]
fn tells_every_reason_at_once_and_knows_the_older_form() {
    let new = json!({
        "metadata": {"name": "old-form", "namespace": "default"},
        "spec": {"kubeVersion": "v1.99.0", "masterList": list(&["10.9.9.9"])},
    });
    let message = refused(&new, None);
    assert!(
        message.contains("spec.kubeVersion: ") && message.contains("; spec.masterList[0].ip: "),
        "{message}"
    );
}

/// A 43. The API server sets the code of the refusal in its own answer.
#[test]
fn refuses_an_operation_without_a_cluster() {
    let judged = |cluster: &str| {
        let object = json!({"metadata": {"name": "op"}, "spec": {"cluster": cluster}});
        decide(&request(("kubeonkube.clay.io", "clusteroperations"), &object, None), &book())
    };
    let verdict = judged("  ");
    assert_eq!(
        (verdict.code(), verdict.message().as_str()),
        (400, "spec.cluster: is empty; name the Cluster that the operation changes")
    );
    assert!(judged("sample").allowed());
}

#[test]
fn judges_the_largest_cluster() {
    let ips: Vec<String> = (0..5000).map(|i| format!("10.1.{}.{}", i / 250, i % 250 + 1)).collect();
    let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
    let old = running(&ips[..4999]);
    let new = with(old.clone(), "/spec/cluster/nodeList", list(&ips));
    allowed(&new, Some(&old));
}

/// A cluster of this many workers, each with a name.
fn of_named(workers: usize) -> Value {
    let node = |i: usize| json!({"ip": format!("10.20.{}.{}", 100 + i / 250, 1 + i % 250), "name": format!("shop-w{i}")});
    with(cluster(&[]), "/spec/cluster/nodeList", (0..workers).map(node).collect())
}

/// The same cluster with the annotation that `kubectl apply` writes.
fn applied_by_kubectl(workers: usize) -> Value {
    let mut object = of_named(workers);
    let copy = json!(object["spec"].to_string());
    object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = copy;
    object
}

#[test]
fn refuses_a_declaration_that_is_too_large_for_annotations() {
    allowed(&of_named(4000), None);
    allowed(&applied_by_kubectl(2500), None);
    let text = refused(&applied_by_kubectl(4000), None);
    assert!(text.starts_with("spec.cluster.nodeList: the declaration has "), "{text}");
    assert!(text.contains("262144") && text.contains("kubectl apply --server-side"), "{text}");
    let text = refused(&of_named(5000), None);
    assert!(text.contains("add or remove the workers in several steps"), "{text}");
}

/// The same for a cluster that was never created, and for one that runs with some of the workers.
#[test]
fn counts_the_annotations_of_the_next_operation() {
    refused(&of_named(5000), Some(&of_named(4900)));
    let nodes = |first: usize, count: usize| {
        let all = of_named(first + count)["spec"]["cluster"]["nodeList"].as_array().unwrap().clone();
        Value::from(all[first..].to_vec())
    };
    let running_with = |workers: usize| {
        let mut object = with(running(&[]), "/spec/cluster/nodeList", nodes(0, workers));
        object["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(object["spec"].to_string());
        object
    };
    let to = |old: &Value, list: Value| with(old.clone(), "/spec/cluster/nodeList", list);
    let most = running_with(4000);
    allowed(&to(&most, nodes(0, 4100)), Some(&most));
    allowed(&to(&most, nodes(500, 4000)), Some(&most));
    let text = refused(&to(&most, nodes(1500, 4000)), Some(&most));
    assert!(text.contains("add or remove the workers in several steps"), "{text}");
    // An existing object may be annotated and become smaller.
    let old = of_named(4900);
    allowed(&asking(old.clone(), "creating"), Some(&old));
    allowed(&of_named(4899), Some(&old));
}

#[test]
fn what_is_too_large_already_may_become_smaller() {
    let old = applied_by_kubectl(4000);
    allowed(&applied_by_kubectl(3999), Some(&old));
    refused(&applied_by_kubectl(4001), Some(&old));
}
