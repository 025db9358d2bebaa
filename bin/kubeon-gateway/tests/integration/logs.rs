//! Logs of operations: text and server-sent events, of pods that run and of stored copies.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubeon_api::ClusterOperation;
use serde_json::{Value, json};

use crate::kubelet::FakeKubelet;
use crate::streams::{EventReader, SOON};
use crate::support::{EDIT, RestServer, eventually, rest};

const MINUTES: Duration = Duration::from_secs(300);

/// An operation of team-a whose Job has the same name, and a caller who may read its log.
pub(crate) async fn operation(rest: &RestServer, name: &str, caller: &str) -> (FakeKubelet, String, String) {
    let token = rest.account("team-a", caller, EDIT).await;
    let kubelet = FakeKubelet::start(rest, ("team-a", caller), name).await;
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    let object = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "labels": {"kubeon.io/cluster-namespace": "team-a", "kubeon.io/cluster-uid": "u"}},
        "spec": {"cluster": name, "actionType": "kubeon", "action": "creating", "image": "runner"},
    });
    let object: ClusterOperation = serde_json::from_value(object).unwrap();
    operations.create(&PostParams::default(), &object).await.unwrap();
    let job = json!({"namespace": "team-a", "name": name});
    let status = Patch::Merge(json!({"status": {"status": "Running", "jobRef": job}}));
    operations.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    let path = format!("/api/v2/operations/{name}");
    eventually(rest, &token, &path, |answer| answer.1["job"].is_string()).await;
    (kubelet, token, format!("{path}/logs"))
}

fn lines(texts: &[&str]) -> Vec<(String, Value)> {
    texts.iter().map(|text| ("line".to_owned(), json!(text))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_from_its_end_or_from_a_time() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-parts", "log-parts").await;
    kubelet.write_before(MINUTES, "old");
    for line in ["first", "second", "last"] {
        kubelet.write(line);
    }
    for (query, expected) in [
        ("", vec!["old", "first", "second", "last"]),
        ("?tail=2", vec!["second", "last"]),
        ("?since=60", vec!["first", "second", "last"]),
        ("?since=60&tail=1", vec!["last"]),
        ("?since=60&tail=50", vec!["first", "second", "last"]),
        ("?since=600&tail=4", vec!["old", "first", "second", "last"]),
        ("?tail=0", vec![]),
    ] {
        let path = format!("{path}{query}");
        let text: String = expected.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(rest.send(Some(&token), "GET", &path, "").await, (200, Value::String(text)), "{query}");
        let events = EventReader::open(rest, &token, &path);
        assert_eq!(events.until_end(SOON), lines(&expected), "{query}");
    }
    for query in ["?tail=-1", "?since=x", "?follow=maybe", "?lines=3"] {
        let refused = rest.send(Some(&token), "GET", &format!("{path}{query}"), "").await;
        assert_eq!(refused.0, 400, "{query}: {refused:?}");
    }
    let foreigner = rest.account("team-b", "log-foreigner", EDIT).await;
    let refused = rest.send(Some(&foreigner), "GET", &path, "").await;
    assert!(refused.0 == 403 && !refused.1.to_string().contains("second"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_has_later_lines_and_ends_with_its_job() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-live", "log-live").await;
    kubelet.write_before(MINUTES, "old");
    kubelet.write("begun");
    let all = EventReader::open(rest, &token, &format!("{path}?follow=true"));
    let end = EventReader::open(rest, &token, &format!("{path}?follow=true&tail=1&since=60"));
    let any = |_: &str, _: &Value| true;
    assert_eq!(all.next(SOON, any), ("line".to_owned(), json!("old")));
    for events in [&all, &end] {
        assert_eq!(events.next(SOON, any), ("line".to_owned(), json!("begun")));
    }
    kubelet.write("written later");
    for events in [&all, &end] {
        assert_eq!(events.next(SOON, any), ("line".to_owned(), json!("written later")));
    }
    kubelet.write("done");
    kubelet.end();
    for events in [all, end] {
        assert_eq!(events.until_end(SOON), lines(&["done"]));
    }
}

/// The end of a line that was cut.
const CUT: &str = " [kubeon: the rest of this line is left out]";
const LONGEST_LINE: usize = 64 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_is_cut_and_the_log_goes_on() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-long", "log-long").await;
    kubelet.write(&"x".repeat(100_000));
    kubelet.write("next");
    let cut = format!("{}{CUT}", "x".repeat(LONGEST_LINE));
    let text = Value::String(format!("{cut}\nnext\n"));
    assert_eq!(rest.send(Some(&token), "GET", &path, "").await, (200, text));
    let events = EventReader::open(rest, &token, &path);
    assert_eq!(events.until_end(SOON), lines(&[&cut, "next"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_one_endless_line_ends_and_says_how_to_go_on() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-endless", "log-endless").await;
    kubelet.write_without_end("y".repeat(1_000_000));
    let events = EventReader::open(rest, &token, &format!("{path}?follow=true"));
    let events = events.until_end(Duration::from_secs(60));
    let cut = format!("{}{CUT}", "y".repeat(LONGEST_LINE));
    let (kind, why) = &events[1];
    assert!(events.len() == 2 && events[..1] == lines(&[&cut]), "{}", events.len());
    let why = why.as_str().unwrap();
    assert!(kind == "end" && why.contains("16 MiB") && why.contains("since=SECONDS"), "{kind}: {why}");
    // Text has the same at its end, in both versions.
    let text = format!("{cut}\n[kubeon: {why}]\n");
    let answer = rest.send(Some(&token), "GET", &path, "").await;
    assert_eq!(answer, (200, Value::String(text.clone())));
    rest.cluster_in("team-a", "endless", "Creating").await;
    rest.set_status("team-a", "endless", json!({"jobName": "logged-endless"})).await;
    let answer = rest.send(Some(&token), "GET", "/api/v1/region/default/cluster/endless/logs", "").await;
    assert_eq!(answer, (200, json!({"code": "OK", "message": text})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_log_replaces_that_of_a_deleted_pod() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-before", "log-before").await;
    kubelet.write("first");
    kubelet.delete_pod().await;
    let absent = rest.send(Some(&token), "GET", &path, "").await;
    assert!(absent.0 == 404 && absent.1["detail"].as_str().unwrap().contains("logged-before"), "{absent:?}");
    let maps: Api<ConfigMap> = Api::namespaced(rest.admin().await, "team-a");
    let stored: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "logged-before-log"}, "data": {"log": "first\nsecond\nlast\n"},
    }))
    .unwrap();
    maps.create(&PostParams::default(), &stored).await.unwrap();
    for (query, expected) in [
        ("", vec!["first", "second", "last"]),
        ("?tail=1", vec!["last"]),
        ("?since=600", vec!["first", "second", "last"]),
        // The Job has ended: no line follows.
        ("?follow=true&tail=2", vec!["second", "last"]),
    ] {
        let events = EventReader::open(rest, &token, &format!("{path}{query}"));
        assert_eq!(events.until_end(SOON), lines(&expected), "{query}");
    }
}
