//! The meta cluster: client, watches, writes that are tried again, events, lease.
