//! Callers with client certificates, and callers without credentials.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::support::{CERTIFIED_USER, EDIT, rest};

#[tokio::test]
async fn a_named_user_with_a_certificate_acts_with_the_users_own_rights() {
    let rest = rest().await;
    let agent = || rest.agent(Some(&rest.client_certificate(CERTIFIED_USER, &["system:masters"])));
    let get = |path: &str| http::Request::builder().method("GET").uri(rest.url(path));
    let denied = rest.send_with(agent(), get("/api/v2/clusters"), "").await;
    assert_eq!(denied.0, 403, "the group of the certificate was not named by the installer: {denied:?}");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": "team-a", "name": CERTIFIED_USER},
        "rules": [{"apiGroups": ["ecs.yun.com"], "resources": ["kubernetesclusters"], "verbs": ["create", "list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "team-a", "name": CERTIFIED_USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CERTIFIED_USER},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": CERTIFIED_USER}]});
    let text = kubeon_install::manifest::documents(&[role, binding]).unwrap();
    rest.server.apply(&rest.server.write_file("certified.yaml", &text).unwrap()).await.unwrap();
    let path = "/api/v2/namespaces/team-a/clusters";
    let body =
        json!({"metadata": {"name": "certified"}, "spec": {"cluster": {"masterList": [{"ip": "10.2.0.1"}]}}});
    let post = || http::Request::builder().method("POST").uri(rest.url(path));
    let created = rest.send_with(agent(), post(), &body.to_string()).await;
    assert_eq!(created.0, 201, "{created:?}");
    let elsewhere =
        http::Request::builder().method("POST").uri(rest.url("/api/v2/namespaces/team-b/clusters"));
    assert_eq!(rest.send_with(agent(), elsewhere, &body.to_string()).await.0, 403);
}

#[tokio::test]
async fn another_user_with_a_certificate_is_refused() {
    let rest = rest().await;
    let agent = rest.agent(Some(&rest.client_certificate("mallory", &["system:masters"])));
    let get = http::Request::builder().method("GET").uri(rest.url("/api/v2/clusters"));
    let answer = rest.send_with(agent, get, "").await;
    assert!(
        answer.0 == 403 && answer.1["detail"].as_str().unwrap().contains("--impersonate-user"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn b50_every_route_needs_credentials() {
    let rest = rest().await;
    let cluster = "/api/v1/region/default/cluster/x";
    let mut routes: Vec<(String, String)> = Vec::new();
    let description: serde_json::Value = serde_json::from_str(&kubeon_gateway::openapi().unwrap()).unwrap();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let path =
            path.replace("{region}", "default").replace("{name}", "x").replace("{namespace}", "default");
        routes
            .extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    assert!(routes.len() > 20 && routes.iter().any(|(_, path)| path == cluster), "{routes:?}");
    routes.extend(["/", "/api/v1/none", "/metrics"].map(|path| ("GET".to_owned(), path.to_owned())));
    for (method, path) in routes {
        for token in [None, Some("not-a-token")] {
            let answer = rest.send(token, &method, &path, "{}").await;
            assert_eq!(answer.0, 401, "{method} {path}: {answer:?}");
            let envelope = path.starts_with("/api/v1/");
            assert_eq!(answer.1.get("code").is_some(), envelope, "{method} {path}: {answer:?}");
        }
    }
}

/// The gateway and the API server each remember a token for 10 s.
#[tokio::test]
async fn the_token_of_a_deleted_account_is_of_nobody() {
    let rest = rest().await;
    let path = "/api/v2/namespaces/team-a/clusters";
    let used = rest.account("team-a", "dismissed-later", EDIT).await;
    assert_eq!(rest.send(Some(&used), "GET", path, "").await.0, 200);
    let unused = rest.account("team-a", "dismissed-at-once", EDIT).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(rest.admin().await, "team-a");
    for (name, token) in [("dismissed-at-once", unused), ("dismissed-later", used)] {
        accounts.delete(name, &DeleteParams::default()).await.unwrap();
        let refused = async {
            while rest.send(Some(&token), "GET", path, "").await.0 != 401 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(40), refused).await.expect(name);
    }
}

#[tokio::test]
async fn the_description_and_its_page_are_the_same_for_everybody() {
    let rest = rest().await;
    let description = rest.send(None, "GET", "/api/openapi.json", "").await;
    assert!(description.0 == 200 && description.1["openapi"] == "3.1.0", "{description:?}");
    let page = rest.send(None, "GET", "/docs/", "").await;
    assert!(page.0 == 200 && page.1.as_str().unwrap().contains("swagger-ui"), "{page:?}");
}
