//! Lists, watches, settings, the lease and events fail in every way, all of them at the same time.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Resource, ResourceExt as _};
use kubeon_api::KubernetesCluster;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher, RuleId};
use kubeon_install::{InstallOptions, rbac};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::faults::FAULTS;
use crate::http::get;
use crate::lab::{Lab, TIMEOUT};
use crate::lives;

/// The listed and watched resources.
const WATCHED: [&str; 7] =
    ["clusters", "clusteroperations", "kubernetesclusters", "jobs", "pods", "configmaps", "secrets"];

/// The first request with this verb fails for each kind, each in another way; `turn` selects the ways.
fn first_of_each(lab: &Lab, verb: &str, turn: usize) -> Vec<RuleId> {
    let each = WATCHED.iter().enumerate().map(|(at, resource)| {
        let how = FAULTS[(at + turn) % FAULTS.len()].clone();
        lab.proxy.fail(FaultRule { when: RequestMatcher::nth(verb, resource, 1), how })
    });
    each.collect()
}

async fn until_met(lab: &Lab, rules: &[RuleId]) {
    let met = async {
        while rules.iter().any(|rule| lab.proxy.matches(*rule).failed.is_empty()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, met).await.expect("each of them failed");
}

#[tokio::test]
async fn every_list_and_every_watch_may_fail_in_every_way_when_it_starts() {
    let lab = Lab::open().await;
    for (turn, how) in FAULTS.into_iter().enumerate() {
        let mut rules = first_of_each(&lab, "list", turn);
        rules.extend(first_of_each(&lab, "watch", turn + 3));
        let settings = RequestMatcher::nth("get", "configmaps", 1).about("kubeonkube-config");
        rules.push(lab.proxy.fail(FaultRule { when: settings, how }));
        lab.start_with(&["--leader-elect=false", "--request-timeout=1"]);
        lives::shell(&lab, &format!("start-{turn}")).await;
        until_met(&lab, &rules).await;
        lab.proxy.restore();
        lab.kill().await;
    }
}

#[tokio::test]
async fn every_watch_may_end_and_fail_in_every_way_while_an_operation_runs() {
    let lab = Lab::open().await;
    for turn in 0..FAULTS.len() {
        lab.start_with(&["--leader-elect=false", "--request-timeout=1"]);
        let name = format!("watch-{turn}");
        lab.cluster(&name).await;
        lab.ask(&name, &name).await;
        lab.until_is(&name, OperationResult::Running).await;
        let rules = first_of_each(&lab, "watch", turn);
        lab.proxy.cut();
        let ended = lab.finish(&name).await;
        assert_eq!(lab.job_names(&ended).await.len(), 1, "{name}");
        until_met(&lab, &rules).await;
        lab.proxy.restore();
        lab.kill().await;
    }
}

/// No operation is deleted while the history limit cannot be read.
#[tokio::test]
async fn operations_are_not_let_go_before_the_limit_is_known() {
    let lab = Lab::open().await;
    let limit = |text: &str| serde_json::json!({"CLUSTER_OPERATIONS_BACKEND_LIMIT": text});
    lab.config_map("kubeonkube-config", limit("40")).await;
    lab.cluster("sample").await;
    let done = serde_json::json!({"status": {"status": "Succeeded"}});
    for number in 0..35 {
        let name = format!("old-{number:02}");
        lab.ask("sample", &name).await;
        let done = kube::api::Patch::Merge(&done);
        lab.operations().patch_status(&name, &kube::api::PatchParams::default(), &done).await.unwrap();
    }
    // Twice, because it is also read when its ConfigMap is observed.
    let settings = RequestMatcher::nth("get", "configmaps", 1).about("kubeonkube-config").times(2);
    let rule = lab.proxy.fail(FaultRule { when: settings, how: ProxyFault::Status(500) });
    lab.start();
    lab.ask("sample", "new").await;
    lab.finish("new").await;
    until_met(&lab, &[rule]).await;
    let left = lab.operations().list(&kube::api::ListParams::default()).await.unwrap().items.len();
    assert_eq!(left, 36);
    assert!(!lab.proxy.writes().iter().any(|write| write.verb == "delete"), "no operation was deleted");
}

/// About every other request for the lease fails, during its acquisition and its renewal. Every event is
/// refused.
#[tokio::test]
async fn a_leader_is_found_and_stays_though_its_lease_is_asked_for_in_vain_every_other_time() {
    let lab = Lab::open().await;
    let ways = [
        (1, ProxyFault::Status(500)),
        (3, ProxyFault::LoseAnswer),
        (5, ProxyFault::Hang),
        (7, ProxyFault::Status(409)),
        (9, ProxyFault::Refuse),
        (11, ProxyFault::HangAfter),
        (15, ProxyFault::Status(500)),
        (17, ProxyFault::HangAfter),
    ];
    let each = ways
        .into_iter()
        .map(|(n, how)| lab.proxy.fail(FaultRule { when: RequestMatcher::nth_request(n).of("leases"), how }));
    let rules: Vec<_> = each.collect();
    let events =
        FaultRule { when: RequestMatcher::every_request().of("events"), how: ProxyFault::Status(500) };
    let events = lab.proxy.fail(events);
    lab.start_with(&["--request-timeout=1"]);
    lives::shell(&lab, "sample").await;
    until_met(&lab, &rules).await;
    lives::shell(&lab, "another").await;
    assert!(lab.proxy.matches(events).failed.len() >= 4, "two started and ended");
    let verbs: Vec<String> = rules.iter().flat_map(|rule| lab.proxy.matches(*rule).failed).collect();
    for verb in ["get leases", "create leases", "update leases"] {
        assert!(verbs.iter().any(|one| one == verb), "{verb} never failed, only {verbs:?}");
    }
}

#[tokio::test]
async fn a_leader_that_ends_gives_the_lease_back_and_the_next_one_goes_on() {
    let lab = Lab::open().await;
    lab.start_with(&[]);
    lab.cluster("sample").await;
    lab.ask("sample", "one").await;
    lab.until_is("one", OperationResult::Running).await;
    let (took, well) = lab.end().await;
    assert!(well && took < Duration::from_secs(10), "{took:?}");
    lab.start_with(&[]);
    let begun = Instant::now();
    lab.finish("one").await;
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "the new leader waited for the expiry of the old lease: {:?}",
        begun.elapsed()
    );
}

async fn readyz(lab: &Lab) -> String {
    let port = lab.metrics_address().rsplit_once(':').unwrap().1.parse().unwrap();
    get(port, "/readyz").await
}

async fn make<K>(lab: &Lab, namespace: &str, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::namespaced(lab.client.clone(), namespace).create(&PostParams::default(), &object).await.unwrap();
}

/// A namespace without a role of the operator, as when its Role was deleted.
async fn namespace_without_rights(lab: &Lab) -> String {
    let object: Namespace =
        serde_json::from_value(json!({"metadata": {"generateName": "forbidden-"}})).unwrap();
    let namespaces = Api::<Namespace>::all(lab.client.clone());
    namespaces.create(&PostParams::default(), &object).await.unwrap().name_any()
}

/// Installs the role of the operator in a watched namespace.
async fn give_rights(lab: &Lab, namespace: &str) {
    let options = InstallOptions { namespace: lab.namespace.clone(), ..InstallOptions::default() };
    for object in rbac::watched_namespace(&options, namespace).unwrap() {
        match object["kind"].as_str() {
            Some("Role") => make::<Role>(lab, namespace, object).await,
            Some("RoleBinding") => make::<RoleBinding>(lab, namespace, object).await,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_namespace_that_may_not_be_read_holds_up_its_own_clusters_alone() {
    let lab = Lab::open().await;
    let forbidden = namespace_without_rights(&lab).await;
    let shop = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "authConfig": {"password": "hunter2"}}}});
    make::<KubernetesCluster>(&lab, &forbidden, shop).await;
    lab.start_with(&["--leader-elect=false", "--watch-namespace", &forbidden]);
    lives::shell(&lab, "sample").await;

    let words = format!("cannot list ConfigMap, Job, Pod, Secret in namespace {forbidden}");
    let answer = readyz(&lab).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&words), "{answer}");
    let shops = Api::<KubernetesCluster>::namespaced(lab.client.clone(), &forbidden);
    let says = |object: Option<&KubernetesCluster>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.and_then(|status| status.reason.as_ref()).is_some_and(|reason| reason.contains(&words))
    };
    let told = timeout(TIMEOUT, await_condition(shops.clone(), "shop", says)).await;
    told.expect("its status has the reason of the wait").unwrap();
    lab.until_told("shop", "Held", &words).await;
    let jobs = Api::<Job>::namespaced(lab.client.clone(), &forbidden);
    assert!(jobs.list(&ListParams::default()).await.unwrap().items.is_empty());
    let operations = lab.operations().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(operations.len(), 1, "no operation was derived");

    give_rights(&lab, &forbidden).await;
    let works = |object: Option<&KubernetesCluster>| {
        object.and_then(|object| object.status.as_ref()).is_some_and(|status| status.job_name.is_some())
    };
    let at_work = timeout(TIMEOUT, await_condition(shops, "shop", works)).await;
    at_work.expect("the cluster is reconciled when the list is permitted").unwrap();
    assert_eq!(jobs.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert!(!readyz(&lab).await.contains(&forbidden));
}

/// The Jobs of a `Cluster` are in the operator's namespace.
#[tokio::test]
async fn nothing_begins_and_none_leads_while_the_operators_own_namespace_may_not_be_read() {
    let lab = Lab::open().await;
    let lists = RequestMatcher::every_request().verb("list").of("jobs");
    lab.proxy.fail(FaultRule { when: lists, how: ProxyFault::Status(403) });
    lab.start();
    let failures = r#"kubeon_operator_watch_failures_total{word="Job"} "#;
    let has_failed =
        |page: &str| page.lines().any(|line| line.strip_prefix(failures).is_some_and(|number| number != "0"));
    let page = lab.until_metrics(has_failed).await;
    assert!(page.lines().any(|line| line == "kubeon_operator_leader 0"), "{page}");
    let answer = readyz(&lab).await;
    let words = format!("Job in namespace {}", lab.namespace);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(&words), "{answer}");
    lab.proxy.restore();
    lives::shell(&lab, "sample").await;
    lab.until_metrics(|page| page.lines().any(|line| line == "kubeon_operator_leader 1")).await;
}
