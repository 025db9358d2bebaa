//! Sends spans to the collector.

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

/// The time limit for sending the last spans.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
#[error("the collector of traces cannot be used: {0}")]
pub struct TraceError(#[source] opentelemetry_otlp::ExporterBuildError);

/// Some spans were lost; the text is the cause of the last failure.
#[derive(Debug, thiserror::Error)]
#[error("not all traces were sent: {0}")]
pub struct LostSpans(String);

/// A span that ended.
#[derive(Debug, Clone)]
pub struct Span {
    /// The ids of the span and its trace.
    pub ids: TraceParent,
    /// The ids of the parent span; `None` for the root of a trace.
    pub parent: Option<TraceParent>,
    /// The kind of work, in a few words and without names of objects.
    pub name: &'static str,
    /// When it began.
    pub started: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Attributes, such as names. They never contain a secret.
    pub attributes: Vec<(&'static str, String)>,
    /// The cause of a failure; `None` when the work succeeded.
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
    /// Starts sending to the collector at this address, such as `http://collector:4318`, with this service name.
    ///
    /// # Errors
    /// When the address or the settings in the environment are invalid.
    pub fn start(service: &'static str, collector: &str) -> Result<Self, TraceError> {
        let failure = LastFailure::default();
        let address = format!("{}/v1/traces", collector.trim_end_matches('/'));
        let exporter = SpanExporter::builder().with_http().with_endpoint(address);
        let exporter =
            exporter.with_http_client(Post::new(Arc::clone(&failure))).build().map_err(TraceError)?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service))
            .with_id_generator(PresetIds)
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer(service);
        Ok(Self { provider, tracer, failure })
    }

    /// Queues a span. It is sent later in a batch.
    pub fn send(&self, span: Span) {
        let parent = span
            .parent
            .map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent.context()));
        let attributes = span.attributes.into_iter().map(|(key, value)| KeyValue::new(key, value));
        let built = SpanBuilder::from_name(span.name)
            .with_kind(SpanKind::Internal)
            .with_start_time(span.started)
            .with_attributes(attributes);
        NEXT.set(Some(span.ids));
        let mut otel_span = built.start_with_context(&self.tracer, &parent);
        NEXT.set(None);
        if let Some(failure) = span.failure {
            otel_span.set_status(Status::error(failure));
        }
        otel_span.end_with_timestamp(span.ended.max(span.started));
    }

    /// Sends the remaining spans, for at most 5 s. It blocks the calling thread.
    ///
    /// # Errors
    /// When a span could not be sent, now or before.
    pub fn end(&self) -> Result<(), LostSpans> {
        let ended = self.provider.shutdown_with_timeout(LAST_SPANS);
        match self.failure.lock().take() {
            Some(failure) => Err(LostSpans(failure)),
            None => ended.map_err(|error| LostSpans(error.to_string())),
        }
    }
}

/// The resource from the environment; `service` is the default of its service name.
fn resource(service: &'static str) -> Resource {
    let found = Resource::builder().build();
    let name = found.get(&Key::from_static_str("service.name"));
    let named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if named { found } else { Resource::builder().with_service_name(service).build() }
}

thread_local! {
    /// The ids of the span that is being created on this thread.
    static NEXT: Cell<Option<TraceParent>> = const { Cell::new(None) };
}

/// Returns the ids in [`NEXT`], which were generated before.
#[derive(Debug)]
struct PresetIds;

impl IdGenerator for PresetIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| RandomIdGenerator::default().new_trace_id(), |ids| ids.trace)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| RandomIdGenerator::default().new_span_id(), |ids| ids.span)
    }
}
