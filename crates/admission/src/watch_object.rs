//! A watch of one object.

use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

/// Watches one object: `None` while it does not exist. A failed watch is restarted with growing pauses.
pub(crate) fn watch_object<K>(api: Api<K>, name: &str) -> impl Stream<Item = Option<K>> + use<K>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let (config, name) =
        (watcher::Config::default().fields(&format!("metadata.name={name}")), name.to_owned());
    let mut listed = None;
    watcher(api, config).default_backoff().filter_map(move |event| {
        std::future::ready(match event {
            Ok(watcher::Event::Init) => {
                listed = None;
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed = Some(object);
                None
            }
            Ok(watcher::Event::InitDone) => Some(listed.take()),
            Ok(watcher::Event::Apply(object)) => Some(Some(object)),
            Ok(watcher::Event::Delete(_)) => Some(None),
            Err(error) => {
                tracing::warn!(%error, object = name, "watching an object that the webhook needs");
                None
            }
        })
    })
}
