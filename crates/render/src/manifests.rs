//! Objects of every cluster: the RBAC rules of its agents, and DNS.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_wire::{ApiObject, HOST_GROUP, MASTER_REPORTS, OBSERVER_GROUP};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn object(path: String, body: Value) -> ApiObject {
    ApiObject { path, body }
}

fn cluster_role(name: &str, rules: Value) -> ApiObject {
    object(
        format!("{RBAC}/clusterroles/{name}"),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
    )
}

fn cluster_role_binding(name: &str, role: &str, subject: &Value) -> ApiObject {
    object(
        format!("{RBAC}/clusterrolebindings/{name}"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [subject],
        }),
    )
}

fn group(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name })
}

fn user(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name })
}

/// A ConfigMap of the namespace `kube-system` with one text. Administrators may read it.
#[must_use]
pub fn system_config_map(name: &str, key: &str, text: &str) -> ApiObject {
    object(
        format!("/api/v1/namespaces/kube-system/configmaps/{name}"),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "kube-system" },
            "data": { key: text },
        }),
    )
}

/// The group of every node. Its members may request a certificate for their own node, and no other.
pub const NODES: &str = "system:nodes";

/// RBAC rules for nodes (their requests for a certificate are approved, the first one too), for requests of the API server to
/// kubelets, and for kube-proxy and flannel, which use the identity of their node. The admission plugin `NodeRestriction`
/// lets a node change only its own object. A host may request certificates; a master signs those for its own node. An observer
/// may read nodes and the reports of the masters.
#[must_use]
pub fn rights() -> Vec<ApiObject> {
    let approver = "system:certificates.k8s.io:certificatesigningrequests";
    vec![
        cluster_role_binding("kubeon:approve-renewal", &format!("{approver}:selfnodeclient"), &group(NODES)),
        cluster_role_binding(
            "kubeon:kubelet-api",
            "system:kubelet-api-admin",
            &user("kube-apiserver-kubelet-client"),
        ),
        cluster_role(
            "kubeon:flannel",
            json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] }]),
        ),
        cluster_role_binding("kubeon:flannel", "kubeon:flannel", &group(NODES)),
        cluster_role(
            "kubeon:host",
            json!([{
                "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"],
            }]),
        ),
        cluster_role_binding("kubeon:host", "kubeon:host", &group(HOST_GROUP)),
        cluster_role_binding("kubeon:kube-proxy", "system:node-proxier", &group(NODES)),
        cluster_role(
            "kubeon:observer",
            json!([
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [MASTER_REPORTS], "verbs": ["get"] },
            ]),
        ),
        cluster_role_binding("kubeon:observer", "kubeon:observer", &group(OBSERVER_GROUP)),
    ]
}

/// Labels of a node, as an object for server-side apply: kubeon owns exactly these labels.
#[must_use]
pub fn node_labels(node: &str, labels: &BTreeMap<String, String>) -> ApiObject {
    object(
        format!("/api/v1/nodes/{node}"),
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node, "labels": labels } }),
    )
}

/// The settings of CoreDNS.
#[derive(Debug, Clone, Copy)]
pub struct CoreDns<'a> {
    /// The name of its image.
    pub image: &'a str,
    /// Its service address.
    pub address: Ipv4Addr,
    /// DNS domain of the cluster.
    pub domain: &'a str,
    /// Whether the kubelet of some host does not use `/etc/resolv.conf`. A change replaces the pods, which keep
    /// the name servers with which they were created.
    pub other_resolver: bool,
    /// Whether the cluster has several hosts. Its two pods then run on different hosts, also while the first host is the
    /// only node: names are resolved after the loss of any host.
    pub several_hosts: bool,
}

/// CoreDNS and its dependent objects.
#[must_use]
pub fn coredns(dns: &CoreDns<'_>) -> Vec<ApiObject> {
    let CoreDns { image, address, domain, other_resolver, several_hosts } = *dns;
    let system = "/api/v1/namespaces/kube-system";
    let labels = json!({ "k8s-app": "kube-dns" });
    vec![
        object(
            format!("{system}/serviceaccounts/coredns"),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "coredns", "namespace": "kube-system" } }),
        ),
        cluster_role(
            "system:coredns",
            json!([
                { "apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"] },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
            ]),
        ),
        cluster_role_binding(
            "system:coredns",
            "system:coredns",
            &json!({ "kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system" }),
        ),
        object(
            format!("{system}/configmaps/coredns"),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "coredns", "namespace": "kube-system" }, "data": { "Corefile": corefile(domain) } }),
        ),
        object(
            "/apis/apps/v1/namespaces/kube-system/deployments/coredns".to_owned(),
            coredns_deployment(image, &labels, other_resolver, several_hosts),
        ),
        object(
            format!("{system}/services/kube-dns"),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": "kube-dns", "namespace": "kube-system", "labels": { "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS" } },
                "spec": {
                    "clusterIP": address, "selector": labels,
                    "ports": [
                        { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
                        { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
                        { "name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153 },
                    ],
                },
            }),
        ),
    ]
}

fn corefile(domain: &str) -> String {
    format!(
        ".:53 {{\n    errors\n    health {{\n       lameduck 5s\n    }}\n    ready\n    kubernetes {domain} in-addr.arpa ip6.arpa {{\n\
         \x20      pods insecure\n       fallthrough in-addr.arpa ip6.arpa\n       ttl 30\n    }}\n    prometheus :9153\n\
         \x20   forward . /etc/resolv.conf {{\n       max_concurrent 1000\n    }}\n    cache 30\n    loop\n    reload\n    loadbalance\n}}\n"
    )
}

fn coredns_deployment(image: &str, labels: &Value, other_resolver: bool, several_hosts: bool) -> Value {
    let mut metadata = json!({ "labels": labels });
    if other_resolver {
        metadata["annotations"] = json!({ "kubeon.io/resolv-conf": "of-the-kubelet" });
    }
    let spread = json!([{
        "maxSkew": 1, "minDomains": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": labels }, "matchLabelKeys": ["pod-template-hash"],
    }]);
    let probe = |path: &str, port: u16| json!({ "httpGet": { "path": path, "port": port, "scheme": "HTTP" }, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 5 });
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "coredns", "namespace": "kube-system", "labels": labels },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
            "template": {
                "metadata": metadata,
                "spec": {
                    "priorityClassName": "system-cluster-critical",
                    "serviceAccountName": "coredns",
                    "dnsPolicy": "Default",
                    "tolerations": [
                        { "key": "CriticalAddonsOnly", "operator": "Exists" },
                        { "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" },
                    ],
                    "nodeSelector": { "kubernetes.io/os": "linux" },
                    "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "podAffinityTerm": { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
                    }] } },
                    "containers": [{
                        "name": "coredns",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "args": ["-conf", "/etc/coredns/Corefile"],
                        "resources": { "limits": { "memory": "170Mi" }, "requests": { "cpu": "100m", "memory": "70Mi" } },
                        "ports": [
                            { "name": "dns", "containerPort": 53, "protocol": "UDP" },
                            { "name": "dns-tcp", "containerPort": 53, "protocol": "TCP" },
                            { "name": "metrics", "containerPort": 9153, "protocol": "TCP" },
                        ],
                        "livenessProbe": probe("/health", 8080),
                        "readinessProbe": probe("/ready", 8181),
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": { "add": ["NET_BIND_SERVICE"], "drop": ["ALL"] },
                            "readOnlyRootFilesystem": true,
                        },
                        "volumeMounts": [{ "name": "config", "mountPath": "/etc/coredns", "readOnly": true }],
                    }],
                    "volumes": [{ "name": "config", "configMap": { "name": "coredns", "items": [{ "key": "Corefile", "path": "Corefile" }] } }],
                },
            },
        },
    });
    if several_hosts {
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = spread;
    }
    deployment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns() -> CoreDns<'static> {
        CoreDns {
            image: "registry.k8s.io/coredns/coredns:v1",
            address: Ipv4Addr::new(10, 64, 0, 10),
            domain: "cluster.local",
            other_resolver: false,
            several_hosts: true,
        }
    }

    #[test]
    fn pods_are_replaced_when_a_kubelet_uses_another_resolver() {
        let template = |other_resolver| {
            let objects = coredns(&CoreDns { other_resolver, ..dns() });
            let deployment = objects.into_iter().find(|o| o.path.ends_with("/deployments/coredns")).unwrap();
            deployment.body["spec"]["template"].clone()
        };
        assert_ne!(template(true), template(false));
    }

    #[test]
    fn two_hosts_or_more_run_one_pod_each() {
        let spec = |several_hosts| {
            let objects = coredns(&CoreDns { several_hosts, ..dns() });
            let deployment = objects.into_iter().find(|o| o.path.ends_with("/deployments/coredns")).unwrap();
            deployment.body["spec"]["template"]["spec"].clone()
        };
        assert_eq!(spec(true)["topologySpreadConstraints"][0]["minDomains"], 2);
        assert_eq!(spec(false).get("topologySpreadConstraints"), None, "both pods run on the only host");
    }

    #[test]
    fn the_dns_service_has_the_given_address() {
        let objects = coredns(&dns());
        let service = objects.iter().find(|o| o.path.ends_with("/services/kube-dns")).unwrap();
        assert_eq!(service.body["spec"]["clusterIP"], "10.64.0.10");
    }

    #[test]
    fn the_path_of_every_object_ends_with_its_name() {
        let one = system_config_map("kubeon-cluster", "cluster.json", "{}");
        let all = rights().into_iter().chain(coredns(&dns())).chain([one]);
        for object in all {
            let name = object.body["metadata"]["name"].as_str().unwrap().to_owned();
            assert!(object.path.ends_with(&format!("/{name}")), "{} is not {name}", object.path);
        }
    }
}
