//! The operator's Deployment and the objects for its pods.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, SeccompProfile,
    SecurityContext, Service, ServicePort, ServiceSpec, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::metadata::{metadata, operator_labels, operator_pods, texts, value};
use crate::{InstallError, InstallOptions, names};

/// The user and group of the process: `nonroot` of distroless images.
const USER: i64 = 65532;
/// Above the default of workloads, 0, and below the classes of Kubernetes itself, which begin at 2,000,000,000.
const PRIORITY: i32 = 1_000_000;
/// The volume with the authorities of the callback listener.
const CALLBACK_CA: &str = "callback-ca";

/// Deployment, Services, `PodDisruptionBudget`, `PriorityClass`, `NetworkPolicy`.
///
/// # Errors
/// When an object cannot be written as JSON.
pub fn objects(options: &InstallOptions) -> Result<Vec<Value>, InstallError> {
    Ok(vec![
        value(workload(options))?,
        value(service(options, names::WEBHOOK_SERVICE, "webhook", 443))?,
        value(service(options, "kubeon-metrics", "metrics", names::METRICS_PORT))?,
        value(disruption_budget(options))?,
        value(priority_class())?,
        value(network_policy(options))?,
    ])
}

fn workload(options: &InstallOptions) -> Deployment {
    // The webhook must answer while pods are replaced.
    let rolling_update = RollingUpdateDeployment {
        max_unavailable: Some(IntOrString::Int(0)),
        max_surge: Some(IntOrString::Int(1)),
    };
    Deployment {
        metadata: metadata(&options.namespace, names::OPERATOR),
        spec: Some(DeploymentSpec {
            replicas: Some(options.replicas),
            revision_history_limit: Some(3),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(rolling_update),
            }),
            selector: operator_pods(),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(operator_labels()), ..ObjectMeta::default() }),
                spec: Some(pod(options)),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn pod(options: &InstallOptions) -> PodSpec {
    let callback_ca = (!options.callback_ca.is_empty()).then(|| {
        let map = ConfigMapVolumeSource { name: options.callback_ca.clone(), ..Default::default() };
        vec![Volume { name: CALLBACK_CA.to_owned(), config_map: Some(map), ..Volume::default() }]
    });
    PodSpec {
        service_account_name: Some(names::OPERATOR.to_owned()),
        priority_class_name: Some(names::OPERATOR.to_owned()),
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
            label_selector: Some(operator_pods()),
            ..TopologySpreadConstraint::default()
        }]),
        containers: vec![container(options)],
        volumes: callback_ca,
        node_selector: Some(options.node_selector.clone()).filter(|labels| !labels.is_empty()),
        tolerations: Some(options.tolerations.clone()).filter(|tolerations| !tolerations.is_empty()),
        ..PodSpec::default()
    }
}

fn container(options: &InstallOptions) -> Container {
    let callback_ca = (!options.callback_ca.is_empty()).then(|| {
        vec![VolumeMount {
            name: CALLBACK_CA.to_owned(),
            mount_path: callback_ca(options),
            read_only: Some(true),
            ..VolumeMount::default()
        }]
    });
    Container {
        name: "operator".to_owned(),
        image: Some(options.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(arguments(options)),
        env: Some(vec![
            variable("POD_NAME", "metadata.name"),
            variable("POD_NAMESPACE", "metadata.namespace"),
        ]),
        ports: Some(vec![
            container_port("webhook", names::WEBHOOK_PORT),
            container_port("metrics", names::METRICS_PORT),
            container_port("health", names::HEALTH_PORT),
        ]),
        liveness_probe: Some(probe("/healthz", 15)),
        readiness_probe: Some(probe("/readyz", 5)),
        resources: Some(options.resources.clone()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(texts(&["ALL"])), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: callback_ca,
        ..Container::default()
    }
}

/// A variable with a field of the pod.
fn variable(name: &str, field: &str) -> EnvVar {
    let selector = ObjectFieldSelector { field_path: field.to_owned(), api_version: None };
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(selector), ..EnvVarSource::default() }),
    }
}

pub(super) fn container_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

pub(super) fn probe(path: &str, period_seconds: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("health".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(2),
        ..Probe::default()
    }
}

fn arguments(options: &InstallOptions) -> Vec<String> {
    let mut arguments = vec![
        format!("--admission-address=0.0.0.0:{}", names::WEBHOOK_PORT),
        format!("--metrics-address=0.0.0.0:{}", names::METRICS_PORT),
        format!("--health-address=0.0.0.0:{}", names::HEALTH_PORT),
        "--leader-elect=true".to_owned(),
        format!("--bundle-image={}", options.bundle_image),
    ];
    arguments.extend(options.mount_bundle_image.then(|| "--mount-bundle-image".to_owned()));
    if !options.callback_url.is_empty() {
        arguments.push(format!("--callback-url={}", options.callback_url));
    }
    if !options.callback_ca.is_empty() {
        arguments.push(format!("--callback-ca={}/ca.crt", callback_ca(options)));
    }
    if !options.otlp_endpoint.is_empty() {
        arguments.push(format!("--otlp-endpoint={}", options.otlp_endpoint));
    }
    arguments.extend(options.trusted_keys.iter().map(|line| format!("--trusted-key={line}")));
    arguments.extend(options.watch_namespaces.iter().map(|name| format!("--watch-namespace={name}")));
    arguments.extend(options.runner_images.iter().map(|name| format!("--runner-image={name}")));
    arguments.extend(options.allowed_images.iter().map(|name| format!("--allowed-image={name}")));
    // Writing it as JSON cannot fail: all its keys are texts.
    let placement = serde_json::to_string(&options.job_placement).unwrap_or_default();
    arguments.extend((!options.job_placement.is_empty()).then(|| format!("--job-placement={placement}")));
    arguments.extend(options.max_operations.map(|most| format!("--max-operations={most}")));
    let of_region = options.max_operations_per_region;
    arguments.extend(of_region.map(|most| format!("--max-operations-per-region={most}")));
    arguments.extend(options.only_api_servers.then(|| "--admission-only-api-servers".to_owned()));
    arguments.extend_from_slice(&options.extra_arguments);
    arguments
}

/// The folder of the callback listener's authorities.
fn callback_ca(options: &InstallOptions) -> String {
    format!("/etc/kubeon/{}", options.callback_ca)
}

fn service(options: &InstallOptions, name: &str, port_name: &str, port: u16) -> Service {
    Service {
        metadata: metadata(&options.namespace, name),
        spec: Some(ServiceSpec {
            selector: Some(operator_labels()),
            ports: Some(vec![ServicePort {
                name: Some(port_name.to_owned()),
                port: port.into(),
                target_port: Some(IntOrString::String(port_name.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn disruption_budget(options: &InstallOptions) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(&options.namespace, names::OPERATOR),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(operator_pods()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

/// On a full cluster the pods of workloads make room for the operator, whose webhook every change of a cluster needs.
fn priority_class() -> PriorityClass {
    PriorityClass {
        metadata: metadata("", names::OPERATOR),
        value: Some(PRIORITY),
        description: Some("The operator of kubeon, before ordinary workloads".to_owned()),
        ..PriorityClass::default()
    }
}

/// Allows ingress to the operator's ports. Egress is not limited: the API server's port differs between clusters.
fn network_policy(options: &InstallOptions) -> NetworkPolicy {
    let port = |name: &str| NetworkPolicyPort {
        port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    };
    let ports = vec![port("webhook"), port("metrics"), port("health")];
    NetworkPolicy {
        metadata: metadata(&options.namespace, names::OPERATOR),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(operator_pods()),
            policy_types: Some(texts(&["Ingress"])),
            ingress: Some(vec![NetworkPolicyIngressRule { ports: Some(ports), from: None }]),
            egress: None,
        }),
    }
}
