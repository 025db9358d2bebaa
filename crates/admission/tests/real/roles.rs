//! The permissions of each process, checked with the API server's authorizer. Denied requests are checked as
//! well.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use kubeon_install::{InstallOptions, names, rbac};
use serde_json::{Value, json};

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

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const KEEP: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];
/// A namespace that the operator does not watch.
const ELSEWHERE: &str = "kube-public";

/// Group, resource, namespaces, name, and the permitted verbs.
type Right = (&'static str, &'static str, &'static [&'static str], &'static str, &'static [&'static str]);

/// All requests of the operator; similar requests must be denied.
const RIGHTS: &[Right] = &[
    ("ecs.yun.com", "kubernetesclusters", &["", ELSEWHERE], "x", &["get", "list", "patch", "watch"]),
    ("ecs.yun.com", "kubernetesclusters/status", &["", ELSEWHERE], "x", &["patch"]),
    ("ecs.yun.com", "kubernetesclusters/finalizers", &["", ELSEWHERE], "x", &["update"]),
    ("kubeonkube.clay.io", "clusters", &[""], "x", &["get", "list", "watch"]),
    ("kubeonkube.clay.io", "clusters/status", &[""], "x", &["patch"]),
    ("kubeonkube.clay.io", "clusters/finalizers", &[""], "x", &[]),
    ("kubeonkube.clay.io", "clusteroperations", &[""], "x", KEEP),
    ("kubeonkube.clay.io", "clusteroperations/status", &[""], "x", &["patch"]),
    ("kubeonkube.clay.io", "clusteroperations/finalizers", &[""], "x", &[]),
    ("", "configmaps", &[names::NAMESPACE, "default"], "x", KEEP),
    ("", "secrets", &[names::NAMESPACE, "default"], "x", KEEP),
    (
        "batch",
        "jobs",
        &[names::NAMESPACE, "default"],
        "x",
        &["create", "delete", "get", "list", "patch", "watch"],
    ),
    ("batch", "jobs/status", &[names::NAMESPACE, "default"], "x", &[]),
    ("", "pods", &[names::NAMESPACE, "default"], "x", &["list", "watch"]),
    ("", "pods/log", &[names::NAMESPACE, "default"], "x", &["get"]),
    ("", "pods/exec", &[names::NAMESPACE, "default"], "x", &[]),
    ("", "serviceaccounts", &[names::NAMESPACE, "default"], "x", &[]),
    ("", "serviceaccounts/token", &[names::NAMESPACE, "default"], "kubeon-runner", &[]),
    ("", "configmaps", &["", ELSEWHERE], "x", &[]),
    ("", "secrets", &["", ELSEWHERE], "x", &[]),
    ("batch", "jobs", &["", ELSEWHERE], "x", &[]),
    ("", "pods", &["", ELSEWHERE], "x", &[]),
    ("", "pods/log", &["", ELSEWHERE], "x", &[]),
    // The webhook's certificate is replaced as a whole, only in the operator's namespace.
    (
        "",
        "secrets",
        &[names::NAMESPACE],
        names::WEBHOOK_SECRET,
        &["create", "delete", "get", "list", "patch", "update", "watch"],
    ),
    ("", "secrets", &["default"], names::WEBHOOK_SECRET, KEEP),
    ("coordination.k8s.io", "leases", &[names::NAMESPACE], names::LEASE, &["create", "get", "update"]),
    ("coordination.k8s.io", "leases", &[names::NAMESPACE], "another", &["create"]),
    ("coordination.k8s.io", "leases", &["default", "kube-system"], names::LEASE, &[]),
    ("events.k8s.io", "events", &["default", ELSEWHERE], "x", &["create", "patch"]),
    ("", "events", &["default"], "x", &[]),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        &[""],
        names::WEBHOOK_CONFIGURATION,
        &["list", "patch", "watch"],
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        &[""],
        names::WEBHOOK_CONFIGURATION,
        &["list", "patch", "watch"],
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", &[""], "another", &[]),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &[""], "another", &[]),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", &[""], "kubeon-commands", &[]),
    ("rbac.authorization.k8s.io", "roles", &[names::NAMESPACE, "default"], names::OPERATOR, &[]),
    ("rbac.authorization.k8s.io", "rolebindings", &[names::NAMESPACE, "default"], names::OPERATOR, &[]),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &[""], names::OPERATOR, &[]),
    ("apps", "deployments", &[names::NAMESPACE], names::OPERATOR, &[]),
    ("", "namespaces", &[""], "default", &[]),
    ("", "nodes", &[""], "x", &[]),
];

#[tokio::test]
async fn the_operator_may_do_what_it_does_and_nothing_beside_it() {
    let mut questions: Vec<(Question, bool)> = Vec::new();
    for (group, resource, namespaces, name, used) in RIGHTS {
        for namespace in *namespaces {
            let ask =
                |verb: &'static str| ((verb, *group, *resource, *namespace, *name), used.contains(&verb));
            questions.extend(VERBS.map(ask));
        }
    }
    answers(&names::service_account(names::NAMESPACE, names::OPERATOR), &questions).await;
}

/// A service account with the operator's permissions in this namespace, except for some.
async fn account_without(namespace: &str, name: &str, without: impl Fn(&mut Value)) -> kube::Client {
    let world = world().await;
    let options = InstallOptions {
        namespace: namespace.to_owned(),
        watch_namespaces: Vec::new(),
        ..InstallOptions::default()
    };
    let admin = world.admin().await;
    let token = world.server.service_account(namespace, name).await.unwrap();
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    for mut object in rbac::objects(&options).unwrap() {
        let is_role = object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"));
        if object["metadata"]["name"] != names::OPERATOR || object["kind"] == "ServiceAccount" {
            continue;
        }
        if is_role {
            let rules = object["rules"].as_array_mut().unwrap();
            rules.iter_mut().for_each(&without);
            rules.retain(|rule| rule["verbs"] != json!([]));
        } else {
            object["roleRef"]["name"] = json!(name);
            object["subjects"] = subjects.clone();
        }
        object["metadata"]["name"] = json!(name);
        apply(&admin, &object).await;
    }
    client_of(&world.server.kubeconfig_of_token(&token)).await
}

/// An API server that protects owner references requires permissions that no request of the operator names.
#[tokio::test]
async fn what_looks_unused_is_needed_where_owner_references_are_guarded() {
    let (world, admin) = (world().await, world().await.admin().await);
    let namespace = world.namespace().await;
    let object = cluster(&namespace, "owner", "10.25.0", &[]);
    create(&admin, &object).await.unwrap();
    let owner = clusters(&admin, &namespace).get("owner").await.unwrap();
    let owned = |name: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [{
                "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "name": "owner",
                "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true,
            }]},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        })
    };
    let drop_verb = |rule: &mut Value, resource: &str, verb: &str| {
        if rule["resources"] == json!([resource]) {
            rule["verbs"].as_array_mut().unwrap().retain(|one| one != verb);
        }
    };
    for (name, resource, verb, words) in [
        ("all-rights", "", "", ""),
        ("no-finalizers", "kubernetesclusters/finalizers", "update", "cannot set blockOwnerDeletion"),
    ] {
        let client = account_without(&namespace, name, |rule| drop_verb(rule, resource, verb)).await;
        let wanted = || async {
            match create_dry(&client, &owned(name)).await {
                Ok(()) => words.is_empty().then_some(()),
                Err(said) => (!words.is_empty() && said.contains(words)).then_some(()),
            }
        };
        eventually(&format!("{name}: {words}"), wanted).await;
    }
}

#[tokio::test]
async fn a_runner_may_patch_secrets_and_config_maps_and_the_status_of_operations() {
    let user = names::service_account("default", names::RUNNER);
    let mut questions = vec![
        (("patch", "", "secrets", "default", "x"), true),
        (("patch", "kubeonkube.clay.io", "clusteroperations/status", "", "x"), true),
        (("get", "kubeonkube.clay.io", "clusteroperations/status", "", "x"), true),
        (("patch", "", "secrets", names::NAMESPACE, "x"), false),
        (("patch", "kubeonkube.clay.io", "clusteroperations", "", "x"), false),
        (("patch", "ecs.yun.com", "kubernetesclusters/status", "default", "x"), false),
    ];
    for verb in ["get", "list", "watch", "create", "update", "delete"] {
        questions.push(((verb, "", "secrets", "default", "x"), false));
        questions.push(((verb, "batch", "jobs", "default", "x"), false));
        questions.push(((verb, "", "pods", "default", "x"), false));
        questions.push(((verb, "", "configmaps", "default", "x"), verb == "create"));
        questions.push(((verb, "kubeonkube.clay.io", "clusteroperations", "", "x"), false));
    }
    answers(&user, &questions).await;
}
