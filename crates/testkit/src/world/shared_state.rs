//! The state that the world and its ports share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::state::State;

/// The state behind a lock. Clones share it.
#[derive(Clone)]
pub(super) struct SharedState {
    state: Arc<Mutex<State>>,
    /// Counts the changes, so that waiting tasks are woken and need not poll.
    changed: watch::Sender<u64>,
}

impl SharedState {
    pub(super) fn new(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), changed: watch::Sender::new(0) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes every task that waits for a change.
    pub(super) fn notify(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Receives every change from now on. It stays open as long as `self` lives.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
