//! Names of installed objects, and ports.

/// The default namespace of the operator.
pub const NAMESPACE: &str = "kubeon-system";
/// The operator: Deployment, service account, role, priority class.
pub const OPERATOR: &str = "kubeon-operator";
/// The runner: the service account of Jobs, role.
pub const RUNNER: &str = "kubeon-runner";
/// The gateway: Deployment, service account, role, Service.
pub const GATEWAY: &str = "kubeon-gateway";
/// The Secret of the type `kubernetes.io/tls` with the certificate of the gateway.
pub const GATEWAY_TLS_SECRET: &str = "kubeon-gateway-tls";
/// The port that the gateway listens on.
pub const GATEWAY_PORT: u16 = 8443;
/// The Service of the admission webhook.
pub const WEBHOOK_SERVICE: &str = "kubeon-webhook";
/// The Secret with the authority, the certificate and the keys of the webhook.
pub const WEBHOOK_SECRET: &str = "kubeon-webhook-cert";
/// The `ValidatingWebhookConfiguration` and the `MutatingWebhookConfiguration`.
pub const WEBHOOK_CONFIGURATION: &str = "kubeon";
/// The webhook's path for the rules.
pub const WEBHOOK_PATH: &str = "/validate";
/// The webhook's path that records who asked for an operation.
pub const REQUESTER_PATH: &str = "/record-requester";
/// The ConfigMap in `kube-system` where API servers publish the authorities and names of their client certificates.
pub const API_SERVER_IDENTITY: &str = "extension-apiserver-authentication";
/// The port that the webhook listens on.
pub const WEBHOOK_PORT: u16 = 9443;
/// The port of `/metrics`.
pub const METRICS_PORT: u16 = 8080;
/// The port of `/healthz` and `/readyz`.
pub const HEALTH_PORT: u16 = 8081;
/// The verb on clusters that the role of a movable operator has, and no other role.
pub const OPERATE: &str = "operate";
/// The Lease of the leader election.
pub const LEASE: &str = "kubeon-operator";
/// The ConfigMap with limits, in the form of older clients.
pub const CONFIG: &str = "kubeonkube-config";
/// The key of [`CONFIG`] for the number of operations that are kept for each cluster.
pub const HISTORY_LIMIT: &str = "CLUSTER_OPERATIONS_BACKEND_LIMIT";

/// Annotations that prevent a deletion while their value is `true`; examples use the first one.
pub const DELETION_PROTECTION: [&str; 2] = kubeon_api::labels::DELETION_PROTECTIONS;

/// The user name of a service account.
#[must_use]
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
