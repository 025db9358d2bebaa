//! The route tables, and the form of answers.

use std::collections::{BTreeMap, VecDeque};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

/// A code and a message.
pub(super) type ApiFailure = (&'static str, String);

/// A route in a table of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudRoute {
    /// The network.
    pub destination: String,
    /// The address or the instance that gets its packets.
    pub next_hop: String,
    /// What was written beside it.
    pub description: String,
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) tables: BTreeMap<String, BTreeMap<u64, CloudRoute>>,
    last_id: u64,
    /// Codes with which the next requests fail.
    pub(super) failures: VecDeque<&'static str>,
    /// The actions that were asked for and signed correctly.
    pub(super) actions: Vec<String>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl Tables {
    pub(super) fn insert(&mut self, table: &str, route: CloudRoute) {
        self.last_id += 1;
        let id = self.last_id;
        self.tables.entry(table.to_owned()).or_default().insert(id, route);
    }
}

pub(super) fn json(status: StatusCode, value: &serde_json::Value) -> Response {
    (status, [("content-type", "application/json")], Bytes::from(value.to_string())).into_response()
}
