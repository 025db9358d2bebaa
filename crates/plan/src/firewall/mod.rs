//! The packets that the hosts of a cluster send to each other, and what their firewalls do with them.

mod closed;
mod opening;

pub(crate) use closed::Closed;
pub(crate) use opening::{API, PortOpening, opening_for_parts, openings, pod_links};
