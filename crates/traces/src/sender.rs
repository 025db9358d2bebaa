//! Spans on their way to the collector.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanId, SpanKind, Status, TraceContextExt as _, TraceId, TracerProvider as _,
};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider};

use crate::post::{LastFailure, Post};
use crate::trace_parent::TraceParent;

/// How long the last spans may take.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
#[error("the collector of traces cannot be used: {0}")]
pub struct TraceError(#[source] opentelemetry_otlp::ExporterBuildError);

/// Some spans were lost; the text says why the last ones were.
#[derive(Debug, thiserror::Error)]
#[error("not all traces were sent: {0}")]
pub struct LostSpans(String);

/// A span that ended.
#[derive(Debug, Clone)]
pub struct Span {
    /// Where it is.
    pub place: TraceParent,
    /// What it is part of; none for a trace's first.
    pub parent: Option<TraceParent>,
    /// What was done, in few words that do not hold names.
    pub name: &'static str,
    /// When it began.
    pub begun: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Names and what else is worth knowing. Never anything secret.
    pub about: Vec<(&'static str, String)>,
    /// Why it did not succeed.
    pub failure: Option<String>,
}

/// Sends spans.
#[derive(Debug, Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    failure: LastFailure,
}

impl Traces {
    /// To the collector at this address, `http://collector:4318`, in the name of this service.
    ///
    /// # Errors
    /// When the address, or what the environment says of headers and timeouts, makes no sense.
    pub fn start(service: &'static str, collector: &str) -> Result<Self, TraceError> {
        let failure = LastFailure::default();
        let address = format!("{}/v1/traces", collector.trim_end_matches('/'));
        let exporter = SpanExporter::builder().with_http().with_endpoint(address);
        let exporter =
            exporter.with_http_client(Post::new(Arc::clone(&failure))).build().map_err(TraceError)?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service))
            .with_id_generator(Given)
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer(service);
        Ok(Self { provider, tracer, failure })
    }

    /// Tells of a span. It is sent with others, later.
    pub fn tell(&self, span: Span) {
        let parent = span
            .parent
            .map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent.context()));
        let about = span.about.into_iter().map(|(key, value)| KeyValue::new(key, value));
        let built = SpanBuilder::from_name(span.name)
            .with_kind(SpanKind::Internal)
            .with_start_time(span.begun)
            .with_attributes(about);
        NEXT.set(Some(span.place));
        let mut told = built.start_with_context(&self.tracer, &parent);
        NEXT.set(None);
        if let Some(failure) = span.failure {
            told.set_status(Status::error(failure));
        }
        told.end_with_timestamp(span.ended.max(span.begun));
    }

    /// Sends what is left, for at most 5 s. It waits on the calling thread.
    ///
    /// # Errors
    /// When something was not taken, now or before.
    pub fn end(&self) -> Result<(), LostSpans> {
        let ended = self.provider.shutdown_with_timeout(LAST_SPANS);
        match self.failure.lock().take() {
            Some(failure) => Err(LostSpans(failure)),
            None => ended.map_err(|error| LostSpans(error.to_string())),
        }
    }
}

/// What the environment says of this process; its name is `service` unless it is said there.
fn resource(service: &'static str) -> Resource {
    let found = Resource::builder().build();
    let name = found.get(&Key::from_static_str("service.name"));
    let named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if named { found } else { Resource::builder().with_service_name(service).build() }
}

thread_local! {
    /// The place of the span that is being made on this thread.
    static NEXT: Cell<Option<TraceParent>> = const { Cell::new(None) };
}

/// Ids that were given out before.
#[derive(Debug)]
struct Given;

impl IdGenerator for Given {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| RandomIdGenerator::default().new_trace_id(), |place| place.trace)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| RandomIdGenerator::default().new_span_id(), |place| place.span)
    }
}
