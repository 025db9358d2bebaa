//! Reports clusters that are not reconciled because a kind of their namespace cannot be listed.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubeon_operations::kubernetes_cluster::refused;
use kubeon_operations::{ClusterObject, Notice, Observed};

use crate::context::OperatorContext;
use crate::execute;
use crate::request_priority::RequestPriority;

/// The pause before a failed report is retried.
const PAUSE: Duration = Duration::from_secs(5);

/// Reports each such cluster in its status and by an event, once while the cause stays the same, until it is
/// dropped. Reconciles do not report them, because they treat such an object as unreadable.
pub(super) async fn report(context: &OperatorContext) {
    loop {
        let mut all_reported = true;
        for (object, why) in context.cache.held() {
            all_reported &=
                is_reported(context, &ClusterObject::KubernetesCluster(Observed::Found(object)), &why).await;
        }
        let held_changed = context.cache.held_changed();
        if all_reported {
            held_changed.await;
        } else {
            let _ = tokio::time::timeout(PAUSE, held_changed).await;
        }
    }
}

/// Reports an object, unless its status already has the cause. True on success.
async fn is_reported(context: &OperatorContext, subject: &ClusterObject, why: &str) -> bool {
    let Some((about, uid)) = subject.target() else { return true };
    let Some(write) = refused(subject, why, Timestamp::now()) else { return true };
    let (with, text) = (write.target.clone(), why.to_owned());
    let notice = Notice { about, with, uid, warning: true, reason: "Held", text };
    let is_reported =
        execute::execute(context, vec![(write, vec![notice])], &RequestPriority::normal()).await.is_ok();
    if !is_reported {
        tracing::debug!(why, "the status is not written; the write is retried");
    }
    is_reported
}
