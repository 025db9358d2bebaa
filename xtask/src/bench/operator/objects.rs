//! Creates the objects that an operator reconciles, many at once.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::TypeMeta;
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;

use super::candidate::Candidate;
use super::watches::Kinds;

/// Concurrent requests of the harness; more would only queue in the harness itself.
pub(super) const AT_ONCE: usize = 16;

/// The name of a cluster by its number.
pub(super) fn cluster_name(number: usize) -> String {
    format!("bench-{number:04}")
}

/// The objects `Kind/name` that a reconciled cluster owns.
pub(super) fn references_of(candidate: &Candidate, cluster: &str) -> Result<Vec<String>> {
    if !candidate.owns_references {
        return Ok(Vec::new());
    }
    let objects = candidate.references(cluster)?;
    Ok(objects.iter().map(|object| format!("{}/{}", kind(object), object.name_any())).collect())
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// Creates clusters with the objects that they refer to, all at once. Returns the time at which each Cluster
/// was sent.
pub(super) async fn clusters(
    client: &Client,
    candidate: &Candidate,
    kinds: &Kinds,
    names: &[String],
) -> Result<HashMap<String, Instant>> {
    let sent = Mutex::new(HashMap::new());
    let each = |name: &String| {
        let (name, sent) = (name.clone(), &sent);
        async move {
            for object in candidate.references(&name)? {
                create(client, &core(&object)?, &object).await?;
            }
            let cluster = candidate.cluster(&name)?;
            note(sent, &name);
            create(client, &kinds.cluster, &cluster).await
        }
    };
    stream::iter(names.iter().map(each)).map(Ok).try_for_each_concurrent(AT_ONCE, |making| making).await?;
    Ok(sent.into_inner())
}

/// Creates operations, given as pairs of name and cluster, all at once. Returns the time at which each was
/// sent.
pub(super) async fn operations(
    client: &Client,
    candidate: &Candidate,
    kinds: &Kinds,
    names: &[(String, String)],
) -> Result<HashMap<String, Instant>> {
    let sent = Mutex::new(HashMap::new());
    let each = |(name, cluster): &(String, String)| {
        let (name, cluster, sent) = (name.clone(), cluster.clone(), &sent);
        async move {
            let operation = candidate.operation(&name, &cluster)?;
            note(sent, &name);
            create(client, &kinds.operation, &operation).await
        }
    };
    stream::iter(names.iter().map(each)).map(Ok).try_for_each_concurrent(AT_ONCE, |making| making).await?;
    Ok(sent.into_inner())
}

fn note(sent: &Mutex<HashMap<String, Instant>>, name: &str) {
    sent.lock().insert(name.to_owned(), Instant::now());
}

/// The API for objects of this kind in this namespace.
pub(super) fn api(client: &Client, resource: &ApiResource, object: &DynamicObject) -> Api<DynamicObject> {
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Creates an object.
pub(super) async fn create(client: &Client, resource: &ApiResource, object: &DynamicObject) -> Result<()> {
    let created = api(client, resource, object).create(&PostParams::default(), object).await;
    created.with_context(|| format!("creating {} {}", kind(object), object.name_any()))?;
    Ok(())
}

/// The resource of a ConfigMap, Secret or Job, without a discovery request.
pub(super) fn core(object: &DynamicObject) -> Result<ApiResource> {
    let types: &TypeMeta = object.types.as_ref().context("a template without kind")?;
    let kind = kube::core::GroupVersionKind::try_from(types)?;
    Ok(ApiResource::from_gvk(&kind))
}
