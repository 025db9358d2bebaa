//! Clusters for which nothing is decided, because what is in their namespace cannot be listed: people are told.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubeon_operations::business::refused;
use kubeon_operations::{Notice, Seen, Subject};

use crate::carry;
use crate::shared::Shared;
use crate::tempo::Tempo;

/// Before what could not be told is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Tells of each in its status and by an event, once while it stays so, until it is dropped. Turns do not: for them such an
/// object is one that cannot be read.
pub(super) async fn tell(shared: &Shared) {
    loop {
        let mut all_told = true;
        for (object, why) in shared.world.held() {
            all_told &= is_told(shared, &Subject::Business(Seen::Is(object)), &why).await;
        }
        let held_anew = shared.world.held_anew();
        if all_told {
            held_anew.await;
        } else {
            let _ = tokio::time::timeout(PAUSE, held_anew).await;
        }
    }
}

/// Tells of an object, unless its status says so already. Whether that went well.
async fn is_told(shared: &Shared, subject: &Subject, why: &str) -> bool {
    let Some((about, uid)) = subject.target() else { return true };
    let Some(write) = refused(subject, why, Timestamp::now()) else { return true };
    let (with, text) = (write.target.clone(), why.to_owned());
    let told = Notice { about, with, uid, warning: true, reason: "Held", text };
    let is_told = carry::carry(shared, vec![(write, vec![told])], &Tempo::calm()).await.is_ok();
    if !is_told {
        tracing::debug!(why, "the status is not written; it is tried again");
    }
    is_told
}
