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
fn hosts_of_etcd_may_change_while_most_of_them_stay() {
    let mut old = highly_available();
    old["spec"]["cluster"]["etcdList"] = list(&["10.0.0.20", "10.0.0.21", "10.0.0.22"]);
    old["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(old["spec"].to_string());
    let etcd = |hosts: &[&str]| with(old.clone(), "/spec/cluster/etcdList", list(hosts));
    for hosts in [
        &["10.0.0.20", "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24"][..],
        &["10.0.0.20", "10.0.0.21", "10.0.0.23"],
    ] {
        allowed(&etcd(hosts), Some(&old));
    }
    let failed = etcd(&["10.0.0.20", "10.0.0.21", "10.0.0.23"]);
    allowed(&asking(failed.clone(), "scaling-up"), Some(&failed));
    let field = "spec.cluster.etcdList: ";
    for (hosts, message) in [
        (&["10.0.0.23"][..], "would keep no host of etcd; one host of etcd of the cluster must stay"),
        (&["10.0.0.20"], "2 of 3 hosts of etcd would leave at once, a majority; remove fewer"),
        (&[], "etcd cannot move between the masters and hosts of its own"),
    ] {
        let said = refused(&etcd(hosts), Some(&old));
        assert!(said.starts_with(&format!("{field}{message}")), "{said}");
    }
    let said = refused(&asking(failed, "scaling-up"), Some(&old));
    assert!(said.starts_with("spec.cluster.etcdList: scaling-up changes nodeList only"), "{said}");
}

/// Three become one by two changes; in each most of the members stay. A new cluster has an odd number.
#[test]
fn a_list_of_three_shrinks_to_one() {
    let set = |mut object: Value, field: &str, hosts: &[&str]| {
        object["spec"]["cluster"]["etcdList"] = list(hosts);
        object["spec"]["cluster"][field] = list(hosts);
        object
    };
    for (field, hosts) in [
        ("masterList", ["10.0.0.1", "10.0.0.3", "10.0.0.5"]),
        ("etcdList", ["10.0.0.20", "10.0.0.21", "10.0.0.22"]),
    ] {
        for size in [2, 1] {
            let mut old = set(highly_available(), field, &hosts[..=size]);
            old["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(old["spec"].to_string());
            allowed(&set(old.clone(), field, &hosts[..size]), Some(&old));
        }
    }
    let new = with(cluster(&[]), "/spec/cluster/etcdList", list(&["10.0.0.20", "10.0.0.21"]));
    let message = "spec.cluster.etcdList: etcd needs an odd number of hosts: 1, 3, 5, 7 or 9";
    assert_eq!(refused(&new, None), message);
}

#[test]
fn a_host_of_etcd_changes_its_role_in_two_changes() {
    let mut old = highly_available();
    old["spec"]["cluster"]["etcdList"] = list(&["10.0.0.20", "10.0.0.21", "10.0.0.22"]);
    old["metadata"]["annotations"]["app.kubernetes.io/spec"] = json!(old["spec"].to_string());
    let etcd = |hosts: &[&str]| with(old.clone(), "/spec/cluster/etcdList", list(hosts));
    let moved =
        with(etcd(&["10.0.0.20", "10.0.0.21", "10.0.0.4"]), "/spec/cluster/nodeList", list(&["10.0.0.2"]));
    let said = refused(&moved, Some(&old));
    assert!(said.contains("10.0.0.4 is a node of the cluster; remove it first"), "{said}");
    let workers = list(&["10.0.0.2", "10.0.0.4", "10.0.0.22"]);
    let moved = with(etcd(&["10.0.0.20", "10.0.0.21", "10.0.0.23"]), "/spec/cluster/nodeList", workers);
    let said = refused(&moved, Some(&old));
    assert!(said.contains("10.0.0.22 is a host of etcd of the cluster; remove it first"), "{said}");
    let both = with(old.clone(), "/spec/cluster/nodeList", list(&["10.0.0.2", "10.0.0.4", "10.0.0.22"]));
    let said = refused(&both, Some(&old));
    assert!(said.contains("or on hosts that run nothing else"), "{said}");
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

/// The declaration of an upgrade that failed, such as one that waits for a lost master.
#[test]
fn hosts_change_before_an_upgrade_only_with_the_old_version() {
    let old = highly_available();
    let set = |object: Value, version: &str| with(object, "/spec/cluster/kubeVersion", json!(version));
    let failed = asking(set(old.clone(), "v1.36.3"), "update-failed");
    let masters = list(&["10.0.0.1", "10.0.0.3", "10.0.0.7"]);
    let replaced = with(failed.clone(), "/spec/cluster/masterList", masters);
    let warned = allowed(&replaced, Some(&failed));
    let text = "spec.cluster.masterList: hosts change after the upgrade to v1.36.3; if it waits for one that is lost, declare \
                kubeVersion v1.36.1 again with the other hosts";
    assert_eq!(warned, [text]);
    assert_eq!(allowed(&set(replaced, "v1.36.1"), Some(&failed)), Vec::<String>::new());
    assert_eq!(allowed(&set(failed.clone(), "v1.36.1"), Some(&failed)), Vec::<String>::new());
    let first = asking(with(old.clone(), "/spec/cluster/kubeVersion", json!("v1.36.3")), "create-finished");
    let both = with(first, "/spec/cluster/nodeList", list(&["10.0.0.2"]));
    assert_eq!(allowed(&both, Some(&old)), Vec::<String>::new(), "no upgrade has begun: hosts change first");
}
