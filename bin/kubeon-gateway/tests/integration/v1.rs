//! Version 1: the cases of the contract with kubernetes-operator.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::support::{EDIT, eventually, rest};

const BASE: &str = "/api/v1/region/default/cluster";

fn declaration(name: &str) -> String {
    json!({"name": name, "clusterType": "kubernetes", "deployMode": "binary", "unknown": 1,
        "masterList": [{"ip": "10.0.0.1"}], "nodeList": [{"ip": "10.0.0.2", "role:omitempty": ""}],
        "etcdList": [{"ip": "10.0.0.1"}], "externalLoadBalancer": "", "podCIDR": null})
    .to_string()
}

fn message(answer: &(u16, Value)) -> (u16, &str, &str) {
    (
        answer.0,
        answer.1["code"].as_str().unwrap_or_default(),
        answer.1["message"].as_str().unwrap_or_default(),
    )
}

#[tokio::test]
async fn b1_b2_b3_b5_a_cluster_is_declared_once_and_an_absent_one_is_not_deleted() {
    let rest = rest().await;
    let token = rest.account("team-a", "creator", EDIT).await;
    let path = format!("{BASE}/created");
    let answer = rest.send(Some(&token), "POST", &path, &declaration("created")).await;
    assert_eq!(message(&answer), (200, "OK", "success"));
    let object = rest.clusters("team-a").await.get("created").await.unwrap();
    let annotations = object.annotations();
    assert_eq!(annotations["app.kubernetes.io/operation"], "creating");
    assert_eq!(annotations["app.kubernetes.io/spec"], "");
    let spec = serde_json::to_value(&object.spec.cluster).unwrap();
    assert_eq!((&spec["region"], &spec["deployMode"]), (&json!("default"), &json!("binary")));
    let again = rest.send(Some(&token), "POST", &path, &declaration("created")).await;
    assert_eq!(message(&again).1, "Bad Request");
    assert!(message(&again).0 == 400 && message(&again).2.contains("already exists"), "{again:?}");
    let absent = rest.send(Some(&token), "DELETE", &format!("{BASE}/absent"), "{}").await;
    assert!(message(&absent).0 == 400 && message(&absent).2.contains(r#""absent" not found"#), "{absent:?}");
}

#[tokio::test]
async fn b4_a_body_that_cannot_be_read_is_refused() {
    let rest = rest().await;
    let token = rest.account("team-a", "typist", EDIT).await;
    let path = format!("{BASE}/unread");
    for (body, expected) in [("", "EOF"), (r#"{"retry":"x"}"#, "retry"), ("{", "EOF"), ("[]", "sequence")] {
        let answer = rest.send(Some(&token), "POST", &path, body).await;
        assert!(message(&answer).0 == 400 && message(&answer).2.contains(expected), "{body}: {answer:?}");
    }
    let address = r#"{"masterList":[{"ip":"300.1.1.1"}]}"#;
    let answer = rest.send(Some(&token), "POST", &path, address).await;
    assert!(message(&answer).0 == 400 && message(&answer).2.contains("masterList"), "{answer:?}");
}

#[tokio::test]
async fn b6_b7_b8_a_phase_that_does_not_allow_an_operation_is_named() {
    let rest = rest().await;
    let token = rest.account("team-a", "early", EDIT).await;
    for (name, phase) in [
        ("in-creating", "Creating"),
        ("in-scaling", "Scaling"),
        ("in-precheck", "Prechecking"),
        ("in-none", ""),
    ] {
        rest.cluster_in("team-a", name, phase).await;
        let scale = rest.send(Some(&token), "POST", &format!("{BASE}/{name}/scaleup"), "{}").await;
        let text = format!("current operation is [{phase}],only in running,failed can be start next task");
        assert_eq!(message(&scale), (400, "Bad Request", text.as_str()));
        let delete = rest.send(Some(&token), "DELETE", &format!("{BASE}/{name}"), "{}").await;
        let text = format!("current operation is [{phase}],only in running,failed can be delete cluster");
        assert_eq!(message(&delete), (400, "Bad Request", text.as_str()));
    }
}

#[tokio::test]
async fn b20_b21_b23_b24_workers_are_added_and_removed_by_the_whole_list() {
    let rest = rest().await;
    let token = rest.account("team-a", "scaler", EDIT).await;
    rest.cluster_in("team-a", "scaled", "Running").await;
    let clusters = rest.clusters("team-a").await;
    let send = async |direction: &str, body: Value| {
        rest.send(Some(&token), "POST", &format!("{BASE}/scaled/{direction}"), &body.to_string()).await
    };
    let same = clusters.get("scaled").await.unwrap().resource_version();
    let equal = send("scaleup", json!({"nodeList": [{"ip": "10.0.0.2"}]})).await;
    assert_eq!(message(&equal), (200, "OK", "success"));
    assert_eq!(
        clusters.get("scaled").await.unwrap().resource_version(),
        same,
        "an equal list changes nothing"
    );
    let dropped = send("scaleup", json!({"nodeList": [{"ip": "10.0.0.4"}]})).await;
    assert!(message(&dropped).0 == 400 && message(&dropped).2.contains("10.0.0.2 is missing"), "{dropped:?}");
    let masters = send("scaleup", json!({"masterList": [{"ip": "10.0.0.9"}]})).await;
    assert!(message(&masters).0 == 400 && message(&masters).2.starts_with("masterList"), "{masters:?}");
    let last = send("scaledown", json!({"nodeList": []})).await;
    assert!(message(&last).0 == 400 && message(&last).2.contains("the last worker"), "{last:?}");
    let grown = send("scaleup", json!({"nodeList": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.4"}]})).await;
    assert_eq!(message(&grown), (200, "OK", "success"));
    let object = clusters.get("scaled").await.unwrap();
    assert_eq!(object.annotations()["app.kubernetes.io/operation"], "scaling-up");
    let nodes: Vec<String> = object.spec.cluster.node_list.iter().map(|node| node.ip.to_string()).collect();
    assert_eq!(nodes, ["10.0.0.2", "10.0.0.4"]);
    let auth = object.spec.cluster.auth_config.unwrap();
    assert_eq!(auth.password.unwrap().expose(), "hunter2", "scaling changes nothing else");
    let shrunk = send("scaledown", json!({"nodeList": [{"ip": "10.0.0.4"}]})).await;
    assert_eq!(message(&shrunk), (200, "OK", "success"));
    assert_eq!(
        clusters.get("scaled").await.unwrap().annotations()["app.kubernetes.io/operation"],
        "scaling-down"
    );
}

#[tokio::test]
async fn b26_b27_a_deletion_is_requested_and_repeated() {
    let rest = rest().await;
    let token = rest.account("team-a", "deleter", EDIT).await;
    rest.cluster_in("team-a", "deleted", "Running").await;
    let clusters = rest.clusters("team-a").await;
    let path = format!("{BASE}/deleted");
    let answer = rest.send(Some(&token), "DELETE", &path, "{}").await;
    assert_eq!(message(&answer), (200, "OK", "success"));
    let object = clusters.get("deleted").await.unwrap();
    assert!(object.metadata.deletion_timestamp.is_some());
    assert_eq!(object.annotations()["app.kubernetes.io/operation"], "terminating");
    let failed = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "terminate-failed"}}});
    clusters
        .patch("deleted", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(failed))
        .await
        .unwrap();
    rest.set_status("team-a", "deleted", json!({"phase": "Failed"})).await;
    let again = rest.send(Some(&token), "DELETE", &path, r#"{"retry":true}"#).await;
    assert_eq!(message(&again), (200, "OK", "success"));
    assert_eq!(
        clusters.get("deleted").await.unwrap().annotations()["app.kubernetes.io/operation"],
        "terminating"
    );
}

#[tokio::test]
async fn b30_b31_only_a_failed_creation_is_repeated() {
    let rest = rest().await;
    let token = rest.account("team-a", "retrier", EDIT).await;
    rest.cluster_in("team-a", "repeated", "Running").await;
    let path = format!("{BASE}/repeated");
    let body = r#"{"name":"repeated","retry":true}"#;
    let running = rest.send(Some(&token), "POST", &path, body).await;
    assert!(
        message(&running).0 == 400 && message(&running).2.starts_with("current operation is [Running]"),
        "{running:?}"
    );
    rest.set_status("team-a", "repeated", json!({"phase": "Failed", "reason": "timeout"})).await;
    let failed = rest.send(Some(&token), "POST", &path, body).await;
    assert_eq!(message(&failed), (200, "OK", "success"));
    let object = rest.clusters("team-a").await.get("repeated").await.unwrap();
    assert_eq!(object.annotations()["app.kubernetes.io/operation"], "creating");
}

#[tokio::test]
async fn b37_there_is_no_log_before_the_first_job() {
    let rest = rest().await;
    let token = rest.account("team-a", "reader", EDIT).await;
    rest.cluster_in("team-a", "unlogged", "Creating").await;
    let path = format!("{BASE}/unlogged/logs");
    let none = rest.send(Some(&token), "GET", &path, "").await;
    assert_eq!(message(&none), (400, "Bad Request", "no opreation logs"));
    rest.set_status("team-a", "unlogged", json!({"jobName": "create-team-a-unlogged-job-12345"})).await;
    let gone = rest.send(Some(&token), "GET", &path, "").await;
    assert!(
        message(&gone).0 == 400 && message(&gone).2.contains("create-team-a-unlogged-job-12345"),
        "{gone:?}"
    );
    let maps = kube::Api::<ConfigMap>::namespaced(rest.admin().await, "team-a");
    let whole = |bytes: Vec<u8>| Some([("log.zst".to_owned(), ByteString(bytes))].into());
    let compressed = zstd::encode_all(&b"first\nsecond\nlast"[..], 0).unwrap();
    for (job, end, binary_data, expected) in [
        ("12345", "first\nlast", None, "first\nlast\n"),
        ("23456", "last", whole(compressed), "first\nsecond\nlast\n"),
    ] {
        let job = format!("create-team-a-unlogged-job-{job}");
        let stored = ConfigMap {
            metadata: ObjectMeta { name: Some(format!("{job}-log")), ..ObjectMeta::default() },
            data: Some([("log".to_owned(), end.to_owned())].into()),
            binary_data,
            ..ConfigMap::default()
        };
        maps.create(&kube::api::PostParams::default(), &stored).await.unwrap();
        rest.set_status("team-a", "unlogged", json!({"jobName": job})).await;
        // The last line is included.
        let log = eventually(rest, &token, &path, |answer| message(answer).2 == expected).await;
        assert_eq!(log["code"], "OK");
    }
}

#[tokio::test]
async fn a_body_that_names_another_cluster_region_or_namespace_is_refused() {
    let rest = rest().await;
    let token = rest.account("team-a", "mixer", EDIT).await;
    for (field, value) in [("namespace", "team-b"), ("name", "other"), ("region", "west")] {
        let answer = rest
            .send(Some(&token), "POST", &format!("{BASE}/mixed"), &json!({field: value}).to_string())
            .await;
        assert!(message(&answer).0 == 400 && message(&answer).2.starts_with(field), "{answer:?}");
    }
    assert!(rest.clusters("team-a").await.get_opt("mixed").await.unwrap().is_none());
}

#[tokio::test]
async fn b50_rights_of_the_caller_hold_and_a_name_never_reaches_a_shell() {
    let rest = rest().await;
    let viewer = rest.account("team-a", "viewer", &["get", "list", "watch"]).await;
    let denied = rest.send(Some(&viewer), "POST", &format!("{BASE}/denied"), &declaration("denied")).await;
    assert_eq!((denied.0, &denied.1["code"]), (403, &json!("Forbidden")));
    let editor = rest.account("team-a", "quoter", EDIT).await;
    for name in ["x%3Brm%20-rf%20%2F", "%2e%2e", "A", "-a"] {
        let answer = rest.send(Some(&editor), "POST", &format!("{BASE}/{name}"), "{}").await;
        assert!(
            answer.0 == 400 && message(&answer).2.contains("is not the name of a cluster"),
            "{name}: {answer:?}"
        );
    }
    let balancer = json!({"masterList": [{"ip": "10.0.0.1"}], "externalLoadBalancer": "$(id)"}).to_string();
    let answer = rest.send(Some(&editor), "POST", &format!("{BASE}/balanced"), &balancer).await;
    assert!(answer.0 == 400 && message(&answer).2.contains("externalLoadBalancer"), "{answer:?}");
}
