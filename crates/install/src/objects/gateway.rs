//! The gateway: the REST server of a meta cluster. It is installed separately and reads no Secrets.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Service, ServicePort, ServiceSpec,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::deployment::{container_port, probe};
use super::metadata::{metadata, texts, texts_by_key, value};
use super::rbac::{READ, cluster_binding, cluster_role, named_all, rule, service_account};
use crate::options::{pin_image, quantities};
use crate::{InstallError, names};

/// The user and group of the process: `nonroot` of distroless images.
const USER: i64 = 65532;
/// The folder of the server's certificate, and of the authorities of clients.
const TLS: &str = "/etc/kubeon/tls";
const CLIENT_CA: &str = "/etc/kubeon/client-ca";
/// The image of the gateway.
pub const GATEWAY_IMAGE: &str = concat!("kubeon/kubeon-gateway:v", env!("CARGO_PKG_VERSION"));

/// The options of the gateway. `deploy/gateway.yaml` has the [`Default`] ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayInstallOptions {
    /// Its namespace.
    pub namespace: String,
    /// Its image.
    pub image: String,
    /// The number of replicas; all of them serve.
    pub replicas: i32,
    /// The Secret of the type `kubernetes.io/tls` with its certificate.
    pub tls_secret: String,
    /// The Secret with the authorities of client certificates in its key `ca.crt`; empty for none.
    pub client_ca_secret: String,
    /// Users with client certificates whom it may impersonate.
    pub impersonated_users: Vec<String>,
    /// Groups of client certificates that it may impersonate.
    pub impersonated_groups: Vec<String>,
    /// The namespace of callers of version 1: `user:NAME=NAMESPACE`, `group:NAME=NAMESPACE`.
    pub caller_namespaces: Vec<String>,
    /// More arguments.
    pub extra_arguments: Vec<String>,
}

impl Default for GatewayInstallOptions {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.to_owned(),
            image: GATEWAY_IMAGE.to_owned(),
            replicas: 2,
            tls_secret: names::GATEWAY_TLS_SECRET.to_owned(),
            client_ca_secret: String::new(),
            impersonated_users: Vec::new(),
            impersonated_groups: Vec::new(),
            caller_namespaces: Vec::new(),
            extra_arguments: Vec::new(),
        }
    }
}

impl GatewayInstallOptions {
    /// Adds the digest of its image, by the names of images.
    pub fn pin(&mut self, digests: &BTreeMap<String, String>) {
        pin_image(&mut self.image, digests);
    }
}

/// All objects of the gateway, in the order of applying. The namespace must exist.
///
/// # Errors
/// When an object cannot be written as JSON.
pub(crate) fn objects(options: &GatewayInstallOptions) -> Result<Vec<Value>, InstallError> {
    let account = (options.namespace.as_str(), names::GATEWAY);
    Ok(vec![
        value(service_account(account))?,
        value(cluster_role(names::GATEWAY, rules(options)))?,
        value(cluster_binding(names::GATEWAY, names::GATEWAY, account))?,
        value(workload(options))?,
        value(service(options))?,
        value(disruption_budget(options))?,
    ])
}

/// It may impersonate nobody until the installer names users and groups.
fn rules(options: &GatewayInstallOptions) -> Vec<PolicyRule> {
    let mut rules = vec![
        rule(&["ecs.yun.com"], &["kubernetesclusters"], READ),
        rule(&["kubeonkube.clay.io"], &["clusteroperations"], READ),
        rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
        rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
    ];
    for (resource, names) in
        [("users", &options.impersonated_users), ("groups", &options.impersonated_groups)]
    {
        if !names.is_empty() {
            rules.push(named_all(rule(&[""], &[resource], &["impersonate"]), names));
        }
    }
    rules
}

fn labels() -> BTreeMap<String, String> {
    texts_by_key(&[("app.kubernetes.io/component", "gateway"), ("app.kubernetes.io/name", "kubeon")])
}

fn pods() -> LabelSelector {
    LabelSelector { match_labels: Some(labels()), ..LabelSelector::default() }
}

fn workload(options: &GatewayInstallOptions) -> Deployment {
    Deployment {
        metadata: metadata(&options.namespace, names::GATEWAY),
        spec: Some(DeploymentSpec {
            replicas: Some(options.replicas),
            revision_history_limit: Some(3),
            selector: pods(),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels()), ..ObjectMeta::default() }),
                spec: Some(pod(options)),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// The Secrets that are mounted: the name of the volume, the Secret, the folder.
fn mounted(options: &GatewayInstallOptions) -> Vec<(&'static str, &str, &'static str)> {
    let mut all = vec![("tls", options.tls_secret.as_str(), TLS)];
    if !options.client_ca_secret.is_empty() {
        all.push(("client-ca", &options.client_ca_secret, CLIENT_CA));
    }
    all
}

fn pod(options: &GatewayInstallOptions) -> PodSpec {
    let volume = |(name, secret, _): (&str, &str, &str)| Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    PodSpec {
        service_account_name: Some(names::GATEWAY.to_owned()),
        automount_service_account_token: Some(true),
        termination_grace_period_seconds: Some(20),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(pods()),
            ..TopologySpreadConstraint::default()
        }]),
        containers: vec![container(options)],
        volumes: Some(mounted(options).into_iter().map(volume).collect()),
        ..PodSpec::default()
    }
}

fn container(options: &GatewayInstallOptions) -> Container {
    let mount = |(name, _, folder): (&str, &str, &str)| VolumeMount {
        name: name.to_owned(),
        mount_path: folder.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    Container {
        name: "gateway".to_owned(),
        image: Some(options.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(arguments(options)),
        ports: Some(vec![
            container_port("https", names::GATEWAY_PORT),
            container_port("health", names::HEALTH_PORT),
        ]),
        liveness_probe: Some(probe("/healthz", 15)),
        readiness_probe: Some(probe("/readyz", 5)),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", "50m"), ("memory", "64Mi")])),
            limits: Some(quantities(&[("memory", "512Mi")])),
            claims: None,
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(texts(&["ALL"])), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounted(options).into_iter().map(mount).collect()),
        ..Container::default()
    }
}

fn arguments(options: &GatewayInstallOptions) -> Vec<String> {
    let mut arguments = vec![
        format!("--address=0.0.0.0:{}", names::GATEWAY_PORT),
        format!("--health-address=0.0.0.0:{}", names::HEALTH_PORT),
        format!("--tls-cert={TLS}/tls.crt"),
        format!("--tls-key={TLS}/tls.key"),
    ];
    if !options.client_ca_secret.is_empty() {
        arguments.push(format!("--client-ca={CLIENT_CA}/ca.crt"));
    }
    arguments.extend(options.impersonated_users.iter().map(|name| format!("--impersonate-user={name}")));
    arguments.extend(options.impersonated_groups.iter().map(|name| format!("--impersonate-group={name}")));
    arguments.extend(options.caller_namespaces.iter().map(|rule| format!("--caller-namespace={rule}")));
    arguments.extend_from_slice(&options.extra_arguments);
    arguments
}

fn service(options: &GatewayInstallOptions) -> Service {
    Service {
        metadata: metadata(&options.namespace, names::GATEWAY),
        spec: Some(ServiceSpec {
            selector: Some(labels()),
            ports: Some(vec![ServicePort {
                name: Some("https".to_owned()),
                port: 443,
                target_port: Some(IntOrString::String("https".to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn disruption_budget(options: &GatewayInstallOptions) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(&options.namespace, names::GATEWAY),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(pods()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(options: &GatewayInstallOptions) -> String {
        serde_json::to_string(&rules(options)).unwrap()
    }

    #[test]
    fn it_reads_no_secret_and_impersonates_only_named_callers() {
        let nobody = role(&GatewayInstallOptions::default());
        assert!(!nobody.contains("secrets") && !nobody.contains("impersonate"), "{nobody}");
        let one = role(&GatewayInstallOptions {
            impersonated_users: vec!["alice".to_owned()],
            ..GatewayInstallOptions::default()
        });
        assert!(one.contains(r#""resourceNames":["alice"]"#) && !one.contains("groups"), "{one}");
    }
}
