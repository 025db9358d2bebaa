//! What a collector is sent, by a real connection.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

use std::time::{Duration, SystemTime};

use kubeon_envtest::Collector;
use kubeon_traces::{Span, TraceParent, Traces};

const TIMEOUT: Duration = Duration::from_secs(20);

fn span(place: TraceParent, parent: Option<TraceParent>, name: &'static str) -> Span {
    let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    let (ended, about) = (begun + Duration::from_millis(1500), vec![("host.name", "h1".to_owned())]);
    Span { place, parent, name, begun, ended, about, failure: None }
}

#[test]
fn spans_arrive_with_their_place_their_time_and_why_they_failed() {
    let collector = Collector::start().unwrap();
    let traces = Traces::start("a-service", &collector.url()).unwrap();
    let root: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let child = root.child();
    // A child may be told before what it is part of.
    traces.tell(Span { failure: Some("the disk is full".into()), ..span(child, Some(root), "step") });
    traces.tell(span(root, None, "operation"));
    traces.end().unwrap();
    let sent = collector.until(TIMEOUT, |sent| sent.len() == 2);
    assert_eq!(sent.len(), 2, "{sent:?}");
    let (step, operation) = (&sent[0], &sent[1]);
    assert_eq!((operation.name.as_str(), operation.parent.as_str()), ("operation", ""));
    assert_eq!(format!("00-{}-{}-01", operation.trace, operation.span), root.to_string());
    assert_eq!(format!("00-{}-{}-01", step.trace, step.span), child.to_string());
    assert_eq!((&step.parent, &step.service), (&operation.span, &"a-service".to_owned()));
    assert_eq!((step.took, step.says("host.name")), (Duration::from_millis(1500), Some("h1")));
    assert_eq!(step.failure.as_deref(), Some("the disk is full"));
}

#[test]
fn nothing_waits_for_a_collector_that_is_not_there_but_the_end_which_says_so() {
    let traces = Traces::start("a-service", "http://127.0.0.1:1").unwrap();
    let root: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let begun = std::time::Instant::now();
    for _ in 0..10_000 {
        traces.tell(span(root.child(), Some(root), "step"));
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let ended = traces.end();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(ended.is_err());
}
