//! Observes the business clusters that exist: whether an API server answers, and which nodes are ready.
//!
//! ```text
//!   every 200 ms ──► clusters that are due ──► ClusterApi::health ──► ObservedHealth ──► the key is reconciled if it changed
//!                        ▲                          one connection, three requests
//!                        └── after 20 s, or after 2 s while no API server answers
//! ```

use std::sync::Arc;
use std::time::Duration;

use kubeon_link_kube::{LinkError, Priority, Verb};
use kubeon_operations::{ObjectRef, ObservedHealth};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster_api::{ClusterApi, HealthError};
use crate::context::OperatorContext;
use crate::location;
use crate::observation::ObservableCluster;

/// The time between two searches for clusters that are due.
const TICK: Duration = Duration::from_millis(200);
/// The most clusters that are observed at the same time: 160 in a second, 3,200 in the default time between two observations.
const MOST_AT_ONCE: usize = 32;
/// The key of the kubeconfig in its Secret.
const KUBECONFIG: &str = "kubeconfig";

/// Observes all clusters, each once in the time `every`, until the future is dropped.
pub(crate) async fn observe(context: &Arc<OperatorContext>, every: Duration) {
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    let mut ticks = interval(TICK.min(every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut attempts = tokio::task::JoinSet::new();
    loop {
        ticks.tick().await;
        while attempts.try_join_next().is_some() {}
        let due = context.observations.take_due(context.cache.observable(), places.available_permits());
        for (cluster, api) in due {
            let (context, places) = (Arc::clone(context), Arc::clone(&places));
            // An idle connection keeps the memory of the task that used it last: with a box this is a pointer instead of 15 KiB.
            attempts.spawn(Box::pin(async move {
                let _place = places.acquire().await;
                let (api, result) = attempt(&context, &cluster, api).await;
                if context.observations.record(&cluster.queue_key, api, result, every) {
                    context.wake(vec![cluster.queue_key]);
                }
            }));
        }
    }
}

async fn attempt(
    context: &OperatorContext,
    cluster: &ObservableCluster,
    api: Option<ClusterApi>,
) -> (Option<ClusterApi>, Result<ObservedHealth, HealthError>) {
    let (secret, version) = &cluster.secret;
    let api = match api.filter(|api| api.version() == *version) {
        Some(api) => Ok(api),
        None => match read_kubeconfig(context, secret).await {
            Ok(text) if text.is_empty() => Err(HealthError::NoCredential),
            Ok(text) => ClusterApi::new(&text, &cluster.object.spec.cluster, *version).await,
            Err(error) => Err(HealthError::Unusable(error.to_string())),
        },
    };
    match api {
        Ok(mut api) => {
            let result = api.health().await;
            // After an error, the next attempt reads the Secret again.
            let is_usable = !matches!(result, Err(HealthError::Unusable(_) | HealthError::Refused(_)));
            (Some(api).filter(|_| is_usable), result)
        }
        Err(error) => (None, Err(error)),
    }
}

async fn read_kubeconfig(context: &OperatorContext, secret: &ObjectRef) -> Result<String, LinkError> {
    context.metrics.request("get", secret.kind.as_str(), "sent");
    let verb = context.cache.version(secret).map_or(Verb::Get, Verb::GetAsOf);
    Ok(kubeconfig_in(context.writer.send(location::path(secret), &verb, Priority::Low).await?))
}

/// The kubeconfig in a Secret; empty when the runner has not written it yet.
fn kubeconfig_in(mut secret: Value) -> String {
    let data = secret["data"][KUBECONFIG].take();
    let bytes = serde_json::from_value::<k8s_openapi::ByteString>(data).unwrap_or_default();
    String::from_utf8(bytes.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_the_runner_has_not_written_has_no_kubeconfig() {
        let text = |secret| kubeconfig_in(secret);
        assert_eq!(text(serde_json::json!({"data": {"kubeconfig": "YQ=="}})), "a");
        assert_eq!(text(serde_json::json!({"metadata": {}})), "");
        assert_eq!(text(serde_json::json!({"data": {"kubeconfig": "/w=="}})), "", "not text");
    }
}
