//! What each process may do, asked of the API server's own authorizer: what is denied counts as much as what is allowed.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use kubeon_install::names;
use serde_json::json;

use crate::world::*;

/// Verb, group, resource, namespace (empty: everywhere), name.
type Question = (&'static str, &'static str, &'static str, &'static str, &'static str);

async fn answers(user: &str, questions: &[(Question, bool)]) {
    let api: Api<SubjectAccessReview> = Api::all(world().await.admin().await);
    for ((verb, group, resource, namespace, name), wanted) in questions {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": user, "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name,
            }},
        });
        let asked = || async {
            let review = serde_json::from_value(review.clone()).unwrap();
            let answer = api.create(&PostParams::default(), &review).await.unwrap();
            (answer.status.unwrap().allowed == *wanted).then_some(())
        };
        eventually(&format!("{user} {verb} {resource}/{subresource} {namespace} {name}: {wanted}"), asked)
            .await;
    }
}

#[tokio::test]
async fn the_operator_reaches_its_namespaces_and_no_other() {
    let other: &'static str = world().await.namespace().await.leak();
    let user = names::service_account(names::NAMESPACE, names::OPERATOR);
    answers(
        &user,
        &[
            (("watch", "ecs.yun.com", "kubernetesclusters", "", ""), true),
            (("patch", "ecs.yun.com", "kubernetesclusters/status", other, ""), true),
            (("create", "kubeonkube.clay.io", "clusteroperations", "", ""), true),
            (("get", "", "secrets", "default", "x"), true),
            (("create", "batch", "jobs", "default", ""), true),
            (("get", "", "pods/log", names::NAMESPACE, "x"), true),
            (("update", "coordination.k8s.io", "leases", names::NAMESPACE, names::LEASE), true),
            (
                (
                    "patch",
                    "admissionregistration.k8s.io",
                    "validatingwebhookconfigurations",
                    "",
                    names::WEBHOOK_CONFIGURATION,
                ),
                true,
            ),
            (("get", "", "secrets", other, "x"), false),
            (("list", "", "secrets", "", ""), false),
            (("create", "batch", "jobs", other, ""), false),
            (("get", "", "configmaps", "kube-system", "x"), false),
            (("create", "", "pods", "default", ""), false),
            (("create", "", "pods/exec", "default", "x"), false),
            (("update", "coordination.k8s.io", "leases", names::NAMESPACE, "another"), false),
            (
                ("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "another"),
                false,
            ),
            (("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""), false),
            (("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", ""), false),
            (("create", "rbac.authorization.k8s.io", "rolebindings", "default", ""), false),
            (("impersonate", "", "users", "", ""), false),
            (("create", "ecs.yun.com", "kubernetesclusters", "default", ""), false),
            (("delete", "ecs.yun.com", "kubernetesclusters", "default", "x"), false),
            (("list", "", "nodes", "", ""), false),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_runner_may_patch_and_nothing_else() {
    let user = names::service_account("default", names::RUNNER);
    let mut questions = vec![
        (("patch", "", "secrets", "default", "x"), true),
        (("patch", "kubeonkube.clay.io", "clusteroperations/status", "", "x"), true),
        (("patch", "", "secrets", names::NAMESPACE, "x"), false),
        (("patch", "kubeonkube.clay.io", "clusteroperations", "", "x"), false),
        (("patch", "ecs.yun.com", "kubernetesclusters/status", "default", "x"), false),
    ];
    for verb in ["get", "list", "watch", "create", "update", "delete"] {
        questions.push(((verb, "", "secrets", "default", "x"), false));
        questions.push(((verb, "batch", "jobs", "default", "x"), false));
        questions.push(((verb, "", "pods", "default", "x"), false));
        questions.push(((verb, "", "configmaps", "default", "x"), false));
        questions.push(((verb, "kubeonkube.clay.io", "clusteroperations", "", "x"), false));
    }
    answers(&user, &questions).await;
}
