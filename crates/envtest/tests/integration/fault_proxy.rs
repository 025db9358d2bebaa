//! The proxy does to requests what it is told, and nothing else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on")]

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use kubeon_envtest::{FaultProxy, FaultRule, ProxyFault, TestApiServer, When};
use serde_json::json;

struct Ground {
    proxy: FaultProxy,
    client: Client,
    /// Through the proxy.
    maps: Api<ConfigMap>,
    /// Past it.
    straight: Api<ConfigMap>,
}

impl Ground {
    async fn new() -> Self {
        let server = TestApiServer::shared().await.unwrap();
        let namespace = server.namespace().await.unwrap();
        let proxy = FaultProxy::before(server).await.unwrap();
        let client = proxy.client().await.unwrap();
        let maps = Api::namespaced(client.clone(), &namespace);
        let straight = Api::namespaced(server.client().await.unwrap(), &namespace);
        Self { proxy, client, maps, straight }
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        let map = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        self.maps.create(&PostParams::default(), &map).await
    }

    async fn is_there(&self, name: &str) -> bool {
        self.straight.get_opt(name).await.unwrap().is_some()
    }

    fn fail(&self, when: When, how: ProxyFault) {
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
async fn passes_what_no_rule_is_about_and_counts_it() {
    let ground = Ground::new().await;
    ground.create("a").await.unwrap();
    let patch = Patch::Merge(json!({ "data": { "k": "v" } }));
    ground.maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    ground.maps.get("a").await.unwrap();
    ground.client.apiserver_version().await.unwrap();
    let kinds: Vec<_> = ground.proxy.requests().iter().map(|it| (it.kind(), it.status)).collect();
    let expected = ["create configmaps", "patch configmaps", "get configmaps", "get /version"];
    assert_eq!(kinds.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), expected);
    assert!(kinds.iter().all(|(_, status)| matches!(status, Some(200 | 201))), "{kinds:?}");
    assert_eq!(ground.proxy.writes().len(), 2);
}

#[tokio::test]
async fn fails_exactly_the_write_it_was_told_to() {
    let ground = Ground::new().await;
    ground.fail(When::nth_write(2), ProxyFault::Status(500));
    ground.fail(When::nth_write(3), ProxyFault::Status(409));
    ground.create("a").await.unwrap();
    ground.maps.get("a").await.unwrap();
    assert_eq!(code(ground.create("b").await), 500);
    assert_eq!(code(ground.create("b").await), 409);
    assert!(!ground.is_there("b").await);
    ground.create("b").await.unwrap();
    let failed = ground.proxy.requests().into_iter().filter(|it| it.fault.is_some()).count();
    assert_eq!(failed, 2);
}

#[tokio::test]
async fn fails_what_is_about_one_object_and_tells_what_became_of_the_rule() {
    let ground = Ground::new().await;
    let rule = |name: &str, nth: usize| {
        let when = When::nth_request(nth).about(name);
        ground.proxy.fail(FaultRule { when, how: ProxyFault::Status(500) })
    };
    let (first, second, third) = (rule("aa", 1), rule("bb", 2), rule("cc", 1));
    assert_eq!(code(ground.create("aa").await), 500, "its name is in what is sent");
    ground.create("bb").await.unwrap();
    assert_eq!(code(ground.maps.get("bb").await), 500, "its name is in the path");
    ground.create("aa").await.unwrap();
    let became = |rule| (ground.proxy.met(rule).fitting, ground.proxy.met(rule).failed);
    assert_eq!(became(first), (2, vec!["create configmaps".to_owned()]));
    assert_eq!(became(second), (2, vec!["get configmaps".to_owned()]));
    assert_eq!(became(third), (0, vec![]));
    assert_eq!(ground.proxy.forgive(third).fitting, 0);
    ground.create("cc").await.unwrap();
}

#[tokio::test]
async fn asks_to_come_back_later() {
    let ground = Ground::new().await;
    ground.fail(When::nth_write(1), ProxyFault::RetryAfter(1));
    // Whether the client comes back by itself is the client's affair; the proxy says it once.
    let _ = ground.create("a").await;
    let first = &ground.proxy.requests()[0];
    assert_eq!((first.status, &first.fault), (Some(429), &Some(ProxyFault::RetryAfter(1))));
}

#[tokio::test]
async fn hangs_before_or_after_the_server_did_it() {
    let ground = Ground::new().await;
    ground.fail(When::nth_write(1), ProxyFault::Hang);
    ground.fail(When::nth_write(2), ProxyFault::HangAfter);
    for (name, done) in [("a", false), ("b", true)] {
        let waited = tokio::time::timeout(Duration::from_secs(3), ground.create(name)).await;
        assert!(waited.is_err());
        assert_eq!(ground.is_there(name).await, done);
    }
}

#[tokio::test]
async fn loses_answers_and_refuses_requests() {
    let ground = Ground::new().await;
    ground.fail(When::nth("create", "configmaps", 1), ProxyFault::LoseAnswer);
    ground.fail(When::nth("patch", "configmaps", 1), ProxyFault::Refuse);
    let lost = tokio::time::timeout(SOON, ground.create("a")).await.unwrap();
    assert!(!matches!(lost, Ok(_) | Err(kube::Error::Api(_))));
    assert!(ground.is_there("a").await);
    let patch = Patch::Merge(json!({ "data": { "k": "v" } }));
    assert!(ground.maps.patch("a", &PatchParams::default(), &patch).await.is_err());
    assert!(ground.straight.get("a").await.unwrap().data.is_none());
}

#[tokio::test]
async fn delays_without_harm() {
    let ground = Ground::new().await;
    ground.fail(When::nth_write(1), ProxyFault::Delay(Duration::from_millis(300)));
    let begin = Instant::now();
    ground.create("a").await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn streams_watches_and_cuts_them() {
    let ground = Ground::new().await;
    let mut watch = ground.maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    ground.create("a").await.unwrap();
    // The namespace's own map may come first; nothing but the stream's end is taken for an end.
    let seen = tokio::time::timeout(SOON, async {
        while let Some(event) = watch.try_next().await.unwrap() {
            if matches!(&event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a")) {
                return true;
            }
        }
        false
    });
    assert!(seen.await.unwrap());
    ground.proxy.cut();
    let end = tokio::time::timeout(SOON, watch.try_next()).await.unwrap();
    assert!(!matches!(end, Ok(Some(_))));
    ground.create("b").await.unwrap();
    assert!(ground.proxy.requests().iter().any(|it| it.verb == "watch"));
}

#[tokio::test]
async fn cuts_everything_after_a_write_until_it_is_healed() {
    let ground = Ground::new().await;
    ground.fail(When::nth_write(2), ProxyFault::CutAfter);
    ground.create("a").await.unwrap();
    assert!(ground.proxy.is_cut(Duration::from_millis(100)).await.is_err());
    assert!(tokio::time::timeout(SOON, ground.create("b")).await.unwrap().is_err());
    ground.proxy.is_cut(SOON).await.unwrap();
    assert!(ground.is_there("b").await);
    assert!(tokio::time::timeout(SOON, ground.create("c")).await.unwrap().is_err());
    assert!(!ground.is_there("c").await);
    ground.proxy.heal();
    ground.create("c").await.unwrap();
}

#[tokio::test]
async fn cuts_before_a_write() {
    let ground = Ground::new().await;
    ground.fail(When::nth_write(1), ProxyFault::CutBefore);
    assert!(tokio::time::timeout(SOON, ground.create("a")).await.unwrap().is_err());
    ground.proxy.is_cut(SOON).await.unwrap();
    assert!(!ground.is_there("a").await);
}

#[tokio::test]
async fn passes_tokens_through_and_lets_nobody_in_without() {
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
