//! The operator's Deployment and the objects for its pods.

use serde_json::{Value, json};

use super::metadata::metadata;
use crate::{InstallOptions, names};

/// The user and group of the process: `nonroot` of distroless images.
const USER: u32 = 65532;
/// The volume with the authorities of the callback listener.
const CALLBACK_CA: &str = "callback-ca";

/// Deployment, Services, `PodDisruptionBudget`, `NetworkPolicy`.
#[must_use]
pub fn objects(options: &InstallOptions) -> Vec<Value> {
    vec![
        workload(options),
        service(options, names::WEBHOOK_SERVICE, "webhook", 443),
        service(options, "kubeon-metrics", "metrics", names::METRICS_PORT),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": metadata(&options.namespace, names::OPERATOR),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector()}},
        }),
        network_policy(options),
    ]
}

fn selector() -> Value {
    json!({"app.kubernetes.io/component": "operator", "app.kubernetes.io/name": "kubeon"})
}

fn workload(options: &InstallOptions) -> Value {
    let mut pod = json!({
        "serviceAccountName": names::OPERATOR,
        "automountServiceAccountToken": true,
        "terminationGracePeriodSeconds": 20,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        }],
        "containers": [container(options)],
    });
    if !options.callback_ca.is_empty() {
        let map = json!({"name": options.callback_ca});
        pod["volumes"] = json!([{"name": CALLBACK_CA, "configMap": map}]);
        let path = callback_ca(options);
        pod["containers"][0]["volumeMounts"] =
            json!([{"name": CALLBACK_CA, "mountPath": path, "readOnly": true}]);
    }
    if !options.node_selector.is_empty() {
        pod["nodeSelector"] = json!(options.node_selector);
    }
    if !options.tolerations.is_empty() {
        pod["tolerations"] = json!(options.tolerations);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata(&options.namespace, names::OPERATOR),
        "spec": {
            "replicas": options.replicas,
            "revisionHistoryLimit": 3,
            // The webhook must answer while pods are replaced.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": selector()},
            "template": {"metadata": {"labels": selector()}, "spec": pod},
        },
    })
}

fn container(options: &InstallOptions) -> Value {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let port = |name: &str, port: u16| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let probe = |path: &str, period: u32| json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": period, "timeoutSeconds": 2});
    json!({
        "name": "operator",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(options),
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
        "ports": [
            port("webhook", names::WEBHOOK_PORT), port("metrics", names::METRICS_PORT),
            port("health", names::HEALTH_PORT),
        ],
        "livenessProbe": probe("/healthz", 15),
        "readinessProbe": probe("/readyz", 5),
        "resources": options.resources,
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    })
}

fn arguments(options: &InstallOptions) -> Vec<String> {
    let mut arguments = vec![
        format!("--admission-address=0.0.0.0:{}", names::WEBHOOK_PORT),
        format!("--metrics-address=0.0.0.0:{}", names::METRICS_PORT),
        format!("--health-address=0.0.0.0:{}", names::HEALTH_PORT),
        format!("--leader-elect={}", options.leader_election),
        format!("--bundle-image={}", options.bundle_image),
    ];
    if !options.callback_url.is_empty() {
        arguments.push(format!("--callback-url={}", options.callback_url));
    }
    if !options.callback_ca.is_empty() {
        arguments.push(format!("--callback-ca={}/ca.crt", callback_ca(options)));
    }
    if !options.otlp_endpoint.is_empty() {
        arguments.push(format!("--otlp-endpoint={}", options.otlp_endpoint));
    }
    arguments.extend(options.watch_namespaces.iter().map(|name| format!("--watch-namespace={name}")));
    arguments.extend(options.runner_images.iter().map(|name| format!("--runner-image={name}")));
    arguments.extend_from_slice(&options.extra_arguments);
    arguments
}

/// The folder of the callback listener's authorities.
fn callback_ca(options: &InstallOptions) -> String {
    format!("/etc/kubeon/{}", options.callback_ca)
}

fn service(options: &InstallOptions, name: &str, port_name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(&options.namespace, name),
        "spec": {
            "selector": selector(),
            "ports": [{"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}],
        },
    })
}

/// Allows ingress to the operator's ports. Egress is not limited: the API server's port differs between clusters.
fn network_policy(options: &InstallOptions) -> Value {
    let port = |name: &str| json!({"port": name, "protocol": "TCP"});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(&options.namespace, names::OPERATOR),
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [port("webhook"), port("metrics"), port("health")]}],
        },
    })
}
