//! Changes as server-sent events: first all objects, then `synced`, then every change. A stream ends when the caller loses the
//! right to see it, or reads too slowly. A caller has no more streams than connections, whose number is limited.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::unfold;
use kube::Resource;
use kubeon_rest::{ClusterView, OperationView, Problem};
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::operations::{is_of_namespace, require_operations};
use super::problem::ProblemError;
use super::query::{Parameters, StreamQuery};
use super::view::{cluster_summary, operation_summary};
use crate::access::ReadAccess;
use crate::caller::{Caller, CallerCredentials};
use crate::fleet::{FleetChange, WatchedObjects};
use crate::gateway::Gateway;
use crate::request_error::RequestError;

/// How often the rights of a reader are checked again.
const RECHECK: Duration = Duration::from_secs(10);

type EventResult = Result<Event, Infallible>;

/// Changes of clusters: events `added`, `modified` and `deleted` with a summary, `synced` after all clusters that exist.
///
/// The event `end` says why the stream ends. A user with too many connections gets 429.
#[utoipa::path(get, path = "/api/v2/watch/clusters", tag = "clusters", operation_id = "watchClusters", params(StreamQuery),
    responses((status = 200, body = ClusterView, content_type = "text/event-stream"), (status = 429, body = Problem),
        (status = "default", body = Problem)))]
pub(super) async fn clusters(
    State(gateway): State<Gateway>,
    caller: Caller,
    Parameters(query): Parameters<StreamQuery>,
) -> Result<Sse<impl Stream<Item = EventResult>>, ProblemError> {
    let access = ReadAccess::clusters("watch", query.namespace.as_deref().unwrap_or_default(), "");
    gateway.access.require(&caller.identity, &access).await?;
    let namespace = query.namespace;
    let checked = gateway.clone();
    Ok(stream(
        &gateway.fleet.clusters,
        move |cluster| namespace.is_none() || cluster.metadata.namespace == namespace,
        cluster_summary,
        Box::new(move || {
            let (gateway, caller, access) = (checked.clone(), caller.clone(), access.clone());
            Box::pin(async move {
                require_valid(&gateway, &caller).await?;
                gateway.access.require(&caller.identity, &access).await
            })
        }),
    ))
}

/// Changes of operations: events `added`, `modified` and `deleted` with a summary, `synced` after all operations that exist.
///
/// The event `end` says why the stream ends. A user with too many connections gets 429.
#[utoipa::path(get, path = "/api/v2/watch/operations", tag = "operations", operation_id = "watchOperations", params(StreamQuery),
    responses((status = 200, body = OperationView, content_type = "text/event-stream"), (status = 429, body = Problem),
        (status = "default", body = Problem)))]
pub(super) async fn operations(
    State(gateway): State<Gateway>,
    caller: Caller,
    Parameters(query): Parameters<StreamQuery>,
) -> Result<Sse<impl Stream<Item = EventResult>>, ProblemError> {
    require_operations(&gateway, &caller, "watch", query.namespace.as_deref()).await?;
    let namespace = query.namespace;
    let (checked, of) = (gateway.clone(), namespace.clone());
    Ok(stream(
        &gateway.fleet.operations,
        move |operation| is_of_namespace(operation, namespace.as_deref()),
        operation_summary,
        Box::new(move || {
            let (gateway, caller, namespace) = (checked.clone(), caller.clone(), of.clone());
            Box::pin(async move {
                require_valid(&gateway, &caller).await?;
                require_operations(&gateway, &caller, "watch", namespace.as_deref()).await
            })
        }),
    ))
}

/// An error when the caller's token has expired or was revoked.
async fn require_valid(gateway: &Gateway, caller: &Caller) -> Result<(), RequestError> {
    match &caller.credentials {
        CallerCredentials::Token(token) => gateway.tokens.identity(token).await.map(drop),
        CallerCredentials::OidcToken(token) => gateway.oidc_identity(token).await.map(drop),
        CallerCredentials::Impersonation => Ok(()),
    }
}

/// Checks that the reader may still read.
type Recheck = Box<dyn Fn() -> BoxFuture<'static, Result<(), RequestError>> + Send>;

struct StreamState<K, F, V> {
    /// The objects that existed at the start and were not sent yet.
    existing: std::vec::IntoIter<Arc<K>>,
    synced: bool,
    changes: Receiver<FleetChange<K>>,
    visible: F,
    view: fn(&K) -> V,
    recheck: Recheck,
    timer: Interval,
    ended: bool,
}

fn stream<K, V, F>(
    objects: &WatchedObjects<K>,
    visible: F,
    view: fn(&K) -> V,
    recheck: Recheck,
) -> Sse<impl Stream<Item = EventResult> + use<K, V, F>>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    V: Serialize + 'static,
    F: Fn(&K) -> bool + Send + 'static,
{
    let (now, changes) = objects.subscribe();
    let mut timer = interval(RECHECK);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.reset();
    let existing = now.into_iter();
    let state = StreamState { existing, synced: false, changes, visible, view, recheck, timer, ended: false };
    let events = unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok(event), state))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

impl<K, F, V> StreamState<K, F, V>
where
    K: Resource<DynamicType = ()>,
    V: Serialize,
    F: Fn(&K) -> bool,
{
    /// The event of an object, if the reader may see it.
    fn event(&self, kind: &str, object: &K) -> Option<Event> {
        if !(self.visible)(object) {
            return None;
        }
        let version = object.meta().resource_version.clone().unwrap_or_default();
        Event::default().event(kind).id(version).json_data((self.view)(object)).ok()
    }

    /// The last event: why the stream ends.
    fn end(&mut self, why: &str) -> Event {
        self.ended = true;
        Event::default().event("end").data(why)
    }

    async fn next(&mut self) -> Option<Event> {
        while let Some(object) = self.existing.next() {
            if let Some(event) = self.event("added", &object) {
                return Some(event);
            }
        }
        if !std::mem::replace(&mut self.synced, true) {
            return Some(Event::default().event("synced").data("{}"));
        }
        while !self.ended {
            let event = tokio::select! {
                change = self.changes.recv() => self.changed(change),
                _ = self.timer.tick() => {
                    let checked = (self.recheck)().await;
                    checked.err().map(|error| self.end(&error.detail))
                }
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn changed(&mut self, change: Result<FleetChange<K>, RecvError>) -> Option<Event> {
        match change {
            Ok(FleetChange::Added(object)) => self.event("added", &object),
            Ok(FleetChange::Modified(object)) => self.event("modified", &object),
            Ok(FleetChange::Deleted(object)) => self.event("deleted", &object),
            Err(RecvError::Lagged(missed)) => {
                let why =
                    format!("{missed} changes were missed because they were read too slowly; connect again");
                Some(self.end(&why))
            }
            Err(RecvError::Closed) => Some(self.end("the gateway stops; connect again")),
        }
    }
}
