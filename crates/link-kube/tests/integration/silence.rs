//! An API server that accepts a request and does not answer.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kubeon_envtest::{FaultProxy, FaultRule, ProxyFault, RequestMatcher, TestApiServer};
use kubeon_link_kube::{Event, KubeWriter, LinkError, Priority, ResourcePath, Verb, connect_within, watch};
use serde_json::json;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Much less than the time that a connection may be silent.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn lists_and_watches_without_an_answer_are_retried() {
    let server = TestApiServer::shared().await.unwrap();
    let (namespace, proxy) = (server.namespace().await.unwrap(), FaultProxy::before(server).await.unwrap());
    let client = connect_within(Some(proxy.kubeconfig_file()), SHORT).await.unwrap();
    let hangs = |verb| {
        proxy.fail(FaultRule { when: RequestMatcher::nth(verb, "configmaps", 1), how: ProxyFault::Hang })
    };
    let rules = [hangs("list"), hangs("watch")];
    let mut events = watch(Api::<ConfigMap>::namespaced(client, &namespace), None);
    let mut errors = 0;
    let straight = Api::<ConfigMap>::namespaced(server.client().await.unwrap(), &namespace);
    let reads = async {
        loop {
            match events.next().await.unwrap() {
                Ok(Event::InitDone) => {
                    let map = serde_json::from_value(json!({"metadata": {"name": "late"}})).unwrap();
                    straight.create(&PostParams::default(), &map).await.unwrap();
                }
                Ok(Event::Apply(map)) if map.metadata.name.as_deref() == Some("late") => return,
                Ok(_) => {}
                Err(_) => errors += 1,
            }
        }
    };
    timeout(TIMEOUT, reads).await.expect("the watch waits only for its timeout");
    assert_eq!(rules.map(|rule| proxy.matches(rule).failed.len()), [1, 1]);
    assert_eq!(errors, 2, "both errors are returned");
}

#[tokio::test]
async fn a_request_without_an_answer_returns_its_timeout() {
    let server = TestApiServer::shared().await.unwrap();
    let (namespace, proxy) = (server.namespace().await.unwrap(), FaultProxy::before(server).await.unwrap());
    let client = connect_within(Some(proxy.kubeconfig_file()), SHORT).await.unwrap();
    let writer = KubeWriter::new(client, "test", SHORT);
    proxy.fail(FaultRule { when: RequestMatcher::nth("get", "configmaps", 1), how: ProxyFault::Hang });
    let path = ResourcePath { api: "v1", plural: "configmaps", namespace: &namespace, name: "x" };
    let answer = timeout(TIMEOUT, writer.send(path, &Verb::Get, Priority::Normal)).await.unwrap();
    assert!(matches!(&answer, Err(LinkError::Silent { after, .. }) if *after == SHORT), "{answer:?}");
    let answer = timeout(TIMEOUT, writer.send(path, &Verb::Get, Priority::Normal)).await.unwrap();
    assert!(answer.unwrap_err().is_absent(), "the next request is answered");
}
