//! RBAC rules of the operator, the runner and users: each has only the rights that it uses.
//!
//! ```text
//!   operator   its three kinds everywhere · Jobs, Pods, ConfigMaps, Secrets in its namespaces · its Lease, its webhook
//!   runner     the status of operations · patches Secrets and ConfigMaps, reads none   (the policies limit which)
//!   users      kubeon-viewer, kubeon-cluster-editor, kubeon-operation-editor, kubeon-cluster-user, kubeon-script-author:
//!              bound by the owner of the meta cluster
//! ```
//!
//! The roles for users are not aggregated into `view` and `edit`: an object may contain a password, and an object that refers
//! to a Secret gives its hosts access to that Secret.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use serde_json::Value;

use super::metadata::{metadata, texts, value};
use crate::{InstallError, InstallOptions, names};

pub(super) const READ: &[&str] = &["get", "list", "watch"];
/// There is no `update`: the operator patches objects and never replaces them.
const MANAGE: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];
const WRITE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// A service account: its namespace and its name.
type Account<'a> = (&'a str, &'a str);

/// Service accounts, roles and their bindings.
///
/// # Errors
/// When an object cannot be written as JSON.
pub fn objects(options: &InstallOptions) -> Result<Vec<Value>, InstallError> {
    let operator = (options.namespace.as_str(), names::OPERATOR);
    let mut all = vec![
        value(service_account(operator))?,
        value(cluster_role(names::OPERATOR, operator_rules(options)))?,
        value(cluster_binding(names::OPERATOR, names::OPERATOR, operator))?,
    ];
    let leader = format!("{}-leader", names::OPERATOR);
    all.push(value(role(&options.namespace, &leader, own_namespace_rules()))?);
    all.push(value(role_binding(&options.namespace, &leader, operator))?);
    all.push(value(cluster_role(names::RUNNER, runner_rules()))?);
    for namespace in options.namespaces() {
        all.extend(watched_namespace(options, namespace)?);
    }
    for (name, rules) in user_roles() {
        all.push(value(cluster_role(name, rules))?);
    }
    Ok(all)
}

/// The roles for users. Who declares clusters need not run operations, and the other way round. The policies of authors and of
/// changes of Clusters ask for the verb `use`; an owner who wants to give it for some clusters only makes a role with their names.
fn user_roles() -> [(&'static str, Vec<PolicyRule>); 5] {
    let clusters = |verbs| {
        vec![
            rule(&["ecs.yun.com"], &["kubernetesclusters"], verbs),
            rule(&["kubeonkube.clay.io"], &["clusters"], verbs),
        ]
    };
    let operations = |verbs| rule(&["kubeonkube.clay.io"], &["clusteroperations"], verbs);
    let may_use = |resources| vec![rule(&["kubeonkube.clay.io"], resources, &["use"])];
    [
        ("kubeon-viewer", [clusters(READ), vec![operations(READ)]].concat()),
        ("kubeon-cluster-editor", [clusters(WRITE), vec![operations(READ)]].concat()),
        ("kubeon-operation-editor", [clusters(READ), vec![operations(WRITE)]].concat()),
        ("kubeon-cluster-user", may_use(&["clusters"])),
        ("kubeon-script-author", may_use(&["clusters/hooks", "clusters/images"])),
    ]
}

/// The rights of the operator and its runners in one watched namespace.
///
/// # Errors
/// When an object cannot be written as JSON.
pub fn watched_namespace(options: &InstallOptions, namespace: &str) -> Result<Vec<Value>, InstallError> {
    let operator = (options.namespace.as_str(), names::OPERATOR);
    let runner = (namespace, names::RUNNER);
    let operator_rules = vec![
        rule(&[""], &["configmaps", "secrets"], MANAGE),
        // A suspended Job that is not resumed is deleted; the others have a time to live.
        rule(&["batch"], &["jobs"], MANAGE),
        rule(&[""], &["pods"], &["list", "watch"]),
        rule(&[""], &["pods/log"], &["get"]),
    ];
    let runner_rules = vec![
        rule(&[""], &["configmaps", "secrets"], &["patch"]),
        // The log of its Job, as its policy demands.
        rule(&[""], &["configmaps"], &["create"]),
    ];
    let of_runner = if options.is_movable && namespace == options.namespace {
        names::RUNNER.to_owned()
    } else {
        format!("{}-{namespace}", names::RUNNER)
    };
    Ok(vec![
        value(service_account(runner))?,
        value(role(namespace, names::OPERATOR, operator_rules))?,
        value(role_binding(namespace, names::OPERATOR, operator))?,
        value(role(namespace, names::RUNNER, runner_rules))?,
        value(role_binding(namespace, names::RUNNER, runner))?,
        value(cluster_binding(&of_runner, names::RUNNER, runner))?,
    ])
}

fn operator_rules(options: &InstallOptions) -> Vec<PolicyRule> {
    let webhook = rule(
        &["admissionregistration.k8s.io"],
        &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
        &["list", "watch", "patch"],
    );
    let mut rules = vec![
        rule(&["ecs.yun.com"], &["kubernetesclusters"], &["get", "list", "patch", "watch"]),
        rule(&["ecs.yun.com"], &["kubernetesclusters/status"], &["patch"]),
        // The operator sends no request of this kind. Its Jobs have owner references with blockOwnerDeletion, and an
        // API server with OwnerReferencesPermissionEnforcement requires this right to create them.
        rule(&["ecs.yun.com"], &["kubernetesclusters/finalizers"], &["update"]),
        rule(&["kubeonkube.clay.io"], &["clusters"], READ),
        rule(&["kubeonkube.clay.io"], &["clusteroperations"], MANAGE),
        rule(&["kubeonkube.clay.io"], &["clusters/status", "clusteroperations/status"], &["patch"]),
        rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
        named(webhook, names::WEBHOOK_CONFIGURATION),
        // Every API server publishes here which client certificates it has. The ConfigMap is in kube-system.
        named(rule(&[""], &["configmaps"], READ), names::API_SERVER_IDENTITY),
    ];
    // By this right, admission knows the operator.
    rules.extend(options.is_movable.then(|| rule(&["kubeonkube.clay.io"], &["clusters"], &[names::OPERATE])));
    rules
}

/// The rights of the operator in its own namespace only: the Lease, whose creation cannot be limited to a name, and the
/// certificate of the webhook, which one of the replicas renews.
fn own_namespace_rules() -> Vec<PolicyRule> {
    vec![
        rule(&["coordination.k8s.io"], &["leases"], &["create"]),
        named(rule(&["coordination.k8s.io"], &["leases"], &["get", "update"]), names::LEASE),
        named(rule(&[""], &["secrets"], &["update"]), names::WEBHOOK_SECRET),
    ]
}

/// A runner reads the status when a write of it is refused, to learn whether the operator has recorded its Job.
fn runner_rules() -> Vec<PolicyRule> {
    vec![rule(&["kubeonkube.clay.io"], &["clusteroperations/status"], &["get", "patch"])]
}

pub(super) fn service_account((namespace, name): Account<'_>) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(namespace, name),
        // Pods that need the API server set this to true.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

pub(super) fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(texts(groups)),
        resources: Some(texts(resources)),
        verbs: texts(verbs),
        ..PolicyRule::default()
    }
}

/// The rule for the objects of these names only.
pub(super) fn named_all(rule: PolicyRule, names: &[String]) -> PolicyRule {
    PolicyRule { resource_names: Some(names.to_vec()), ..rule }
}

/// The rule for the object of this name only.
fn named(rule: PolicyRule, name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(texts(&[name])), ..rule }
}

pub(super) fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole { metadata: metadata("", name), rules: Some(rules), aggregation_rule: None }
}

fn role(namespace: &str, name: &str, rules: Vec<PolicyRule>) -> Role {
    Role { metadata: metadata(namespace, name), rules: Some(rules) }
}

pub(super) fn cluster_binding(name: &str, role: &str, account: Account<'_>) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: metadata("", name),
        role_ref: role_ref("ClusterRole", role),
        subjects: Some(vec![subject(account)]),
    }
}

/// Binds a role to an account, under the name of the role.
fn role_binding(namespace: &str, name: &str, account: Account<'_>) -> RoleBinding {
    RoleBinding {
        metadata: metadata(namespace, name),
        role_ref: role_ref("Role", name),
        subjects: Some(vec![subject(account)]),
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn subject((namespace, name): Account<'_>) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }
}
