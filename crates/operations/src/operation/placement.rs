//! Where and with which limits the pods of a Job run: the settings of the installation, with those of the cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubeon_api::{ClusterJobPlacement, JobPlacement, JobResources};

use super::inputs::Obstacle;

/// The reason of an operation whose placement is refused.
const REFUSED: &str = "InvalidPlacement";

/// The placement of the pods of a cluster's Jobs. The cluster adds to the installation; only its resources replace those of
/// the installation, and those of an operation replace both.
pub(crate) fn placement(
    installed: &JobPlacement,
    own: Option<&ClusterJobPlacement>,
) -> Result<JobPlacement, Obstacle> {
    let mut merged = installed.clone();
    let Some(own) = own else { return Ok(merged) };
    for (key, value) in &own.node_selector {
        match installed.node_selector.get(key.as_str()) {
            Some(fixed) if fixed != value.as_str() => {
                let text = format!(
                    "spec.jobPlacement.nodeSelector: {key} is {fixed:?} for all Jobs of this installation \
                     (--job-placement); leave it out"
                );
                return Err(Obstacle::Refuse(REFUSED, text));
            }
            _ => merged.node_selector.insert(key.to_string(), value.to_string()),
        };
    }
    if let Some(refused) = own.tolerations.iter().find(|toleration| toleration.is_for_kubernetes()) {
        let text = format!(
            "spec.jobPlacement.tolerations: only the installation may tolerate {} (--job-placement); leave it out",
            refused.key
        );
        return Err(Obstacle::Refuse(REFUSED, text));
    }
    let added = own.tolerations.iter().map(Toleration::from);
    let added = added.filter(|toleration| !installed.tolerations.contains(toleration));
    merged.tolerations.extend(added);
    if let Some(resources) = &own.resources {
        merged.resources = Some(with_resources(merged.resources.take().unwrap_or_default(), resources));
    }
    Ok(merged)
}

/// Entries of the cluster replace those of the installation.
fn with_resources(installed: ResourceRequirements, own: &JobResources) -> ResourceRequirements {
    let merged = |installed: Option<BTreeMap<String, Quantity>>, own: &BTreeMap<String, Quantity>| {
        let mut all = installed.unwrap_or_default();
        all.extend(own.clone());
        Some(all).filter(|all| !all.is_empty())
    };
    ResourceRequirements {
        requests: merged(installed.requests, &own.requests),
        limits: merged(installed.limits, &own.limits),
        claims: installed.claims,
    }
}
