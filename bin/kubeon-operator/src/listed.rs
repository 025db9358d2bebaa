//! Whether all that there is was listed: before that, what is not known may still be there.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many watches have listed what there is.
#[derive(Default)]
pub(crate) struct Listed {
    open: AtomicUsize,
    changed: Notify,
}

impl Listed {
    /// A watch begins.
    pub fn begun(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// A watch has listed what there is.
    pub fn ended(&self) {
        if self.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.changed.notify_waiters();
        }
    }

    /// Waits until every watch has listed what there is.
    pub async fn all(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_done() {
                return;
            }
            changed.await;
        }
    }

    /// Whether every watch has listed what there is.
    pub fn is_done(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }
}
