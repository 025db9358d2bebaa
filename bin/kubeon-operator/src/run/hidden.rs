//! Clusters for which nothing is decided, because what is in their namespace cannot be listed: people are told.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubeon_operations::business::refused;
use kubeon_operations::{Notice, Seen, Subject};

use crate::carry;
use crate::shared::Shared;
use crate::tempo::Tempo;

/// Between two looks at what is held.
const PAUSE: Duration = Duration::from_secs(5);

/// Tells of each in its status and by an event, once while it stays so, until it is dropped. Turns do not: for them such an
/// object is one that cannot be read.
pub(super) async fn tell(shared: &Shared) {
    loop {
        for (object, why) in shared.world.held() {
            tell_of(shared, &Subject::Business(Seen::Is(object)), &why).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn tell_of(shared: &Shared, subject: &Subject, why: &str) {
    let Some((about, uid)) = subject.target() else { return };
    let Some(write) = refused(subject, why, Timestamp::now()) else { return };
    let (with, text) = (write.target.clone(), why.to_owned());
    let told = Notice { about, with, uid, warning: true, reason: "Held", text };
    if carry::carry(shared, vec![(write, vec![told])], &Tempo::calm()).await.is_err() {
        tracing::debug!(why, "the status is not written; it is tried again");
    }
}
