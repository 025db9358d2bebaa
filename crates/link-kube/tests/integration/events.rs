//! Events in a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use kubeon_envtest::TestApiServer;
use kubeon_link_kube::{EventRecord, EventRecorder, KubeWriter};
use tokio::time::{Instant, sleep};

const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn events_with_other_texts_are_separate_and_repeated_events_are_counted() {
    let server = TestApiServer::shared().await.unwrap();
    let (client, namespace) = (server.client().await.unwrap(), server.namespace().await.unwrap());
    let writer = KubeWriter::new(client.clone(), "kubeon-operator", TIMEOUT);
    let events = EventRecorder::start(client.clone(), &writer, "kubeon-operator", "one");
    for text in ["Job a is created", "Job b is created", "Job a is created"] {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some("shop".to_owned()),
            namespace: Some(namespace.clone()),
            ..ObjectReference::default()
        };
        events.record(EventRecord { about, warning: false, reason: "JobMade", text: text.to_owned() });
    }
    let summary = |event: &Event| {
        let count = event.series.as_ref().map_or(1, |series| series.count);
        (event.reason.clone().unwrap(), event.note.clone().unwrap(), count)
    };
    let wanted = [("Job a is created", 2), ("Job b is created", 1)]
        .map(|(text, count)| ("JobMade".to_owned(), text.to_owned(), count));
    let (events, begin) = (Api::<Event>::namespaced(client, &namespace), Instant::now());
    loop {
        let mut found: Vec<_> =
            events.list(&ListParams::default()).await.unwrap().items.iter().map(summary).collect();
        found.sort();
        if found == wanted {
            return;
        }
        assert!(begin.elapsed() < TIMEOUT, "{found:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A recorder that shuts down sends its waiting events first.
#[tokio::test]
async fn events_that_were_recorded_before_shutdown_are_sent() {
    let server = TestApiServer::shared().await.unwrap();
    let (client, namespace) = (server.client().await.unwrap(), server.namespace().await.unwrap());
    let writer = KubeWriter::new(client.clone(), "kubeon-operator", TIMEOUT);
    let events = EventRecorder::start(client.clone(), &writer, "kubeon-operator", "one");
    for at in 0..20 {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some(format!("shop-{at}")),
            namespace: Some(namespace.clone()),
            ..ObjectReference::default()
        };
        events.record(EventRecord {
            about,
            warning: false,
            reason: "JobMade",
            text: format!("Job {at} is created"),
        });
    }
    assert!(events.flush(Duration::ZERO).await > 0, "events are not sent at once");
    assert_eq!(events.flush(TIMEOUT).await, 0);
    let events = Api::<Event>::namespaced(client, &namespace).list(&ListParams::default()).await.unwrap();
    assert_eq!(events.items.len(), 20);
}
