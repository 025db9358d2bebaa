//! The state that the proxy and its connections share.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::request::ProxyRequest;
use super::rule::{ActiveRule, RuleId};

/// The recorded requests, the rules, and whether connections are possible.
#[derive(Debug, Default)]
pub(super) struct ProxyState {
    records: Mutex<ProxyRecords>,
    link: watch::Sender<LinkState>,
}

/// The recorded requests and the rules.
#[derive(Debug, Default)]
pub(super) struct ProxyRecords {
    pub(super) requests: Vec<ProxyRequest>,
    pub(super) rules: BTreeMap<RuleId, ActiveRule>,
    /// The number of rules that were ever added.
    pub(super) rules_added: usize,
}

/// Whether connections are possible, and how often they were cut.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkState {
    pub(super) cuts: u64,
    pub(super) down: bool,
}

impl ProxyState {
    pub(super) fn records(&self) -> MutexGuard<'_, ProxyRecords> {
        self.records.lock()
    }

    /// Follows the state of the link.
    pub(super) fn link(&self) -> watch::Receiver<LinkState> {
        self.link.subscribe()
    }

    /// Closes all connections; with `down` new ones are refused until [`ProxyState::restore`].
    pub(super) fn cut(&self, down: bool) {
        self.link.send_modify(|link| *link = LinkState { cuts: link.cuts + 1, down });
    }

    /// Accepts connections again.
    pub(super) fn restore(&self) {
        self.link.send_modify(|link| link.down = false);
    }
}
