//! The priority of the requests of a reconcile, and their preemption.

use std::sync::atomic::{AtomicBool, Ordering};

use kubeon_link_kube::{KubeWriter, Priority, RequestPermit};
use tokio_util::sync::CancellationToken;

use crate::queue::{QueueItem, Urgency};

/// The priority of one stage of writes, or of the reads. A reconcile that is not urgent stops before its
/// first write when its key becomes urgent. When it has sent a write, the others of the stage get high priority
/// instead, because they belong together.
pub(crate) struct RequestPriority {
    priority: Priority,
    preempted: Option<CancellationToken>,
    started: AtomicBool,
}

impl RequestPriority {
    /// The priority for a queue item.
    pub(crate) fn of(work: &QueueItem) -> Self {
        let (priority, preempted) = match work.class {
            Urgency::Urgent => (Priority::High, None),
            Urgency::Fresh => (Priority::Normal, Some(work.preempted.clone())),
            Urgency::Rest => (Priority::Low, Some(work.preempted.clone())),
        };
        Self { priority, preempted, started: AtomicBool::new(false) }
    }

    /// Normal priority, without preemption.
    pub(crate) fn normal() -> Self {
        Self { priority: Priority::Normal, preempted: None, started: AtomicBool::new(false) }
    }

    /// Waits for a permit; `None` when the reconcile is preempted.
    pub(crate) async fn permit<'h>(&self, writer: &'h KubeWriter) -> Option<RequestPermit<'h>> {
        let Some(preempted) = &self.preempted else { return Some(writer.permit(self.priority).await) };
        tokio::select! {
            biased;
            () = preempted.cancelled() => {}
            permit = writer.permit(self.priority) => return Some(permit),
        }
        if self.started.load(Ordering::Relaxed) { Some(writer.permit(Priority::High).await) } else { None }
    }

    /// Records that a write of the stage was sent, so that the others follow.
    pub(crate) fn start(&self) {
        self.started.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use kube::{Client, Config};
    use kubeon_operations::QueueKey;

    use super::*;

    fn work(class: Urgency) -> QueueItem {
        QueueItem { queue_key: QueueKey::Cluster("a".to_owned()), class, preempted: CancellationToken::new() }
    }

    fn writer() -> KubeWriter {
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        KubeWriter::new(Client::try_from(config).unwrap(), "test", std::time::Duration::from_secs(1))
    }

    #[tokio::test]
    async fn a_preempted_stage_stops_before_its_first_write_and_is_urgent_after_it() {
        let writer = writer();
        for class in [Urgency::Fresh, Urgency::Rest] {
            let work = work(class);
            let (before, started) = (RequestPriority::of(&work), RequestPriority::of(&work));
            assert!(before.permit(&writer).await.is_some() && started.permit(&writer).await.is_some());
            started.start();
            work.preempted.cancel();
            assert!(before.permit(&writer).await.is_none(), "{class:?}");
            assert!(started.permit(&writer).await.is_some(), "{class:?}");
        }
    }

    #[tokio::test]
    async fn a_stage_that_waits_for_a_permit_is_preempted() {
        let writer = writer();
        let mut permits = Vec::new();
        while let Ok(permit) =
            tokio::time::timeout(std::time::Duration::from_millis(20), writer.permit(Priority::Normal)).await
        {
            permits.push(permit);
        }
        let work = work(Urgency::Rest);
        let request_priority = RequestPriority::of(&work);
        let (permit, ()) = tokio::join!(request_priority.permit(&writer), async { work.preempted.cancel() });
        assert!(permit.is_none());
    }

    #[tokio::test]
    async fn an_urgent_stage_is_not_preempted() {
        let (writer, work) = (writer(), work(Urgency::Urgent));
        work.preempted.cancel();
        assert!(RequestPriority::of(&work).permit(&writer).await.is_some());
        assert!(RequestPriority::normal().permit(&writer).await.is_some());
    }
}
