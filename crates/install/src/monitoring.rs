//! Alert rules and a dashboard, as files.

/// Files below `deploy/monitoring/`: their path there and their text.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    Vec::new()
}
