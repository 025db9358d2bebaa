//! Admission: what a change of an object may not do, and the webhook that says so.
