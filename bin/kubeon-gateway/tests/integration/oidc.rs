//! Callers with tokens of an OpenID Connect provider.

use serde_json::{Value, json};

use crate::provider::unsigned;
use crate::support::{OIDC_USER, RestServer, rest};

const LIST: &str = "/api/v2/namespaces/team-a/clusters";

async fn list(rest: &RestServer, token: &str) -> (u16, Value) {
    rest.send(Some(token), "GET", LIST, "").await
}

#[tokio::test]
async fn a_named_user_of_the_provider_acts_with_the_users_own_rights() {
    let rest = rest().await;
    let token = rest.provider.token(&rest.provider.claims(OIDC_USER));
    let denied = list(rest, &token).await;
    assert_eq!(denied.0, 403, "the group of the token was not named by the installer: {denied:?}");
    let user = format!("{}#{OIDC_USER}", rest.provider.issuer);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": "team-b", "name": OIDC_USER},
        "rules": [{"apiGroups": ["ecs.yun.com"], "resources": ["kubernetesclusters"], "verbs": ["create", "list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "team-b", "name": OIDC_USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": OIDC_USER},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]});
    let text = kubeon_install::manifest::documents(&[role, binding]).unwrap();
    rest.server.apply(&rest.server.write_file("oidc.yaml", &text).unwrap()).await.unwrap();
    let body =
        json!({"metadata": {"name": "by-dora"}, "spec": {"cluster": {"masterList": [{"ip": "10.3.0.1"}]}}});
    let path = "/api/v2/namespaces/team-b/clusters";
    let created = rest.send(Some(&token), "POST", path, &body.to_string()).await;
    assert_eq!(created.0, 201, "{created:?}");
    assert_eq!(rest.send(Some(&token), "POST", LIST, &body.to_string()).await.0, 403);
}

#[tokio::test]
async fn a_user_of_the_provider_whom_the_installer_did_not_name_is_refused() {
    let rest = rest().await;
    let answer = list(rest, &rest.provider.token(&rest.provider.claims("mallory"))).await;
    let detail = answer.1["detail"].as_str().unwrap_or_default();
    assert!(answer.0 == 403 && detail.contains("--impersonate-user"), "{answer:?}");
}

#[tokio::test]
async fn tokens_that_are_not_for_the_gateway_or_not_by_the_provider_are_refused() {
    let rest = rest().await;
    let good = rest.provider.claims(OIDC_USER);
    let with = |field: &str, value: Value| {
        let mut claims = good.clone();
        claims[field] = value;
        claims
    };
    let long_ago = good["iat"].as_i64().unwrap() - 3600;
    for (token, reason) in [
        (rest.provider.token(&with("exp", json!(long_ago))), "ExpiredSignature"),
        (rest.provider.token(&with("exp", Value::Null)), "exp"),
        (rest.provider.token(&with("nbf", json!(long_ago + 7200))), "ImmatureSignature"),
        (rest.provider.token(&with("aud", json!("another"))), "InvalidAudience"),
        (rest.provider.token(&with("aud", Value::Null)), "aud"),
        (rest.provider.token(&with("sub", Value::Null)), "it has no claim sub"),
        (rest.provider.forged(&good), "InvalidSignature"),
        (unsigned(&good), "is not valid"),
        // The meta cluster does not know it either.
        (
            rest.provider.token(&with("iss", json!("https://elsewhere.example.org"))),
            "not valid in the meta cluster",
        ),
    ] {
        let answer = list(rest, &token).await;
        let detail = answer.1["detail"].as_str().unwrap_or_default();
        assert!(answer.0 == 401 && detail.contains(reason), "{reason}: {answer:?}");
        assert!(!detail.contains(&token), "{detail}");
    }
}

/// Strangers cannot make the gateway read the keys all the time, so a new key counts after some seconds.
#[tokio::test]
async fn a_new_key_of_the_provider_is_read() {
    let rest = rest().await;
    let provider = &rest.provider;
    let before = provider.token(&provider.claims("anybody"));
    assert_eq!(list(rest, &before).await.0, 403, "valid, and not named");
    provider.add("second");
    let after = provider.token_of("second", &provider.claims("anybody"));
    let mut last = list(rest, &after).await;
    for _ in 0..60 {
        if last.0 == 403 {
            return;
        }
        assert!(last.0 == 401 && last.1.to_string().contains("has no key second"), "{last:?}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        last = list(rest, &after).await;
    }
    panic!("{last:?}");
}
