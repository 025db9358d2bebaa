//! The proxy injects exactly the faults of its rules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on")]

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use kubeon_envtest::{FaultProxy, FaultRule, ProxyFault, RequestMatcher, TestApiServer};
use serde_json::json;

struct Fixture {
    proxy: FaultProxy,
    client: Client,
    /// Through the proxy.
    maps: Api<ConfigMap>,
    /// Directly to the server.
    direct: Api<ConfigMap>,
}

impl Fixture {
    async fn new() -> Self {
        let server = TestApiServer::shared().await.unwrap();
        let namespace = server.namespace().await.unwrap();
        let proxy = FaultProxy::before(server).await.unwrap();
        let client = proxy.client().await.unwrap();
        let maps = Api::namespaced(client.clone(), &namespace);
        let direct = Api::namespaced(server.client().await.unwrap(), &namespace);
        Self { proxy, client, maps, direct }
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        let map = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        self.maps.create(&PostParams::default(), &map).await
    }

    async fn is_there(&self, name: &str) -> bool {
        self.direct.get_opt(name).await.unwrap().is_some()
    }

    fn fail(&self, when: RequestMatcher, how: ProxyFault) {
        self.proxy.fail(FaultRule { when, how });
    }
}

fn code(result: kube::Result<ConfigMap>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("no answer of an API server: {other:?}"),
    }
}

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn forwards_and_counts_requests_without_a_matching_rule() {
    let fixture = Fixture::new().await;
    fixture.create("a").await.unwrap();
    let patch = Patch::Merge(json!({ "data": { "k": "v" } }));
    fixture.maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    fixture.maps.get("a").await.unwrap();
    fixture.client.apiserver_version().await.unwrap();
    let kinds: Vec<_> =
        fixture.proxy.requests().iter().map(|request| (request.kind(), request.status)).collect();
    let expected = ["create configmaps", "patch configmaps", "get configmaps", "get /version"];
    assert_eq!(kinds.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), expected);
    assert!(kinds.iter().all(|(_, status)| matches!(status, Some(200 | 201))), "{kinds:?}");
    assert_eq!(fixture.proxy.writes().len(), 2);
}

#[tokio::test]
async fn fails_exactly_the_writes_of_the_rules() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth_write(2), ProxyFault::Status(500));
    fixture.fail(RequestMatcher::nth_write(3), ProxyFault::Status(409));
    fixture.create("a").await.unwrap();
    fixture.maps.get("a").await.unwrap();
    assert_eq!(code(fixture.create("b").await), 500);
    assert_eq!(code(fixture.create("b").await), 409);
    assert!(!fixture.is_there("b").await);
    fixture.create("b").await.unwrap();
    let failed = fixture.proxy.requests().into_iter().filter(|request| request.fault.is_some()).count();
    assert_eq!(failed, 2);
}

#[tokio::test]
async fn fails_requests_for_one_object_and_reports_the_matches_of_rules() {
    let fixture = Fixture::new().await;
    let rule = |name: &str, nth: usize| {
        let when = RequestMatcher::nth_request(nth).about(name);
        fixture.proxy.fail(FaultRule { when, how: ProxyFault::Status(500) })
    };
    let (first, second, third) = (rule("one", 1), rule("two", 2), rule("three", 1));
    assert_eq!(code(fixture.create("one").await), 500, "its name is in the body");
    fixture.create("two").await.unwrap();
    assert_eq!(code(fixture.maps.get("two").await), 500, "its name is in the path");
    fixture.create("one").await.unwrap();
    let matches_of = |rule| (fixture.proxy.matches(rule).count, fixture.proxy.matches(rule).failed);
    assert_eq!(matches_of(first), (2, vec!["create configmaps".to_owned()]));
    assert_eq!(matches_of(second), (2, vec!["get configmaps".to_owned()]));
    assert_eq!(matches_of(third), (0, vec![]));
    assert_eq!(fixture.proxy.remove(third).count, 0);
    fixture.create("three").await.unwrap();
}

#[tokio::test]
async fn answers_with_retry_after() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth_write(1), ProxyFault::RetryAfter(1));
    // The client may repeat the request by itself; the rule affects only the first request.
    let _ = fixture.create("a").await;
    let first = &fixture.proxy.requests()[0];
    assert_eq!((first.status, &first.fault), (Some(429), &Some(ProxyFault::RetryAfter(1))));
}

#[tokio::test]
async fn hangs_before_or_after_the_server_handles_the_request() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth_write(1), ProxyFault::Hang);
    fixture.fail(RequestMatcher::nth_write(2), ProxyFault::HangAfter);
    for (name, done) in [("a", false), ("b", true)] {
        let waited = tokio::time::timeout(Duration::from_secs(3), fixture.create(name)).await;
        assert!(waited.is_err());
        assert_eq!(fixture.is_there(name).await, done);
    }
}

#[tokio::test]
async fn loses_answers_and_refuses_requests() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth("create", "configmaps", 1), ProxyFault::LoseAnswer);
    fixture.fail(RequestMatcher::nth("patch", "configmaps", 1), ProxyFault::Refuse);
    let lost = tokio::time::timeout(SOON, fixture.create("a")).await.unwrap();
    assert!(!matches!(lost, Ok(_) | Err(kube::Error::Api(_))));
    assert!(fixture.is_there("a").await);
    let patch = Patch::Merge(json!({ "data": { "k": "v" } }));
    assert!(fixture.maps.patch("a", &PatchParams::default(), &patch).await.is_err());
    assert!(fixture.direct.get("a").await.unwrap().data.is_none());
}

#[tokio::test]
async fn delays_and_forwards() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth_write(1), ProxyFault::Delay(Duration::from_millis(300)));
    let begin = Instant::now();
    fixture.create("a").await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn streams_watches_and_cuts_them() {
    let fixture = Fixture::new().await;
    let mut watch = fixture.maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    fixture.create("a").await.unwrap();
    // The event of another map of the namespace may come first.
    let added = tokio::time::timeout(SOON, async {
        while let Some(event) = watch.try_next().await.unwrap() {
            if matches!(&event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a")) {
                return true;
            }
        }
        false
    });
    assert!(added.await.unwrap());
    fixture.proxy.cut();
    let end = tokio::time::timeout(SOON, watch.try_next()).await.unwrap();
    assert!(!matches!(end, Ok(Some(_))));
    fixture.create("b").await.unwrap();
    assert!(fixture.proxy.requests().iter().any(|request| request.verb == "watch"));
}

#[tokio::test]
async fn cuts_everything_after_a_write_until_it_is_healed() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth_write(2), ProxyFault::CutAfter);
    fixture.create("a").await.unwrap();
    assert!(fixture.proxy.wait_until_cut(Duration::from_millis(100)).await.is_err());
    assert!(tokio::time::timeout(SOON, fixture.create("b")).await.unwrap().is_err());
    fixture.proxy.wait_until_cut(SOON).await.unwrap();
    assert!(fixture.is_there("b").await);
    assert!(tokio::time::timeout(SOON, fixture.create("c")).await.unwrap().is_err());
    assert!(!fixture.is_there("c").await);
    fixture.proxy.restore();
    fixture.create("c").await.unwrap();
}

#[tokio::test]
async fn cuts_before_a_write() {
    let fixture = Fixture::new().await;
    fixture.fail(RequestMatcher::nth_write(1), ProxyFault::CutBefore);
    assert!(tokio::time::timeout(SOON, fixture.create("a")).await.unwrap().is_err());
    fixture.proxy.wait_until_cut(SOON).await.unwrap();
    assert!(!fixture.is_there("a").await);
}

#[tokio::test]
async fn forwards_tokens_and_refuses_unknown_tokens() {
    let server = TestApiServer::shared().await.unwrap();
    let namespace = server.namespace().await.unwrap();
    let token = server.service_account(&namespace, "weak").await.unwrap();
    let proxy = FaultProxy::before(server).await.unwrap();
    for (token, code) in [(token.as_str(), 403), ("guessed", 401)] {
        let config = kube::config::Kubeconfig::from_yaml(&proxy.kubeconfig_of_token(token)).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        let maps = Api::<ConfigMap>::namespaced(Client::try_from(config).unwrap(), &namespace);
        let refused = maps.get("a").await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == code), "{refused:?}");
    }
}
