//! Streams of changes.

use std::io::{BufRead as _, BufReader};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubeon_api::ClusterOperation;
use serde_json::{Value, json};

use crate::support::{EDIT, RestServer, rest};

/// The events of a stream: name and data.
pub(crate) struct EventReader(Receiver<(String, Value)>);

impl EventReader {
    pub(crate) fn open(rest: &RestServer, token: &str, path: &str) -> Self {
        let (agent, url, bearer) = (rest.agent(None), rest.url(path), format!("Bearer {token}"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let request = agent.get(&url).header("authorization", bearer);
            let response = request.header("accept", "text/event-stream").call().unwrap();
            assert_eq!(response.status().as_u16(), 200);
            let mut name = String::new();
            for line in BufReader::new(response.into_body().into_reader()).lines() {
                let Ok(line) = line else { return };
                if let Some(event) = line.strip_prefix("event: ") {
                    event.clone_into(&mut name);
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let data = serde_json::from_str(data).unwrap_or(Value::String(data.to_owned()));
                    if sender.send((name.clone(), data)).is_err() {
                        return;
                    }
                }
            }
        });
        Self(receiver)
    }

    /// All further events until the stream ends, which must be in time.
    pub(crate) fn until_end(&self, limit: Duration) -> Vec<(String, Value)> {
        let end = std::time::Instant::now() + limit;
        let mut events = Vec::new();
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match self.0.recv_timeout(left) {
                Ok(event) => events.push(event),
                Err(RecvTimeoutError::Disconnected) => return events,
                Err(RecvTimeoutError::Timeout) => panic!("the stream has not ended in time: {events:?}"),
            }
        }
    }

    /// The next event for which `wanted` holds.
    pub(crate) fn next(&self, limit: Duration, wanted: impl Fn(&str, &Value) -> bool) -> (String, Value) {
        let end = std::time::Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            let (name, data) = self.0.recv_timeout(left).expect("no such event in time");
            if wanted(&name, &data) {
                return (name, data);
            }
        }
    }
}

pub(crate) const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_all_objects_and_then_every_change() {
    let rest = rest().await;
    let token = rest.account("team-a", "watcher", EDIT).await;
    rest.cluster_in("team-a", "watched-1", "Running").await;
    let path = "/api/v2/namespaces/team-a/clusters/watched-1";
    while rest.send(Some(&token), "GET", path, "").await.0 != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let events = EventReader::open(rest, &token, "/api/v2/watch/clusters?namespace=team-a");
    let of = |name: &'static str| move |_: &str, data: &Value| data["name"] == name;
    assert_eq!(events.next(SOON, of("watched-1")).0, "added");
    events.next(SOON, |name, _| name == "synced");
    rest.cluster_in("team-b", "watched-b", "").await;
    rest.cluster_in("team-a", "watched-2", "").await;
    let (kind, _) = events.next(SOON, |_, data| {
        assert_ne!(data["namespace"], "team-b", "events of another namespace are not sent");
        data["name"] == "watched-2"
    });
    assert_eq!(kind, "added");
    rest.set_status("team-a", "watched-2", json!({"phase": "Creating"})).await;
    let (kind, data) =
        events.next(SOON, |_, data| data["name"] == "watched-2" && data["phase"] == "Creating");
    assert!(kind == "modified" && !data.to_string().contains("hunter2"), "{data}");
    let clusters = rest.clusters("team-a").await;
    clusters.delete("watched-2", &DeleteParams::default()).await.unwrap();
    let unlocked = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    clusters.patch("watched-2", &PatchParams::default(), &unlocked).await.unwrap();
    events.next(SOON, |name, data| name == "deleted" && data["name"] == "watched-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sees_the_clusters_of_a_namespace_sees_changes_of_their_operations() {
    let rest = rest().await;
    let token = rest.account("team-a", "operations-watcher", &["watch"]).await;
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    let create = async |name: &str, namespace: &str| {
        let object = json!({
            "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
            "metadata": {"name": name, "labels": {"kubeon.io/cluster-namespace": namespace, "kubeon.io/cluster-uid": "u"}},
            "spec": {"cluster": "streamed", "actionType": "kubeon", "action": "creating", "image": "runner"},
        });
        let object: ClusterOperation = serde_json::from_value(object).unwrap();
        operations.create(&PostParams::default(), &object).await.unwrap();
    };
    let events = EventReader::open(rest, &token, "/api/v2/watch/operations?namespace=team-a");
    events.next(SOON, |name, _| name == "synced");
    create("streamed-b", "team-b").await;
    create("streamed-a", "team-a").await;
    let own = |data: &Value| {
        assert_ne!(data["namespace"], "team-b", "events of another namespace are not sent");
        data["name"] == "streamed-a"
    };
    assert_eq!(events.next(SOON, |_, data| own(data)).0, "added");
    let status = Patch::Merge(json!({"status": {"status": "Running"}}));
    operations.patch_status("streamed-a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(events.next(SOON, |_, data| own(data) && data["status"] == "Running").0, "modified");
    operations.delete("streamed-b", &DeleteParams::default()).await.unwrap();
    operations.delete("streamed-a", &DeleteParams::default()).await.unwrap();
    events.next(SOON, |name, data| own(data) && name == "deleted");
    for path in ["/api/v2/watch/operations?namespace=team-b", "/api/v2/watch/operations"] {
        let refused = rest.send(Some(&token), "GET", path, "").await;
        assert_eq!(refused.0, 403, "{path}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_the_reader_loses_the_right() {
    let rest = rest().await;
    let token = rest.account("team-b", "dismissed", EDIT).await;
    let events = EventReader::open(rest, &token, "/api/v2/watch/clusters?namespace=team-b");
    events.next(SOON, |name, _| name == "synced");
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        Api::namespaced(rest.admin().await, "team-b");
    bindings.delete("dismissed", &DeleteParams::default()).await.unwrap();
    // The rights are checked every 10 s and remembered for 10 s.
    let (_, why) = events.next(Duration::from_secs(40), |name, _| name == "end");
    assert!(why.as_str().unwrap().contains("may not watch"), "{why}");
}
