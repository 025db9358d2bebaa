//! The load balancer `updater`: a Service of the cluster whose endpoints are the live API servers. The names of its unit, Service
//! and files are those of the seed.

use std::net::Ipv4Addr;

use kubeon_wire::{API_SERVICE, ApiObject, ApiWay};
use serde_json::{Value, json};

use crate::config::pretty;
use crate::sandbox::{AGENT, CONFINED};
use crate::systemd::ServiceUnit;

/// The unit of a master that keeps the endpoints of the Service.
pub const PUBLISHER: &str = "apiserver-updater.service";
/// The unit of a worker that keeps the API's name leading to an API server that answers.
pub const STARTUP: &str = "apiserver-startup.service";

/// The user of the program that keeps the endpoints.
pub const PUBLISHER_USER: &str = "kubeon:apiserver-updater";

const NODE_PROGRAM: &str = "/var/lib/kubeon/node/current";

/// The Service of the API servers. It has no selector: the masters write its endpoints.
#[must_use]
pub fn service(address: Ipv4Addr, port: u16) -> ApiObject {
    ApiObject {
        path: format!("/api/v1/namespaces/kube-system/services/{API_SERVICE}"),
        body: json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": API_SERVICE, "namespace": "kube-system" },
            "spec": {
                "clusterIP": address.to_string(),
                "ports": [{ "name": "https", "port": port, "protocol": "TCP", "targetPort": port }],
            },
        }),
    }
}

/// What the programs on masters may do that keep the endpoints: read those of the API servers, and write those of the Service. A
/// right to create cannot name an object.
#[must_use]
pub fn rights() -> Vec<ApiObject> {
    let slices = |verbs: Value| json!({ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs });
    let named = |name: &str, verbs: Value| {
        let mut rule = slices(verbs);
        rule["resourceNames"] = json!([name]);
        rule
    };
    let read = json!([named("kubernetes", json!(["get", "list", "watch"]))]);
    let write = json!([slices(json!(["create"])), named(API_SERVICE, json!(["get", "patch"]))]);
    [("default", read), ("kube-system", write)]
        .into_iter()
        .flat_map(|(namespace, rules)| [role(namespace, rules), role_binding(namespace)])
        .collect()
}

fn rbac_path(namespace: &str, kind: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{kind}/{PUBLISHER_USER}")
}

fn role(namespace: &str, rules: Value) -> ApiObject {
    ApiObject {
        path: rbac_path(namespace, "roles"),
        body: json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": { "name": PUBLISHER_USER, "namespace": namespace },
            "rules": rules,
        }),
    }
}

fn role_binding(namespace: &str) -> ApiObject {
    let group = "rbac.authorization.k8s.io";
    ApiObject {
        path: rbac_path(namespace, "rolebindings"),
        body: json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": { "name": PUBLISHER_USER, "namespace": namespace },
            "roleRef": { "apiGroup": group, "kind": "Role", "name": PUBLISHER_USER },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": PUBLISHER_USER }],
        }),
    }
}

/// The URL paths of the Service, of its endpoints and of the rights to write them.
#[must_use]
pub fn objects() -> Vec<String> {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    let service = format!("/api/v1/namespaces/kube-system/services/{API_SERVICE}");
    let rights = rights().into_iter().map(|object| object.path);
    [service, format!("{slices}/{API_SERVICE}")].into_iter().chain(rights).collect()
}

/// `apiserver-updater.service`.
#[must_use]
pub fn publisher() -> String {
    ServiceUnit {
        description: "Endpoints of the Service of the API servers",
        notify: false,
        after: "network-online.target kube-apiserver.service",
        environment: &[],
        service: &[],
        sandbox: CONFINED,
        command: NODE_PROGRAM.to_owned(),
        arguments: vec!["publish-api".into()],
    }
    .text()
}

/// `apiserver-startup.service`: it runs from before the start of the kubelet to the end of the host. What it wrote ends with
/// it, also if it is killed.
#[must_use]
pub fn startup() -> String {
    let end = format!("ExecStopPost={NODE_PROGRAM} reach-api --end");
    ServiceUnit {
        description: "Way of this worker to the API servers",
        notify: false,
        after: "network-online.target",
        environment: &[],
        service: &[&end],
        sandbox: AGENT,
        command: NODE_PROGRAM.to_owned(),
        arguments: vec!["reach-api".into()],
    }
    .text()
    .replacen("\nAfter=", "\nBefore=kubelet.service kube-proxy.service flanneld.service\nAfter=", 1)
}

/// The file that the unit of a worker reads.
#[must_use]
pub fn way(way: &ApiWay) -> String {
    pretty(&json!(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_worker_starts_before_the_kubelet_and_leaves_nothing() {
        let unit = startup();
        assert!(unit.contains("\nBefore=kubelet.service "), "{unit}");
        assert!(unit.contains("\nExecStopPost=/var/lib/kubeon/node/current reach-api --end\n"), "{unit}");
        assert!(unit.contains("Restart=always"), "{unit}");
    }

    #[test]
    fn the_service_has_a_fixed_address_and_no_selector() {
        let service = service(Ipv4Addr::new(10, 64, 0, 15), 6443);
        assert_eq!(service.body["spec"]["clusterIP"], "10.64.0.15");
        assert!(service.body["spec"].get("selector").is_none());
        assert_eq!(objects()[0], service.path);
    }

    #[test]
    fn the_updater_may_write_one_object() {
        let objects = rights();
        let rules = |object: &ApiObject| object.body["rules"].as_array().cloned().unwrap_or_default();
        let rules: Vec<Value> = objects.iter().flat_map(rules).collect();
        assert!(rules.iter().all(|rule| rule["resources"] == json!(["endpointslices"])), "{rules:?}");
        let without_name: Vec<_> = rules
            .iter()
            .filter(|rule| rule.get("resourceNames").is_none())
            .map(|rule| &rule["verbs"])
            .collect();
        assert_eq!(without_name, [&json!(["create"])]);
        assert_eq!(super::objects().len(), 2 + objects.len(), "the removal covers the rights");
    }
}
