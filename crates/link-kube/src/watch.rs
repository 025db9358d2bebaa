//! What there is of a kind, then every change of it, for ever.

use std::fmt::Debug;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{Api, Resource};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

pub use kube::runtime::watcher::Event;

/// Objects of one answer to a list: what is read at once must fit into little memory.
const PAGE: u32 = 100;

/// Watches a kind. Errors are told and come back from by themselves, after a while that grows.
pub fn watch<K>(api: Api<K>, labels: Option<&str>) -> BoxStream<'static, Result<Event<K>, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default().page_size(PAGE);
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    watcher(api, config).modify(|object| slim(object)).default_backoff().boxed()
}

/// Takes away what nobody here reads and what is most of many objects.
pub fn slim<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
