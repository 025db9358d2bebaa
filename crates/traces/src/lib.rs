//! Traces: what took how long, from an object to a step on a host, sent to an OpenTelemetry collector.
//!
//! ```text
//!   operation, the trace is its UID ─┬─ turn ── write …          told by the operator
//!                                    └─ run ─── stage ── step     told by the runner, under $TRACEPARENT
//! ```
//!
//! A span is told when it ended. Its place is known before, so that what is under it may be told first, also by another
//! process. The trace's id is the operation's UID: an operator that was started again goes on with the same trace.
//!
//! What the SDK reads of the environment (headers, timeouts, sampler, resource) is as OpenTelemetry says.
//! Nothing waits for the collector: spans go in batches from a thread of their own, and are dropped when it is too slow.

mod post;
mod sender;
mod trace_parent;

pub use sender::{LostSpans, Span, TraceError, Traces};
pub use trace_parent::{InvalidTraceParent, TraceParent};
