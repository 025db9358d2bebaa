//! Version 2: operations and plans that callers ask for.

use serde_json::json;

use crate::support::{EDIT, eventually, rest};

const OPERATIONS: &str = "/api/v2/operations";

#[tokio::test]
async fn an_operation_is_created_changed_and_deleted_with_the_rights_of_the_caller() {
    let rest = rest().await;
    let admin = rest.server.admin_token();
    let alice = rest.account("team-a", "operations-a", EDIT).await;
    let body = json!({"metadata": {"name": "by-hand"},
        "spec": {"cluster": "elsewhere", "actionType": "shell", "action": "true", "image": "runner", "paused": true}});
    let refused = rest.send(Some(&alice), "POST", OPERATIONS, &body.to_string()).await;
    assert_eq!(refused.0, 403, "her rights on clusters do not include operations: {refused:?}");
    let created = rest.send(Some(admin), "POST", OPERATIONS, &body.to_string()).await;
    assert!(created.0 == 201 && created.1["name"] == "by-hand", "{created:?}");
    let again = rest.send(Some(admin), "POST", OPERATIONS, &body.to_string()).await;
    assert_eq!(again.0, 409, "{again:?}");
    let path = format!("{OPERATIONS}/by-hand");
    eventually(rest, admin, &path, |answer| answer.0 == 200).await;
    let typo = rest.send(Some(admin), "PATCH", &path, r#"{"spec":{"pausd":false}}"#).await;
    assert!(typo.0 == 422 && typo.1["detail"].as_str().unwrap().contains("pausd"), "{typo:?}");
    assert_eq!(rest.send(Some(&alice), "PATCH", &path, r#"{"spec":{"paused":false}}"#).await.0, 403);
    assert_eq!(rest.send(Some(admin), "PATCH", &path, r#"{"spec":{"paused":false}}"#).await.0, 200);
    assert_eq!(rest.send(Some(admin), "PATCH", &path, "[]").await.0, 400);
    assert_eq!(rest.send(Some(&alice), "DELETE", &path, "").await.0, 403);
    assert_eq!(rest.send(Some(admin), "DELETE", &path, "").await.0, 202);
    eventually(rest, admin, &path, |answer| answer.0 == 404).await;
}

#[tokio::test]
async fn a_change_is_planned_before_it_is_made() {
    let rest = rest().await;
    let token = rest.account("team-a", "planner", EDIT).await;
    rest.cluster_in("team-a", "foreseen", "Running").await;
    let path = "/api/v2/namespaces/team-a/clusters/foreseen/plan";
    let patch = json!({"spec": {"cluster": {"nodeList": [{"ip": "10.1.7.9"}]}}}).to_string();
    let planned = rest.send(Some(&token), "POST", path, &patch).await;
    assert_eq!(planned.0, 202, "{planned:?}");
    let object = rest.clusters("team-a").await.get("foreseen").await.unwrap();
    assert!(object.spec.plan);
    assert_eq!(json!(object.spec.cluster)["nodeList"][0]["ip"], "10.1.7.9");
    let refused = rest.send(Some(&token), "POST", path, r#"{"spec":[]}"#).await;
    assert!(refused.0 == 400 && refused.1["detail"].as_str().unwrap().starts_with("spec:"), "{refused:?}");
}

#[tokio::test]
async fn a_path_with_a_slash_at_its_end_leads_to_the_one_without_it() {
    let rest = rest().await;
    let agent = rest.agent(None);
    let request = http::Request::get(rest.url("/api/v2/operations/?limit=1"))
        .header("authorization", format!("Bearer {}", rest.server.admin_token()))
        .body(())
        .unwrap();
    let request = agent.configure_request(request).max_redirects(0).build();
    let answer = tokio::task::spawn_blocking(move || agent.run(request).unwrap()).await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()),
        (301, "/api/v2/operations?limit=1")
    );
    assert_eq!(rest.send(None, "GET", "/api/v2/operations/", "").await.0, 401);
}
