//! The requests to a collector, over a real connection.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use std::time::{Duration, SystemTime};

use kubeon_envtest::Collector;
use kubeon_traces::{Span, TraceParent, Traces};

const TIMEOUT: Duration = Duration::from_secs(20);

fn span(ids: TraceParent, parent: Option<TraceParent>, name: &'static str) -> Span {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    let (ended, attributes) = (started + Duration::from_millis(1500), vec![("host.name", "h1".to_owned())]);
    Span { ids, parent, name, started, ended, attributes, failure: None }
}

#[test]
fn spans_arrive_with_ids_times_and_failures() {
    let collector = Collector::start().unwrap();
    let traces = Traces::start("a-service", &collector.url()).unwrap();
    let root: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let child = root.child();
    // A child may be reported before its parent.
    traces.send(Span { failure: Some("the disk is full".into()), ..span(child, Some(root), "step") });
    traces.send(span(root, None, "operation"));
    traces.end().unwrap();
    let sent = collector.until(TIMEOUT, |sent| sent.len() == 2);
    assert_eq!(sent.len(), 2, "{sent:?}");
    let (step, operation) = (&sent[0], &sent[1]);
    assert_eq!((operation.name.as_str(), operation.parent.as_str()), ("operation", ""));
    assert_eq!(format!("00-{}-{}-01", operation.trace, operation.span), root.to_string());
    assert_eq!(format!("00-{}-{}-01", step.trace, step.span), child.to_string());
    assert_eq!((&step.parent, &step.service), (&operation.span, &"a-service".to_owned()));
    assert_eq!((step.duration, step.attribute("host.name")), (Duration::from_millis(1500), Some("h1")));
    assert_eq!(step.failure.as_deref(), Some("the disk is full"));
}

#[test]
fn an_unreachable_collector_delays_and_fails_only_the_end() {
    let traces = Traces::start("a-service", "http://127.0.0.1:1").unwrap();
    let root: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let started = std::time::Instant::now();
    for _ in 0..10_000 {
        traces.send(span(root.child(), Some(root), "step"));
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let started = std::time::Instant::now();
    let ended = traces.end();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(ended.is_err());
}
