//! Version 2: clusters and operations, within the rights of the caller.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubeon_api::ClusterOperation;
use serde_json::{Value, json};

use crate::support::{EDIT, eventually, rest};

const TEAM_A: &str = "/api/v2/namespaces/team-a/clusters";

#[tokio::test]
async fn a_cluster_is_declared_read_changed_and_deleted() {
    let rest = rest().await;
    let token = rest.account("team-a", "author", EDIT).await;
    let body = json!({"metadata": {"name": "lived", "labels": {"tier": "gold"}}, "spec": {"cluster": {
        "masterList": [{"ip": "10.1.0.1"}], "nodeList": [{"ip": "10.1.0.2"}],
        "authConfig": {"username": "ops", "password": "hunter2"}}}});
    let created = rest.send(Some(&token), "POST", TEAM_A, &body.to_string()).await;
    assert_eq!(created.0, 201, "{created:?}");
    assert!(!created.1.to_string().contains("hunter2"), "{created:?}");
    let path = format!("{TEAM_A}/lived");
    let read = eventually(rest, &token, &path, |answer| answer.0 == 200).await;
    assert!(
        !read.to_string().contains("hunter2") && read["spec"]["cluster"]["authConfig"]["username"] == "ops"
    );
    assert_eq!(
        (&read["masters"], &read["workers"], &read["labels"]["tier"]),
        (&json!(1), &json!(1), &json!("gold"))
    );
    let patch = r#"{"spec":{"paused":true}}"#;
    let changed = rest.send(Some(&token), "PATCH", &path, patch).await;
    assert!(changed.0 == 200 && changed.1["spec"]["paused"] == true, "{changed:?}");
    let stored = rest.clusters("team-a").await.get("lived").await.unwrap();
    assert_eq!(stored.spec.cluster.auth_config.unwrap().password.unwrap().expose(), "hunter2");
    assert_eq!(rest.send(Some(&token), "DELETE", &path, "").await.0, 202);
    eventually(rest, &token, &path, |answer| answer.0 == 404).await;
}

#[tokio::test]
async fn errors_are_problems_that_name_the_object_and_the_cause() {
    let rest = rest().await;
    let token = rest.account("team-a", "clumsy", EDIT).await;
    let detail = |answer: &(u16, Value)| answer.1["detail"].as_str().unwrap_or_default().to_owned();
    let absent = rest.send(Some(&token), "GET", &format!("{TEAM_A}/nowhere"), "").await;
    assert!(
        absent.0 == 404 && absent.1["title"] == "Not Found" && detail(&absent).contains("nowhere"),
        "{absent:?}"
    );
    let typo = json!({"metadata": {"name": "typo"}, "spec": {"cluster": {"masterLists": []}}});
    let typo = rest.send(Some(&token), "POST", TEAM_A, &typo.to_string()).await;
    assert!(typo.0 == 400 && detail(&typo).contains("masterLists"), "{typo:?}");
    let twice =
        json!({"metadata": {"name": "twice"}, "spec": {"cluster": {"masterList": [{"ip": "10.1.1.1"}]}}});
    assert_eq!(rest.send(Some(&token), "POST", TEAM_A, &twice.to_string()).await.0, 201);
    let again = rest.send(Some(&token), "POST", TEAM_A, &twice.to_string()).await;
    assert!(again.0 == 409 && detail(&again).contains("already exists"), "{again:?}");
    for (path, field) in [
        ("?limit=0", "limit"),
        ("?continue=x", "continue"),
        ("?colour=red", "colour"),
        ("?limit=1&limit=2", "limit"),
    ] {
        let answer = rest.send(Some(&token), "GET", &format!("{TEAM_A}{path}"), "").await;
        assert!(answer.0 == 400 && detail(&answer).contains(field), "{path}: {answer:?}");
    }
    assert_eq!(rest.send(Some(&token), "PUT", TEAM_A, "{}").await.0, 405);
    assert_eq!(rest.send(Some(&token), "GET", "/api/v3", "").await.0, 404);
}

#[tokio::test]
async fn a_tenant_sees_and_changes_only_its_own_namespace() {
    let rest = rest().await;
    let alice = rest.account("team-a", "alice", EDIT).await;
    let bob = rest.account("team-b", "bob", EDIT).await;
    rest.cluster_in("team-b", "private", "Running").await;
    let theirs = "/api/v2/namespaces/team-b/clusters";
    eventually(rest, &bob, &format!("{theirs}/private"), |answer| answer.0 == 200).await;
    let body = json!({"metadata": {"name": "intruder"}, "spec": {}}).to_string();
    for (method, path, body) in [
        ("GET", theirs.to_owned(), ""),
        ("GET", format!("{theirs}/private"), ""),
        ("GET", format!("{theirs}/absent"), ""),
        ("GET", format!("{theirs}/private/hosts"), ""),
        ("PATCH", format!("{theirs}/private"), r#"{"spec":{"paused":true}}"#),
        ("DELETE", format!("{theirs}/private"), ""),
        ("POST", format!("{theirs}/private/retry"), ""),
        ("POST", theirs.to_owned(), body.as_str()),
        ("GET", "/api/v2/clusters".to_owned(), ""),
        ("GET", "/api/v2/operations".to_owned(), ""),
        ("GET", "/api/v2/operations?namespace=team-b".to_owned(), ""),
        ("GET", "/api/v2/operations/absent".to_owned(), ""),
        ("GET", "/api/v2/watch/clusters?namespace=team-b".to_owned(), ""),
        ("GET", "/api/v2/watch/clusters".to_owned(), ""),
    ] {
        let answer = rest.send(Some(&alice), method, &path, body).await;
        assert_eq!(answer.0, 403, "{method} {path}: {answer:?}");
    }
    let object = rest.clusters("team-b").await.get("private").await.unwrap();
    assert!(!object.spec.paused && object.metadata.deletion_timestamp.is_none());
    let own = rest.send(Some(&bob), "GET", theirs, "").await;
    assert!(own.1["items"].as_array().unwrap().iter().all(|item| item["namespace"] == "team-b"), "{own:?}");
}

#[tokio::test]
async fn lists_have_pages_and_filters() {
    let rest = rest().await;
    let admin = rest.server.admin_token();
    for (name, phase) in [("paged-1", "Running"), ("paged-2", "Failed"), ("paged-3", "Running")] {
        rest.cluster_in("default", name, phase).await;
    }
    let path = "/api/v2/namespaces/default/clusters";
    let count = |answer: &(u16, Value)| answer.1["items"].as_array().map_or(0, Vec::len);
    eventually(rest, admin, &format!("{path}?phase=Running"), |answer| count(answer) == 2).await;
    let failed = eventually(rest, admin, &format!("{path}?phase=Failed"), |answer| count(answer) == 1).await;
    assert_eq!(failed["items"][0]["name"], "paged-2");
    let first = rest.send(Some(admin), "GET", &format!("{path}?limit=2"), "").await.1;
    assert_eq!((&first["remaining"], &first["continue"]), (&json!(1), &json!("default/paged-2")));
    let last = rest.send(Some(admin), "GET", &format!("{path}?limit=2&continue=default/paged-2"), "").await.1;
    assert_eq!((&last["items"][0]["name"], last.get("continue")), (&json!("paged-3"), None));
    let other = rest.send(Some(admin), "GET", &format!("{path}?region=west"), "").await.1;
    assert_eq!(other["items"], json!([]));
}

#[tokio::test]
async fn who_may_see_a_cluster_sees_its_operations() {
    let rest = rest().await;
    let alice = rest.account("team-a", "operator-a", EDIT).await;
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    let object = |name: &str, namespace: &str| -> ClusterOperation {
        serde_json::from_value(json!({
            "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
            "metadata": {"name": name, "labels": {"kubeon.io/cluster-namespace": namespace, "kubeon.io/cluster-uid": "u"}},
            "spec": {"cluster": "seen", "actionType": "kubeon", "action": "creating", "image": "runner"},
        }))
        .unwrap()
    };
    operations.create(&PostParams::default(), &object("seen-by-a", "team-a")).await.unwrap();
    operations.create(&PostParams::default(), &object("seen-by-b", "team-b")).await.unwrap();
    let read = eventually(rest, &alice, "/api/v2/operations/seen-by-a", |answer| answer.0 == 200).await;
    assert_eq!((&read["status"], &read["namespace"]), (&json!("Waiting"), &json!("team-a")));
    let foreign = rest.send(Some(&alice), "GET", "/api/v2/operations/seen-by-b", "").await;
    let absent = rest.send(Some(&alice), "GET", "/api/v2/operations/seen-by-x", "").await;
    assert_eq!((foreign.0, absent.0), (403, 403));
    assert_eq!(
        foreign.1["detail"], absent.1["detail"],
        "a foreign operation and an absent one look the same"
    );
    let list = rest.send(Some(&alice), "GET", "/api/v2/operations?namespace=team-a&cluster=seen", "").await.1;
    assert_eq!(
        (list["items"].as_array().unwrap().len(), &list["items"][0]["name"]),
        (1, &json!("seen-by-a"))
    );
    let log = rest.send(Some(&alice), "GET", "/api/v2/operations/seen-by-a/logs", "").await;
    assert!(log.0 == 404 && log.1["detail"].as_str().unwrap().contains("has no log"), "{log:?}");
    let cancel = rest.send(Some(&alice), "POST", "/api/v2/operations/seen-by-a/cancel", "").await;
    assert_eq!(cancel.0, 403, "her rights on clusters do not include operations");
    let admin = rest.server.admin_token();
    assert_eq!(rest.send(Some(admin), "POST", "/api/v2/operations/seen-by-a/cancel", "").await.0, 202);
    assert!(operations.get("seen-by-a").await.unwrap().spec.cancelled);
}

#[tokio::test]
async fn hosts_are_listed_in_pages_also_before_they_are_observed() {
    let rest = rest().await;
    let token = rest.account("team-a", "host-reader", &["get"]).await;
    rest.cluster_in("team-a", "hosted", "Running").await;
    let nodes = json!([
        {"ip": "10.0.0.1", "name": "m1", "role": "master,etcd", "ready": true, "version": "v1.36.3"},
        {"ip": "10.0.0.9", "role": "worker", "ready": false}]);
    rest.set_status("team-a", "hosted", json!({"phase": "Running", "nodes": nodes})).await;
    let path = format!("{TEAM_A}/hosted/hosts");
    let all = eventually(rest, &token, &path, |answer| {
        answer.1["items"].as_array().is_some_and(|items| items.len() == 3)
    })
    .await;
    assert_eq!(
        (&all["items"][0]["version"], &all["items"][1]),
        (&json!("v1.36.3"), &json!({"ip": "10.0.0.2", "role": "worker"}))
    );
    let addresses = |answer: &Value| {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|host| host["ip"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (query, expected) in [
        ("", vec!["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
        ("role=worker", vec!["10.0.0.2", "10.0.0.9"]),
        ("role=etcd", vec!["10.0.0.1"]),
        ("ready=false", vec!["10.0.0.9"]),
        ("ready=true&role=worker", vec![]),
        ("limit=2", vec!["10.0.0.1", "10.0.0.2"]),
        ("limit=2&continue=2", vec!["10.0.0.9"]),
    ] {
        let listed = rest.send(Some(&token), "GET", &format!("{path}?{query}"), "").await.1;
        assert_eq!(addresses(&listed), expected, "{query}");
        assert_eq!(listed.get("continue"), (query == "limit=2").then_some(&json!("2")), "{query}");
    }
    for wrong in ["limit=0", "ready=maybe", "continue=10.0.0.1", "phase=Running"] {
        assert_eq!(rest.send(Some(&token), "GET", &format!("{path}?{wrong}"), "").await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn steps_are_read_with_the_rights_of_the_caller() {
    let rest = rest().await;
    let admin = rest.server.admin_token();
    let (alice, foreigner) =
        (rest.account("team-a", "steps-a", EDIT).await, rest.account("team-b", "steps-b", EDIT).await);
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    let object = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": "stepped", "labels": {"kubeon.io/cluster-namespace": "team-a", "kubeon.io/cluster-uid": "u"}},
        "spec": {"cluster": "stepped", "actionType": "kubeon", "action": "creating", "image": "runner"},
    });
    let object: ClusterOperation = serde_json::from_value(object).unwrap();
    operations.create(&PostParams::default(), &object).await.unwrap();
    let path = "/api/v2/operations/stepped/steps";
    let early = eventually(rest, admin, path, |answer| answer.0 == 200).await;
    assert_eq!(early, json!({"complete": false, "items": [], "remaining": 0}));

    let record = |name: &str, result: &str| {
        json!({"host": "10.0.0.1", "name": name, "stage": "etcd", "step": "start etcd", "why": "it does not run",
            "started": "2026-01-01T00:00:00.000000Z", "result": result})
    };
    let lines = format!("{}\n{}\n", record("h1", "Retried"), record("h2", "Interrupted"));
    let stored: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "stepped-job-log", "namespace": "team-a"},
        "data": {"log": "the log\n"},
        "binaryData": {"steps.json.zst": ByteString(zstd::encode_all(lines.as_bytes(), 0).unwrap())},
    }))
    .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(rest.admin().await, "team-a");
    maps.create(&PostParams::default(), &stored).await.unwrap();
    let job = json!({"namespace": "team-a", "name": "stepped-job"});
    let status = Patch::Merge(json!({"status": {"status": "Failed", "jobRef": job}}));
    operations.patch_status("stepped", &PatchParams::default(), &status).await.unwrap();
    let all = eventually(rest, admin, path, |answer| answer.1["complete"] == true).await;
    let names = |answer: &Value| {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|step| step["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&all), ["h1", "h2"]);
    assert_eq!(
        (&all["items"][0]["result"], &all["items"][0]["why"]),
        (&json!("Retried"), &json!("it does not run"))
    );
    for (query, expected) in
        [("host=h2", vec!["h2"]), ("host=10.0.0.1&result=Retried", vec!["h1"]), ("result=Failed", vec![])]
    {
        let selected = rest.send(Some(admin), "GET", &format!("{path}?{query}"), "").await.1;
        assert_eq!(names(&selected), expected, "{query}");
    }
    let first = rest.send(Some(admin), "GET", &format!("{path}?limit=1"), "").await.1;
    assert_eq!((names(&first), &first["remaining"]), (vec!["h1".to_owned()], &json!(1)));
    let next = format!("{path}?limit=1&continue={}", first["continue"].as_str().unwrap());
    let last = rest.send(Some(admin), "GET", &next, "").await.1;
    assert_eq!((names(&last), last.get("continue")), (vec!["h2".to_owned()], None));
    assert_eq!(rest.send(Some(admin), "GET", &format!("{path}?continue=x"), "").await.0, 400);
    assert_eq!(names(&rest.send(Some(&alice), "GET", path, "").await.1), ["h1", "h2"]);
    let refused = rest.send(Some(&foreigner), "GET", path, "").await;
    assert_eq!(refused.0, 403, "{refused:?}");
}

#[tokio::test]
async fn a_plan_is_approved_by_who_may_change_its_cluster() {
    let rest = rest().await;
    let (alice, reader) =
        (rest.account("team-a", "approver", EDIT).await, rest.account("team-a", "reader", &["get"]).await);
    rest.cluster_in("team-a", "planned", "Running").await;
    let cluster = rest.clusters("team-a").await.get("planned").await.unwrap();
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    for (name, plan) in [("plan-of-planned", true), ("change-of-planned", false)] {
        let object = json!({
            "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
            "metadata": {"name": name, "labels": {
                "kubeon.io/cluster-namespace": "team-a", "kubeon.io/cluster-uid": cluster.uid().unwrap()}},
            "spec": {"cluster": "planned", "actionType": "kubeon", "action": "scaling-up", "image": "runner", "plan": plan},
        });
        let object: ClusterOperation = serde_json::from_value(object).unwrap();
        operations.create(&PostParams::default(), &object).await.unwrap();
    }
    let path = |name: &str| format!("/api/v2/operations/{name}/approve");
    eventually(rest, &alice, "/api/v2/operations/plan-of-planned", |answer| answer.0 == 200).await;
    let early = rest.send(Some(&alice), "POST", &path("plan-of-planned"), "").await;
    assert!(
        early.0 == 409 && early.1["detail"].as_str().unwrap().contains("its plan is not made"),
        "{early:?}"
    );
    let other = rest.send(Some(&alice), "POST", &path("change-of-planned"), "").await;
    assert!(other.0 == 409 && other.1["detail"].as_str().unwrap().contains("it makes no plan"), "{other:?}");
    let status = Patch::Merge(json!({"status": {"status": "Succeeded"}}));
    operations.patch_status("plan-of-planned", &PatchParams::default(), &status).await.unwrap();
    let seen = |answer: &(u16, Value)| answer.1["status"] == "Succeeded" && answer.1["plans"] == true;
    eventually(rest, &alice, "/api/v2/operations/plan-of-planned", seen).await;
    let refused = rest.send(Some(&reader), "POST", &path("plan-of-planned"), "").await;
    assert_eq!(refused.0, 403, "{refused:?}");
    assert_eq!(rest.send(Some(&alice), "POST", &path("plan-of-planned"), "").await.0, 202);
    let object = rest.clusters("team-a").await.get("planned").await.unwrap();
    assert_eq!(object.annotations()["kubeon.io/approve"], "plan-of-planned");
}

#[tokio::test]
async fn a_failed_operation_is_repeated() {
    let rest = rest().await;
    let token = rest.account("team-a", "repeater", EDIT).await;
    rest.cluster_in("team-a", "stumbled", "Running").await;
    let path = format!("{TEAM_A}/stumbled/retry");
    let running = rest.send(Some(&token), "POST", &path, "").await;
    assert!(running.0 == 409 && running.1["detail"].as_str().unwrap().contains("Running"), "{running:?}");
    rest.set_status("team-a", "stumbled", json!({"phase": "Failed"})).await;
    assert_eq!(rest.send(Some(&token), "POST", &path, "").await.0, 202);
    let object = rest.clusters("team-a").await.get("stumbled").await.unwrap();
    assert_eq!(object.annotations()["app.kubernetes.io/operation"], "creating");
}
