//! Objects of the meta cluster as messages of version 2.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::kubernetes_cluster::{Host, NodeRoles, NodeStatus};
use kubeon_api::{
    ClusterOperation, HostAddress, KubernetesCluster, KubernetesClusterSpec, KubernetesClusterStatus,
    StepRecord, labels,
};
use kubeon_operations::kubernetes_cluster::without_secrets;
use kubeon_rest::{
    ClusterDetail, ClusterView, ConditionView, HostView, OperationDetail, OperationView, StepCount, StepView,
};

/// Annotations with large or internal content.
const HIDDEN_ANNOTATIONS: [&str; 2] =
    [labels::APPLIED_SPEC, "kubectl.kubernetes.io/last-applied-configuration"];

pub(super) fn cluster_summary(cluster: &KubernetesCluster) -> ClusterView {
    // A list has many clusters: the conditions and nodes of their status are not copied.
    let status = cluster.status.as_ref();
    let text = |field: fn(&KubernetesClusterStatus) -> Option<&String>| status.and_then(field).cloned();
    let spec = &cluster.spec.cluster;
    ClusterView {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        uid: cluster.uid().unwrap_or_default(),
        resource_version: cluster.resource_version().unwrap_or_default(),
        generation: cluster.metadata.generation.unwrap_or_default(),
        observed_generation: status.and_then(|status| status.observed_generation),
        created: text_of(cluster.metadata.creation_timestamp.as_ref()),
        phase: status.and_then(|status| status.phase).map(|phase| phase.as_str().to_owned()),
        reason: text(|status| status.reason.as_ref()).filter(|reason| !reason.is_empty()),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        region: spec.region.as_ref().map(ToString::to_string),
        version: status.and_then(|status| status.version).map(|version| version.to_string()),
        ready: text(|status| status.ready.as_ref()),
        masters: spec.master_list.len(),
        workers: spec.node_list.len(),
        operation: text(|status| status.operation.as_ref()),
        step: text(|status| status.step.as_ref()),
        api_endpoint: text(|status| status.api_endpoint.as_ref()),
    }
}

pub(super) fn cluster_detail(cluster: &KubernetesCluster) -> ClusterDetail {
    let declared = without_secrets(&cluster.spec).cluster;
    let spec = KubernetesClusterSpec { cluster: declared, ..cluster.spec.clone() };
    let mut annotations = cluster.annotations().clone();
    annotations.retain(|key, _| !HIDDEN_ANNOTATIONS.contains(&key.as_str()));
    let status = cluster.status.as_ref();
    ClusterDetail {
        summary: cluster_summary(cluster),
        labels: cluster.labels().clone(),
        annotations,
        spec: serde_json::to_value(&spec).unwrap_or_default(),
        kubeconfig_secret: status
            .and_then(|status| status.kubeconfig_secret.as_ref())
            .map(|secret| secret.name.clone()),
        conditions: status.map(|status| conditions(&status.conditions)).unwrap_or_default(),
    }
}

/// The declared hosts in their order, then those that the status still shows. The status has not all hosts of a large cluster.
pub(super) fn hosts(cluster: &KubernetesCluster) -> Vec<HostView> {
    let nodes = cluster.status.as_ref().map(|status| status.nodes.as_slice()).unwrap_or_default();
    // Contradictory lists are refused when they are declared.
    let declared = cluster.spec.cluster.hosts().unwrap_or_default();
    let mut observed: BTreeMap<HostAddress, &NodeStatus> = nodes.iter().map(|node| (node.ip, node)).collect();
    let mut all: Vec<HostView> = declared
        .iter()
        .map(|host| observed.remove(&host.ip).map_or_else(|| declared_host(host), observed_host))
        .collect();
    all.extend(nodes.iter().filter(|node| observed.contains_key(&node.ip)).map(observed_host));
    all
}

fn declared_host(host: &Host) -> HostView {
    HostView {
        ip: host.ip.to_string(),
        name: host.name.as_ref().map(ToString::to_string),
        role: Some(NodeRoles::from(host.roles).to_string()),
        ready: None,
        version: None,
    }
}

fn observed_host(node: &NodeStatus) -> HostView {
    HostView {
        ip: node.ip.to_string(),
        name: node.name.as_ref().map(ToString::to_string),
        role: node.role.as_ref().map(ToString::to_string),
        ready: node.ready,
        version: node.version.map(|version| version.to_string()),
    }
}

/// The status of an operation as a word; an operation without one waits.
pub(super) fn status_word(operation: &ClusterOperation) -> String {
    let result = operation.status.as_ref().and_then(|status| status.status);
    result.map_or("Waiting", OperationResult::as_str).to_owned()
}

pub(super) fn operation_summary(operation: &ClusterOperation) -> OperationView {
    let status = operation.status.as_ref();
    OperationView {
        name: operation.name_any(),
        uid: operation.uid().unwrap_or_default(),
        resource_version: operation.resource_version().unwrap_or_default(),
        namespace: operation.labels().get(labels::DERIVED_NAMESPACE).cloned(),
        cluster: operation.spec.cluster.clone(),
        action: operation.spec.main.action.clone(),
        plans: operation.spec.plan,
        approves: operation.spec.approves.clone(),
        requested_by: operation.annotations().get(labels::REQUESTED_BY).cloned(),
        status: status_word(operation),
        reason: status.and_then(|status| status.reason.clone()).filter(|reason| !reason.is_empty()),
        steps: status.and_then(|status| status.steps.as_ref()).map(|steps| StepCount {
            done: steps.done,
            total: steps.total,
            current: steps.current.clone(),
        }),
        waits_for: status.and_then(|status| status.waits_for.clone()),
        created: text_of(operation.metadata.creation_timestamp.as_ref()),
        started: text_of(status.and_then(|status| status.start_time.as_ref())),
        ended: text_of(status.and_then(|status| status.end_time.as_ref())),
    }
}

pub(super) fn operation_detail(operation: &ClusterOperation) -> OperationDetail {
    let status = operation.status.clone().unwrap_or_default();
    let findings = status
        .findings
        .iter()
        .map(|finding| format!("{}: {}: {}", finding.host, finding.check, finding.message));
    let refusals = status.refusals.iter().map(|refusal| match refusal.value.as_str() {
        "" => format!("{}: {}", refusal.field, refusal.reason),
        value => format!("{} {value}: {}", refusal.field, refusal.reason),
    });
    OperationDetail {
        summary: operation_summary(operation),
        why: operation.annotations().get(kubeon_operations::names::WHY_ANNOTATION).cloned(),
        job: status.job_ref.as_ref().map(|job| format!("{}/{}", job.namespace, job.name)),
        problems: findings.chain(refusals).collect(),
        conditions: conditions(&status.conditions),
    }
}

pub(super) fn step(record: &StepRecord) -> StepView {
    StepView {
        host: record.host.to_string(),
        name: record.name.clone(),
        stage: record.stage.clone(),
        step: record.step.clone(),
        why: record.why.clone(),
        started: record.started.0.to_string(),
        ended: record.ended.as_ref().map(|time| time.0.to_string()),
        result: record.result.as_str().to_owned(),
        cause: record.cause.clone(),
    }
}

fn conditions(all: &[Condition]) -> Vec<ConditionView> {
    let view = |condition: &Condition| ConditionView {
        kind: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition: condition.last_transition_time.0.to_string(),
    };
    all.iter().map(view).collect()
}

fn text_of(time: Option<&Time>) -> Option<String> {
    time.map(|time| time.0.to_string())
}
