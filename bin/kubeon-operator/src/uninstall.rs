//! The question before Helm removes the operator: does it have clusters? Nobody would remove their finalizers afterwards.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use kubeon_api::{Cluster, KubernetesCluster};
use kubeon_link_kube::connect_within;
use serde::de::DeserializeOwned;

/// The number of objects that the error names.
const NAMED: u32 = 10;

/// Fails and names clusters if there are some.
///
/// # Errors
/// When there are clusters, or the API server does not tell.
pub async fn check_uninstall(kubeconfig: Option<&Path>, timeout: Duration) -> anyhow::Result<()> {
    let client = connect_within(kubeconfig, timeout).await?;
    let mut found = names::<KubernetesCluster>(&client).await?;
    found.extend(names::<Cluster>(&client).await?);
    ensure!(
        found.is_empty(),
        "the operator has clusters: {}; delete them first, or keep them with the value handOver=true",
        found.join(", ")
    );
    Ok(())
}

/// The first objects of a kind, also those that cannot be parsed.
async fn names<K>(client: &Client) -> anyhow::Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let list = Api::<K>::all(client.clone()).list_metadata(&ListParams::default().limit(NAMED)).await;
    let list = list.with_context(|| format!("cannot list {}", K::plural(&())))?;
    let name = |object: kube::core::PartialObjectMeta<K>| {
        let namespace = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} {namespace}{}", K::kind(&()), object.name_any())
    };
    Ok(list.items.into_iter().map(name).collect())
}
