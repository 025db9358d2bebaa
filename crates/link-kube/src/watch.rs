//! Watches of a kind: all objects, then every change, without end.

use std::fmt::Debug;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{Api, Resource};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

pub use kube::runtime::watcher::Event;

/// The page size of a list, which limits the memory for one answer.
const PAGE: u32 = 100;

/// Watches a kind, without metadata that the operator does not read. Errors are returned, and the watch restarts by itself
/// after a growing pause.
pub fn watch<K>(api: Api<K>, labels: Option<&str>) -> BoxStream<'static, Result<Event<K>, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_whole(api, labels).modify(|object| slim(object)).boxed()
}

/// As [`watch`], with all metadata.
pub fn watch_whole<K>(
    api: Api<K>,
    labels: Option<&str>,
) -> BoxStream<'static, Result<Event<K>, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default().page_size(PAGE);
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    watcher(api, config).default_backoff().boxed()
}

/// Removes large metadata that the operator does not read.
pub fn slim<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
