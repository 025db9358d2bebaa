//! Requests for lists, watches, settings, the lease and events fail in every way and at the same time.

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
use crate::scenarios;

/// The listed and watched resources.
const WATCHED: [&str; 7] =
    ["clusters", "clusteroperations", "kubernetesclusters", "jobs", "pods", "configmaps", "secrets"];

/// The first request with this verb fails for each kind, each in another way; `offset` selects the ways.
fn fail_first_of_each(lab: &Lab, verb: &str, offset: usize) -> Vec<RuleId> {
    let each = WATCHED.iter().enumerate().map(|(index, resource)| {
        let how = FAULTS[(index + offset) % FAULTS.len()].clone();
        lab.proxy.fail(FaultRule { when: RequestMatcher::nth(verb, resource, 1), how })
    });
    each.collect()
}

/// Waits until each rule has failed a request.
async fn wait_failed(lab: &Lab, rules: &[RuleId]) {
    let all_failed = async {
        while rules.iter().any(|rule| lab.proxy.matches(*rule).failed.is_empty()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, all_failed).await.expect("each rule fails a request in time");
}

#[tokio::test]
async fn every_list_and_every_watch_may_fail_in_every_way_when_it_starts() {
    let lab = Lab::open().await;
    for (round, how) in FAULTS.into_iter().enumerate() {
        let mut rules = fail_first_of_each(&lab, "list", round);
        rules.extend(fail_first_of_each(&lab, "watch", round + 3));
        let settings = RequestMatcher::nth("get", "configmaps", 1).about("kubeonkube-config");
        rules.push(lab.proxy.fail(FaultRule { when: settings, how }));
        lab.start_with(&["--leader-elect=false", "--request-timeout=1"]);
        scenarios::shell(&lab, &format!("start-{round}")).await;
        wait_failed(&lab, &rules).await;
        lab.proxy.restore();
        lab.kill().await;
    }
}

#[tokio::test]
async fn every_watch_may_end_and_fail_in_every_way_while_an_operation_runs() {
    let lab = Lab::open().await;
    for round in 0..FAULTS.len() {
        lab.start_with(&["--leader-elect=false", "--request-timeout=1"]);
        let name = format!("watch-{round}");
        lab.cluster(&name).await;
        lab.create_shell_operation(&name, &name).await;
        lab.wait_result(&name, OperationResult::Running).await;
        let rules = fail_first_of_each(&lab, "watch", round);
        lab.proxy.cut();
        let ended = lab.finish(&name).await;
        assert_eq!(lab.job_names(&ended).await.len(), 1, "{name}");
        wait_failed(&lab, &rules).await;
        lab.proxy.restore();
        lab.kill().await;
    }
}

/// No operation is deleted while the history limit cannot be read.
#[tokio::test]
async fn no_operation_is_deleted_before_the_limit_is_known() {
    let lab = Lab::open().await;
    let limit = |text: &str| serde_json::json!({"CLUSTER_OPERATIONS_BACKEND_LIMIT": text});
    lab.config_map("kubeonkube-config", limit("40")).await;
    lab.cluster("sample").await;
    let done = serde_json::json!({"status": {"status": "Succeeded"}});
    for number in 0..35 {
        let name = format!("old-{number:02}");
        lab.create_shell_operation("sample", &name).await;
        let done = kube::api::Patch::Merge(&done);
        lab.operations().patch_status(&name, &kube::api::PatchParams::default(), &done).await.unwrap();
    }
    // Twice, because it is also read when its ConfigMap is observed.
    let settings = RequestMatcher::nth("get", "configmaps", 1).about("kubeonkube-config").times(2);
    let rule = lab.proxy.fail(FaultRule { when: settings, how: ProxyFault::Status(500) });
    lab.start();
    lab.create_shell_operation("sample", "new").await;
    lab.finish("new").await;
    wait_failed(&lab, &[rule]).await;
    let left = lab.operations().list(&kube::api::ListParams::default()).await.unwrap().items.len();
    assert_eq!(left, 36);
    assert!(
        !lab.proxy
            .writes()
            .iter()
            .any(|write| write.verb == "delete" && write.resource == "clusteroperations")
    );
}

/// About every other request for the lease fails, during its acquisition and its renewal. Every event is
/// refused.
#[tokio::test]
async fn a_leader_acquires_and_renews_its_lease_when_every_other_request_fails() {
    let lab = Lab::open().await;
    let faults = [
        (1, ProxyFault::Status(500)),
        (3, ProxyFault::LoseAnswer),
        (5, ProxyFault::Hang),
        (7, ProxyFault::Status(409)),
        (9, ProxyFault::Refuse),
        (11, ProxyFault::HangAfter),
        (15, ProxyFault::Status(500)),
        (17, ProxyFault::HangAfter),
    ];
    let each = faults
        .into_iter()
        .map(|(n, how)| lab.proxy.fail(FaultRule { when: RequestMatcher::nth_request(n).of("leases"), how }));
    let rules: Vec<_> = each.collect();
    let events =
        FaultRule { when: RequestMatcher::every_request().of("events"), how: ProxyFault::Status(500) };
    let events = lab.proxy.fail(events);
    lab.start_with(&["--request-timeout=1"]);
    scenarios::shell(&lab, "sample").await;
    wait_failed(&lab, &rules).await;
    scenarios::shell(&lab, "another").await;
    assert!(lab.proxy.matches(events).failed.len() >= 4, "two operations have events about start and end");
    let verbs: Vec<String> = rules.iter().flat_map(|rule| lab.proxy.matches(*rule).failed).collect();
    for verb in ["get leases", "create leases", "update leases"] {
        assert!(verbs.iter().any(|one| one == verb), "{verb} never failed, only {verbs:?}");
    }
}

#[tokio::test]
async fn a_stopped_leader_releases_the_lease_and_the_next_leader_continues() {
    let lab = Lab::open().await;
    lab.start_with(&[]);
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "one").await;
    lab.wait_result("one", OperationResult::Running).await;
    let (duration, succeeded) = lab.terminate().await;
    assert!(succeeded && duration < Duration::from_secs(10), "{duration:?}");
    lab.start_with(&[]);
    let start = Instant::now();
    lab.finish("one").await;
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "the new leader waited for the expiry of the old lease: {:?}",
        start.elapsed()
    );
}

async fn readyz(lab: &Lab) -> String {
    let port = lab.metrics_address().rsplit_once(':').unwrap().1.parse().unwrap();
    get(port, "/readyz").await
}

async fn create<K>(lab: &Lab, namespace: &str, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::namespaced(lab.client.clone(), namespace).create(&PostParams::default(), &object).await.unwrap();
}

/// Creates a namespace without a role of the operator, as after the deletion of its Role.
async fn namespace_without_role(lab: &Lab) -> String {
    let object: Namespace =
        serde_json::from_value(json!({"metadata": {"generateName": "forbidden-"}})).unwrap();
    let namespaces = Api::<Namespace>::all(lab.client.clone());
    namespaces.create(&PostParams::default(), &object).await.unwrap().name_any()
}

/// Installs the role of the operator in a watched namespace.
async fn install_role(lab: &Lab, namespace: &str) {
    let options = InstallOptions { namespace: lab.namespace.clone(), ..InstallOptions::default() };
    for object in rbac::watched_namespace(&options, namespace).unwrap() {
        match object["kind"].as_str() {
            Some("Role") => create::<Role>(lab, namespace, object).await,
            Some("RoleBinding") => create::<RoleBinding>(lab, namespace, object).await,
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_unreadable_namespace_blocks_only_its_own_clusters() {
    let lab = Lab::open().await;
    let forbidden = namespace_without_role(&lab).await;
    let shop = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "authConfig": {"password": "hunter2"}}}});
    create::<KubernetesCluster>(&lab, &forbidden, shop).await;
    lab.start_with(&["--leader-elect=false", "--watch-namespace", &forbidden]);
    scenarios::shell(&lab, "sample").await;

    let cause = format!("cannot list ConfigMap, Job, Pod, Secret in namespace {forbidden}");
    let answer = readyz(&lab).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&cause), "{answer}");
    let shops = Api::<KubernetesCluster>::namespaced(lab.client.clone(), &forbidden);
    let has_cause = |object: Option<&KubernetesCluster>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.and_then(|status| status.reason.as_ref()).is_some_and(|reason| reason.contains(&cause))
    };
    let reported = timeout(TIMEOUT, await_condition(shops.clone(), "shop", has_cause)).await;
    reported.expect("the status has the reason of the wait").unwrap();
    lab.wait_event("shop", "Held", &cause).await;
    let jobs = Api::<Job>::namespaced(lab.client.clone(), &forbidden);
    assert!(jobs.list(&ListParams::default()).await.unwrap().items.is_empty());
    let operations = lab.operations().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(operations.len(), 1, "no operation was derived");

    install_role(&lab, &forbidden).await;
    let has_job = |object: Option<&KubernetesCluster>| {
        object.and_then(|object| object.status.as_ref()).is_some_and(|status| status.job_name.is_some())
    };
    let reconciled = timeout(TIMEOUT, await_condition(shops, "shop", has_job)).await;
    reconciled.expect("the cluster is reconciled when the list is permitted").unwrap();
    assert_eq!(jobs.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert!(!readyz(&lab).await.contains(&forbidden));
}

/// The Jobs of a `Cluster` are in the operator's namespace.
#[tokio::test]
async fn no_operator_leads_while_its_own_namespace_cannot_be_read() {
    let lab = Lab::open().await;
    let lists = RequestMatcher::every_request().verb("list").of("jobs");
    lab.proxy.fail(FaultRule { when: lists, how: ProxyFault::Status(403) });
    lab.start();
    let failures = r#"kubeon_operator_watch_failures_total{word="Job"} "#;
    let has_failed =
        |page: &str| page.lines().any(|line| line.strip_prefix(failures).is_some_and(|number| number != "0"));
    let page = lab.wait_metrics(has_failed).await;
    assert!(page.lines().any(|line| line == "kubeon_operator_leader 0"), "{page}");
    let answer = readyz(&lab).await;
    let cause = format!("Job in namespace {}", lab.namespace);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(&cause), "{answer}");
    lab.proxy.restore();
    scenarios::shell(&lab, "sample").await;
    lab.wait_metrics(|page| page.lines().any(|line| line == "kubeon_operator_leader 1")).await;
}
