//! A collector of traces: an HTTP server that records the spans that it receives.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use parking_lot::{Condvar, Mutex};
use prost::Message as _;

/// A span that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// The service that sent it.
    pub service: String,
    /// Its trace, 32 hexadecimal digits.
    pub trace: String,
    /// Its own id, 16 hexadecimal digits.
    pub span: String,
    /// The id of its parent span; empty for none.
    pub parent: String,
    /// The name of the span.
    pub name: String,
    /// Its duration.
    pub duration: Duration,
    /// Its attributes.
    pub attributes: Vec<(String, String)>,
    /// The error message of a failed span.
    pub failure: Option<String>,
}

impl ReceivedSpan {
    /// The attribute with this key.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }
}

type Shared = Arc<(Mutex<Vec<ReceivedSpan>>, Condvar)>;

/// A running collector. It listens until the process ends.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    spans: Shared,
}

impl Collector {
    /// Listens on loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, spans) = (listener.local_addr()?, Shared::default());
        let received = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let received = Arc::clone(&received);
                std::thread::spawn(move || serve(stream, &received));
            }
        });
        Ok(Self { address, spans })
    }

    /// The value for `$OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the received spans as soon as `wanted` accepts them, at the latest after `timeout`.
    #[must_use]
    pub fn until(&self, timeout: Duration, wanted: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let (spans, changed) = &*self.spans;
        let end = Instant::now() + timeout;
        let mut received = spans.lock();
        while !wanted(&received) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            changed.wait_for(&mut received, left);
        }
        received.clone()
    }
}

fn serve(stream: TcpStream, received: &Shared) {
    let Ok(mut answer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Ok(Some(body)) = request(&mut reader) {
        let Ok(sent) = ExportTraceServiceRequest::decode(&body[..]) else { return };
        received.0.lock().extend(spans(sent));
        received.1.notify_all();
        let response =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if answer.write_all(response).is_err() {
            return;
        }
    }
}

/// The body of the next request; `None` at the end of the connection.
fn request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<u8>>> {
    let (mut length, mut line, mut first) = (0, String::new(), true);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if std::mem::take(&mut first) && !line.starts_with("POST /v1/traces ") {
            return Err(io::Error::other(line));
        }
        let lower = line.trim().to_ascii_lowercase();
        if let Some(text) = lower.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(io::Error::other)?;
        }
        if lower.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}

fn spans(sent: ExportTraceServiceRequest) -> Vec<ReceivedSpan> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut all = Vec::new();
    for resource in sent.resource_spans {
        let about = resource.resource.unwrap_or_default().attributes;
        let service = about.into_iter().find(|pair| pair.key == "service.name").map(|pair| text(pair.value));
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let status = span.status.unwrap_or_default();
            all.push(ReceivedSpan {
                service: service.clone().unwrap_or_default(),
                trace: hex(&span.trace_id),
                span: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                duration: Duration::from_nanos(
                    span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
                ),
                attributes: span.attributes.into_iter().map(|pair| (pair.key, text(pair.value))).collect(),
                failure: (status.code == 2).then_some(status.message),
            });
        }
    }
    all
}

fn text(value: Option<opentelemetry_proto::tonic::common::v1::AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        _ => String::new(),
    }
}
