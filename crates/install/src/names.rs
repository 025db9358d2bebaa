//! The names that installed objects and processes know each other by.

/// Namespace of the operator where nothing else is said.
pub const NAMESPACE: &str = "kubeon-system";
/// The operator: Deployment, service account, role.
pub const OPERATOR: &str = "kubeon-operator";
/// The runner: the service account of Jobs, its role.
pub const RUNNER: &str = "kubeon-runner";
/// The Service before the admission webhook.
pub const WEBHOOK_SERVICE: &str = "kubeon-webhook";
/// The Secret that holds the webhook's authority, certificate and keys.
pub const WEBHOOK_SECRET: &str = "kubeon-webhook-cert";
/// The `ValidatingWebhookConfiguration`.
pub const WEBHOOK_CONFIGURATION: &str = "kubeon";
/// The webhook's path.
pub const WEBHOOK_PATH: &str = "/validate";
/// The port that the webhook listens on.
pub const WEBHOOK_PORT: u16 = 9443;
/// The port of `/metrics`.
pub const METRICS_PORT: u16 = 8080;
/// The port of `/healthz` and `/readyz`.
pub const HEALTH_PORT: u16 = 8081;
/// The Lease that decides which replica works.
pub const LEASE: &str = "kubeon-operator";
/// The ConfigMap with the limits that older clients know.
pub const CONFIG: &str = "kubeonkube-config";
/// Its key: how many operations of a cluster are kept.
pub const HISTORY_LIMIT: &str = "CLUSTER_OPERATIONS_BACKEND_LIMIT";

/// Annotations that refuse a deletion while their value is `true`; the first is the one that examples show.
pub const DELETION_PROTECTION: [&str; 2] = kubeon_api::labels::DELETION_PROTECTIONS;

/// How an API server names a service account.
#[must_use]
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
