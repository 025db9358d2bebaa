//! The metadata of the ConfigMaps that a runner makes for its own Job.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;
use kubeon_api::{ClusterOperation, labels};

use crate::args::RunnerSettings;

/// The name is that of the Job with a suffix. The operation owns the object, as it would own one that the operator makes.
/// `None` when the runner does not know its Job.
pub(crate) fn metadata(
    settings: &RunnerSettings,
    suffix: &str,
    more: &[(&str, String)],
) -> Option<ObjectMeta> {
    let flags = &settings.flags;
    let (job, operation, uid) =
        (flags.meta.job.as_ref()?, flags.operation.as_ref()?, flags.meta.operation_uid.as_ref()?);
    let owner = OwnerReference {
        api_version: ClusterOperation::api_version(&()).into_owned(),
        kind: ClusterOperation::kind(&()).into_owned(),
        name: operation.clone(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    };
    let annotations = [(labels::JOB, job.clone())].into_iter().chain(more.iter().cloned());
    Some(ObjectMeta {
        name: Some(format!("{job}{suffix}")),
        labels: Some([(labels::OPERATION_UID.to_owned(), uid.clone())].into()),
        annotations: Some(annotations.map(|(key, text)| (key.to_owned(), text)).collect()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    })
}
