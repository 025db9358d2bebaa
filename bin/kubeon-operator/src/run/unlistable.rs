//! Clusters for which nothing is decided, because what is in their namespace cannot be listed: people are told.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubeon_operations::kubernetes_cluster::refused;
use kubeon_operations::{ClusterObject, Notice, Observed};

use crate::context::OperatorContext;
use crate::execute;
use crate::request_priority::RequestPriority;

/// Before what could not be told is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Tells of each in its status and by an event, once while it stays so, until it is dropped. Turns do not: for them such an
/// object is one that cannot be read.
pub(super) async fn tell(context: &OperatorContext) {
    loop {
        let mut all_told = true;
        for (object, why) in context.cache.held() {
            all_told &=
                is_told(context, &ClusterObject::KubernetesCluster(Observed::Found(object)), &why).await;
        }
        let held_changed = context.cache.held_changed();
        if all_told {
            held_changed.await;
        } else {
            let _ = tokio::time::timeout(PAUSE, held_changed).await;
        }
    }
}

/// Tells of an object, unless its status says so already. Whether that went well.
async fn is_told(context: &OperatorContext, subject: &ClusterObject, why: &str) -> bool {
    let Some((about, uid)) = subject.target() else { return true };
    let Some(write) = refused(subject, why, Timestamp::now()) else { return true };
    let (with, text) = (write.target.clone(), why.to_owned());
    let told = Notice { about, with, uid, warning: true, reason: "Held", text };
    let is_told =
        execute::execute(context, vec![(write, vec![told])], &RequestPriority::normal()).await.is_ok();
    if !is_told {
        tracing::debug!(why, "the status is not written; it is tried again");
    }
    is_told
}
