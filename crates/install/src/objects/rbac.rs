//! Rights of the operator, the runner and people: each has only the rights that it uses.
//!
//! ```text
//!   operator   its three kinds everywhere · Jobs, Pods, ConfigMaps, Secrets in its namespaces · its Lease, its webhook
//!   runner     the status of operations · Secrets, ConfigMaps, without reading any   (which ones: see the policies)
//!   people     kubeon-viewer, kubeon-editor: bound by the owner of the meta cluster
//! ```
//!
//! Neither role for people is added to `view` or `edit`: an object may hold a password, and one that names a Secret
//! lets its hosts read it.

use serde_json::{Value, json};

use super::metadata::metadata;
use crate::{InstallOptions, names};

const READ: &[&str] = &["get", "list", "watch"];
/// Without `update`: the operator patches objects and never replaces them.
const MANAGE: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];
const WRITE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// Service accounts, roles and their bindings.
#[must_use]
pub fn objects(options: &InstallOptions) -> Vec<Value> {
    let own = options.namespace.as_str();
    let mut all = vec![service_account(own, names::OPERATOR), operator_role()];
    all.push(binding("", names::OPERATOR, "ClusterRole", names::OPERATOR, &[(own, names::OPERATOR)]));
    all.extend(own_namespace(options));
    all.push(runner_role());
    for namespace in options.namespaces() {
        all.extend(watched_namespace(options, namespace));
    }
    all.extend(people());
    all
}

/// The rights of the operator and its runners in one watched namespace.
#[must_use]
pub fn watched_namespace(options: &InstallOptions, namespace: &str) -> Vec<Value> {
    let operator = (options.namespace.as_str(), names::OPERATOR);
    let runner = (namespace, names::RUNNER);
    vec![
        service_account(namespace, names::RUNNER),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": metadata(namespace, names::OPERATOR),
            "rules": [
                rule(&[""], &["configmaps", "secrets"], MANAGE),
                // No Job is ever deleted.
                rule(&["batch"], &["jobs"], &["create", "get", "list", "patch", "watch"]),
                rule(&[""], &["pods"], &["list", "watch"]),
                rule(&[""], &["pods/log"], &["get"]),
            ],
        }),
        binding(namespace, names::OPERATOR, "Role", names::OPERATOR, &[operator]),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": metadata(namespace, names::RUNNER),
            "rules": [rule(&[""], &["configmaps", "secrets"], &["patch"])],
        }),
        binding(namespace, names::RUNNER, "Role", names::RUNNER, &[runner]),
        binding("", &format!("{}-{namespace}", names::RUNNER), "ClusterRole", names::RUNNER, &[runner]),
    ]
}

fn operator_role() -> Value {
    let own_kinds = |group: &str, kinds: &[&str], verbs: &[&str]| rule(&[group], kinds, verbs);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": metadata("", names::OPERATOR),
        "rules": [
            own_kinds("ecs.yun.com", &["kubernetesclusters"], &["get", "list", "patch", "watch"]),
            own_kinds("ecs.yun.com", &["kubernetesclusters/status"], &["patch"]),
            // In no request of its own. Its Jobs hold up a deletion of the object, and an API server that guards owner
            // references (OwnerReferencesPermissionEnforcement) asks for this right when they are made.
            own_kinds("ecs.yun.com", &["kubernetesclusters/finalizers"], &["update"]),
            own_kinds("kubeonkube.clay.io", &["clusters"], READ),
            own_kinds("kubeonkube.clay.io", &["clusteroperations"], MANAGE),
            own_kinds("kubeonkube.clay.io", &["clusters/status", "clusteroperations/status"], &["patch"]),
            rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
            json!({
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["validatingwebhookconfigurations"],
                "resourceNames": [names::WEBHOOK_CONFIGURATION],
                "verbs": ["list", "watch", "patch"],
            }),
        ],
    })
}

/// What it has in its own namespace alone: the Lease, of which only the creation cannot be limited to a name, and the
/// webhook's certificate, which one of several replicas replaces.
fn own_namespace(options: &InstallOptions) -> [Value; 2] {
    let name = format!("{}-leader", names::OPERATOR);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": metadata(&options.namespace, &name),
        "rules": [
            rule(&["coordination.k8s.io"], &["leases"], &["create"]),
            json!({
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [names::LEASE],
                "verbs": ["get", "update"],
            }),
            json!({
                "apiGroups": [""], "resources": ["secrets"], "resourceNames": [names::WEBHOOK_SECRET],
                "verbs": ["update"],
            }),
        ],
    });
    let operator = (options.namespace.as_str(), names::OPERATOR);
    [role, binding(&options.namespace, &name, "Role", &name, &[operator])]
}

fn runner_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": metadata("", names::RUNNER),
        "rules": [rule(&["kubeonkube.clay.io"], &["clusteroperations/status"], &["patch"])],
    })
}

fn people() -> [Value; 2] {
    let groups = ["ecs.yun.com", "kubeonkube.clay.io"];
    let kinds = ["kubernetesclusters", "clusters", "clusteroperations"];
    let role = |name: &str, verbs: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": metadata("", name),
            "rules": [rule(&groups, &kinds, verbs)],
        })
    };
    [role("kubeon-viewer", READ), role("kubeon-editor", WRITE)]
}

fn service_account(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": metadata(namespace, name),
        // A pod that talks to the API server says so.
        "automountServiceAccountToken": false,
    })
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn binding(namespace: &str, name: &str, role_kind: &str, role: &str, accounts: &[(&str, &str)]) -> Value {
    let subjects: Vec<Value> = accounts
        .iter()
        .map(|(namespace, name)| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}))
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" },
        "metadata": metadata(namespace, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects,
    })
}
