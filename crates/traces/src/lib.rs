//! Traces of operations, from the object to the step on a host, sent to an OpenTelemetry collector.
//!
//! ```text
//!   operation, the trace is its UID ─┬─ reconcile                 sent by the operator
//!                                    └─ run ─── stage ── step     sent by the runner, under $TRACEPARENT
//! ```
//!
//! A span is reported after it ended. Its ids are known before, so that its children can be reported first, also by another
//! process. The trace id is the UID of the operation, so a restarted operator continues the same trace.
//!
//! The SDK reads its standard environment variables (headers, timeouts, sampler, resource). Nothing waits for the collector: a
//! separate thread sends spans in batches and drops them when the collector is too slow.

mod post;
mod sender;
mod trace_parent;

pub use sender::{LostSpans, Span, TraceError, Traces};
pub use trace_parent::{InvalidTraceParent, TraceParent};
