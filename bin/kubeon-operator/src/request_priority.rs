//! When a turn's requests may go, and whether they still should.

use std::sync::atomic::{AtomicBool, Ordering};

use kubeon_link_kube::{KubeWriter, Priority, RequestPermit};
use tokio_util::sync::CancellationToken;

use crate::queue::{QueueItem, Urgency};

/// Of one set of writes, or of reads. What nobody waits for stops when its lane is overtaken by one that somebody waits for;
/// writes that have begun hurry to their end instead, for what they tell belongs together.
pub(crate) struct RequestPriority {
    priority: Priority,
    preempted: Option<CancellationToken>,
    begun: AtomicBool,
}

impl RequestPriority {
    /// As a lane's class wants it.
    pub(crate) fn of(work: &QueueItem) -> Self {
        let (priority, preempted) = match work.class {
            Urgency::Urgent => (Priority::High, None),
            Urgency::Fresh => (Priority::Normal, Some(work.preempted.clone())),
            Urgency::Rest => (Priority::Low, Some(work.preempted.clone())),
        };
        Self { priority, preempted, begun: AtomicBool::new(false) }
    }

    /// In line, to the end.
    pub(crate) fn normal() -> Self {
        Self { priority: Priority::Normal, preempted: None, begun: AtomicBool::new(false) }
    }

    /// Waits until a request may go; `None` when it should not go any more.
    pub(crate) async fn permit<'h>(&self, writer: &'h KubeWriter) -> Option<RequestPermit<'h>> {
        let Some(preempted) = &self.preempted else { return Some(writer.permit(self.priority).await) };
        tokio::select! {
            biased;
            () = preempted.cancelled() => {}
            permit = writer.permit(self.priority) => return Some(permit),
        }
        if self.begun.load(Ordering::Relaxed) { Some(writer.permit(Priority::High).await) } else { None }
    }

    /// A write goes: the others of its set follow.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
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
    async fn what_is_overtaken_stops_before_it_begins_and_hurries_afterwards() {
        let writer = writer();
        for class in [Urgency::Fresh, Urgency::Rest] {
            let work = work(class);
            let (before, begun) = (RequestPriority::of(&work), RequestPriority::of(&work));
            assert!(before.permit(&writer).await.is_some() && begun.permit(&writer).await.is_some());
            begun.begin();
            work.preempted.cancel();
            assert!(before.permit(&writer).await.is_none(), "{class:?}");
            assert!(begun.permit(&writer).await.is_some(), "{class:?}");
        }
    }

    #[tokio::test]
    async fn one_that_waits_in_line_is_overtaken_too() {
        let writer = writer();
        let mut line = Vec::new();
        while let Ok(permit) =
            tokio::time::timeout(std::time::Duration::from_millis(20), writer.permit(Priority::Normal)).await
        {
            line.push(permit);
        }
        let work = work(Urgency::Rest);
        let request_priority = RequestPriority::of(&work);
        let (left, ()) = tokio::join!(request_priority.permit(&writer), async { work.preempted.cancel() });
        assert!(left.is_none());
    }

    #[tokio::test]
    async fn one_that_somebody_waits_for_goes_on() {
        let (writer, work) = (writer(), work(Urgency::Urgent));
        work.preempted.cancel();
        assert!(RequestPriority::of(&work).permit(&writer).await.is_some());
        assert!(RequestPriority::normal().permit(&writer).await.is_some());
    }
}
