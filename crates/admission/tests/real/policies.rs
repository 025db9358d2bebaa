//! The policies, by the users that they apply to. Case numbers are those of contract B.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test]
async fn only_the_operator_says_how_it_went() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let object = cluster(&namespace, "a", "10.1.0", &[2]);
    create(&admin, &object).await.unwrap();
    put(world, &object, "Running", true).await;
    for word in ["scale-up-finished", "explode"] {
        refused(
            ask(&admin, &object, word).await,
            &format!("metadata.annotations[app.kubernetes.io/operation]: {word} is not for clients to write"),
        );
    }
    let applied = json!({"metadata": {"annotations": {"app.kubernetes.io/spec": "{}"}}});
    refused(
        change(&admin, &object, applied.clone()).await,
        "metadata.annotations[app.kubernetes.io/spec]: is written by the operator alone",
    );
    let operator = world.operator().await;
    ask(&operator, &object, "scale-up-finished").await.unwrap();
    change(&operator, &object, applied).await.unwrap();
}

/// B 1: clients create with an empty applied spec and the word `creating`.
#[tokio::test]
async fn a_client_creates_and_nothing_else_from_nothing() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let asking = |word: &str, name: &str, net: &str| {
        let notes = json!({"app.kubernetes.io/operation": word, "app.kubernetes.io/spec": ""});
        with(cluster(&namespace, name, net, &[]), "/metadata/annotations", notes)
    };
    create(&admin, &asking("creating", "a", "10.2.0")).await.unwrap();
    let refusal = create(&admin, &asking("scaling-up", "b", "10.2.1")).await;
    refused(refusal, "current operation is [],only in running,failed can be start next task");
    let forged = with(
        cluster(&namespace, "c", "10.2.2", &[]),
        "/metadata/annotations",
        json!({"app.kubernetes.io/spec": "{}"}),
    );
    refused(create(&admin, &forged).await, "is written by the operator alone");
}

/// B 6, 7, 8.
#[tokio::test]
async fn commands_wait_for_running_or_failed() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let object = cluster(&namespace, "a", "10.3.0", &[2]);
    create(&admin, &object).await.unwrap();
    for phase in ["Creating", "Prechecking", "Scaling", "Terminating"] {
        put(world, &object, phase, true).await;
        refused(
            ask(&admin, &object, "scaling-up").await,
            &format!("current operation is [{phase}],only in running,failed can be start next task"),
        );
        refused(
            ask(&admin, &object, "terminating").await,
            &format!("current operation is [{phase}],only in running,failed can be delete cluster"),
        );
    }
    for phase in ["Running", "Failed"] {
        put(world, &object, phase, true).await;
        ask(&admin, &object, "scaling-up").await.unwrap();
        ask(&world.operator().await, &object, "scale-up-failed").await.unwrap();
    }
}

/// B 30, 31.
#[tokio::test]
async fn a_cluster_is_created_once() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let object = cluster(&namespace, "a", "10.4.0", &[2]);
    create(&admin, &object).await.unwrap();
    put(world, &object, "Failed", false).await;
    ask(&admin, &object, "creating").await.unwrap();
    ask(&world.operator().await, &object, "create-finished").await.unwrap();
    put(world, &object, "Running", true).await;
    refused(
        ask(&admin, &object, "creating").await,
        "creating is for a cluster that is new or whose creation failed; this one is made already",
    );
}

#[tokio::test]
async fn a_protected_cluster_stays() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    for (index, name) in
        ["ecs.yun.com/deletion-protection", "kubeon.io/deletion-protection"].into_iter().enumerate()
    {
        let object = cluster(&namespace, &format!("a{index}"), &format!("10.5.{index}"), &[]);
        let object = with(object, "/metadata/annotations", json!({name: "true"}));
        create(&admin, &object).await.unwrap();
        put(world, &object, "Running", true).await;
        let api = clusters(&admin, &namespace);
        let delete = || async { said(api.delete(&format!("a{index}"), &DeleteParams::default()).await) };
        let words =
            "metadata.annotations[ecs.yun.com/deletion-protection]: the cluster is protected from deletion";
        refused(delete().await, words);
        refused(ask(&admin, &object, "terminating").await, words);
        change(&admin, &object, json!({"metadata": {"annotations": {name: "false"}}})).await.unwrap();
        delete().await.unwrap();
    }
}

/// A user cannot use a Secret in a cluster without the permission to read it.
#[tokio::test]
async fn who_names_a_secret_must_be_allowed_to_read_it() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("user-of-{namespace}");
    let client = world.server.client_as(&user, &[]).await.unwrap();
    let subject = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
    let bind = |name: &str, kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": subject,
        })
    };
    apply(&admin, &bind("edit", "ClusterRole", "kubeon-cluster-editor")).await;
    let logging_in = json!({"credentialsRef": {"name": "root-key"}});
    let object = with(cluster(&namespace, "a", "10.6.0", &[]), "/spec/cluster/authConfig", logging_in);
    let words = format!(
        "spec.cluster.authConfig.credentialsRef: who refers to secrets {namespace}/root-key must be allowed to read it; \
         {user} is not"
    );
    eventually("the role", || async {
        create_dry(&client, &cluster(&namespace, "a", "10.6.0", &[])).await.ok()
    })
    .await;
    refused(create(&client, &object).await, &words);
    let elsewhere =
        with(object.clone(), "/spec/cluster/authConfig/credentialsRef/namespace", json!("kubeon-system"));
    refused(create(&client, &elsewhere).await, "who refers to secrets kubeon-system/root-key");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "key", "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["root-key"], "verbs": ["get"]}],
    });
    apply(&admin, &role).await;
    apply(&admin, &bind("key", "Role", "key")).await;
    eventually("the role", || async { create(&client, &object).await.ok() }).await;
    apply(&admin, &with(role, "/rules", json!([]))).await;
    let another = with(object.clone(), "/metadata/name", json!("b"));
    let refusal = || async { create_dry(&client, &another).await.err().filter(|said| said.contains(&words)) };
    eventually("the end of the right", refusal).await;
    // An existing reference is not checked again, unless the key would be used elsewhere.
    change(&client, &object, json!({"spec": {"paused": true}})).await.unwrap();
    for (field, hosts) in [
        ("nodeList", json!([{"ip": "10.6.0.9"}])),
        ("masterList", json!([{"ip": "10.6.0.1", "port": 2222}])),
        ("masterList", json!([{"ip": "10.6.0.1", "user": "ops"}])),
    ] {
        refused(change(&client, &object, json!({"spec": {"cluster": {field: hosts}}})).await, &words);
    }
    let store =
        json!({"spec": {"snapshots": {"folder": "s3://snapshots/a/", "credentialsRef": {"name": "store"}}}});
    let words = format!(
        "spec.snapshots.credentialsRef: who refers to secrets {namespace}/store must be allowed to read it"
    );
    refused(change(&client, &object, store).await, &words);
    let operation = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "metadata": {"name": format!("c-{namespace}")},
        "spec": {
            "hostsConfRef": {"namespace": "kubeon-system", "name": "h"},
            "varsConfRef": {"namespace": "kubeon-system", "name": "v"},
        },
    });
    for role in
        ["kubeon-cluster-editor", "kubeon-operation-editor", "kubeon-cluster-user", "kubeon-script-author"]
    {
        apply(&admin, &bound_everywhere(&user, role)).await;
    }
    let words = "spec.hostsConfRef: who refers to configmaps kubeon-system/h must be allowed to read it";
    let ask = || async { create(&client, &operation).await.err().filter(|said| said.contains(words)) };
    eventually(words, ask).await;
    hooks(&admin, &client, &namespace, &user).await;
}

/// Binds a role for users to one user, for the whole meta cluster.
pub(crate) fn bound_everywhere(user: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// An operation has the keys of its cluster's hosts: an author without a right on the cluster must not get them.
#[tokio::test]
async fn who_runs_an_operation_needs_the_right_to_use_its_cluster() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("author-of-{namespace}");
    let client = world.server.client_as(&user, &[]).await.unwrap();
    apply(&admin, &bound_everywhere(&user, "kubeon-operation-editor")).await;
    let (mine, theirs) = (format!("mine-{namespace}"), format!("theirs-{namespace}"));
    let role = format!("use-{namespace}");
    let uses = |resources: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
            "rules": [{"apiGroups": ["kubeonkube.clay.io"], "resources": resources, "resourceNames": [mine], "verbs": ["use"]}],
        })
    };
    apply(&admin, &uses(json!(["clusters"]))).await;
    apply(&admin, &bound_everywhere(&user, &role)).await;
    let on = |cluster: &str, name: &str| {
        let spec = json!({"cluster": cluster, "actionType": "playbook", "action": "cluster.yml",
            "image": kubeon_install::RUNNER_IMAGES[0]});
        with(operation(&format!("{name}-{namespace}")), "/spec", spec)
    };
    eventually("the right to use", || async { create_dry(&client, &on(&mine, "a")).await.ok() }).await;

    let refusal = |what: &str, cluster: &str, resource: &str| {
        format!("{what} on cluster {cluster} needs the verb use on {resource}; {user} has it not")
    };
    let words = refusal("spec.cluster: who runs an operation", &theirs, "clusters");
    refused(create(&client, &on(&theirs, "a")).await, &words);
    // What printed the key of another cluster.
    let hook = json!([{"actionType": "shell", "action": "cat /auth/ssh-privatekey"}]);
    let hooked = with(on(&mine, "b"), "/spec/preHook", hook);
    let words =
        refusal("spec.preHook, spec.postHook, spec.action: who runs commands", &mine, "clusters/hooks");
    refused(create(&client, &hooked).await, &words);
    let shell = with(on(&mine, "c"), "/spec/actionType", json!("shell"));
    refused(create(&client, &shell).await, &words);
    let reference = json!({"namespace": namespace, "name": "brought"});
    for field in ["entrypointSHRef", "hostsConfRef", "varsConfRef", "actionSourceRef"] {
        let brought = with(on(&mine, "c"), &format!("/spec/{field}"), reference.clone());
        let denied = create(&client, &brought).await.expect_err(field);
        assert!(
            denied.contains(&words) || denied.contains("must be allowed to read it"),
            "{field}: {denied}"
        );
    }
    let arguments = with(on(&mine, "c"), "/spec/extraArgs", json!("-e ansible_ssh_common_args=x"));
    refused(create(&client, &arguments).await, &words);
    let foreign = with(on(&mine, "d"), "/spec/image", json!("example.org/mine:v1"));
    let words = refusal("spec.image: who runs another image than kubeon's", &mine, "clusters/images");
    refused(create(&client, &foreign).await, &words);

    // An operation cannot be moved to another cluster; labels are free.
    create(&client, &on(&mine, "e")).await.unwrap();
    let api = operations(&client);
    let patch = |patch: Value| {
        let (api, name) = (api.clone(), format!("e-{namespace}"));
        async move { said(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await) }
    };
    let words = refusal("spec.cluster: who runs an operation", &theirs, "clusters");
    refused(patch(json!({"spec": {"cluster": theirs}})).await, &words);
    apply(&admin, &uses(json!(["clusters/hooks", "clusters/images"]))).await;
    eventually("no right to use", || async { create_dry(&client, &on(&mine, "f")).await.err() }).await;
    patch(json!({"metadata": {"labels": {"mine": "yes"}}})).await.unwrap();
    apply(&admin, &uses(json!(["clusters", "clusters/hooks", "clusters/images"]))).await;
    for object in [hooked, shell, foreign] {
        eventually("all rights", || async { create_dry(&client, &object).await.ok() }).await;
    }
}

/// A playbook on a cluster, with our image: it needs `use` on the cluster and nothing else.
fn playbook_on(cluster: &str, name: &str) -> Value {
    let spec = json!({"cluster": cluster, "actionType": "playbook", "action": "cluster.yml",
        "image": kubeon_install::RUNNER_IMAGES[0]});
    with(operation(name), "/spec", spec)
}

async fn patch_operation(client: &kube::Client, name: &str, patch: Value) -> Result<(), String> {
    said(operations(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

async fn delete_operation(client: &kube::Client, name: &str) -> Result<(), String> {
    said(operations(client).delete(name, &DeleteParams::default()).await)
}

/// Changes that stop an operation, move it, or let others do so.
fn attacks() -> [Value; 9] {
    let owner = json!([{"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000000"}]);
    [
        json!({"spec": {"cancelled": true}}),
        json!({"spec": {"paused": true}}),
        json!({"spec": {"activeDeadlineSeconds": 1}}),
        json!({"metadata": {"annotations": {"kubeon.io/without": "10.0.0.1"}}}),
        // The history removes this one first.
        json!({"metadata": {"annotations": {"clay.io/eliminate-score": "9"}}}),
        // It would count as ended.
        json!({"metadata": {"labels": {"hasCompleted": "done"}}}),
        json!({"metadata": {"labels": {"clusterName": "another"}}}),
        // The garbage collector deletes what has an owner that is gone.
        json!({"metadata": {"ownerReferences": owner}}),
        json!({"metadata": {"finalizers": ["example.org/stay"]}}),
    ]
}

/// A user who may write operations, and may use the cluster `mine` alone.
async fn user_of(mine: &str, user: &str) -> kube::Client {
    let world = world().await;
    let (admin, client) = (world.admin().await, world.server.client_as(user, &[]).await.unwrap());
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": format!("use-{mine}")},
        "rules": [{"apiGroups": ["kubeonkube.clay.io"], "resources": ["clusters"], "resourceNames": [mine], "verbs": ["use"]}],
    });
    apply(&admin, &role).await;
    for role in ["kubeon-operation-editor".to_owned(), format!("use-{mine}")] {
        apply(&admin, &bound_everywhere(user, &role)).await;
    }
    let probe = playbook_on(mine, &format!("probe-{mine}"));
    eventually("the right to use", || async { create_dry(&client, &probe).await.ok() }).await;
    client
}

/// The right to write operations is one on the operations of all clusters. None of these Clusters exists.
#[tokio::test]
async fn who_changes_or_deletes_an_operation_needs_the_right_to_use_its_cluster() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("changer-of-{namespace}");
    let (mine, theirs) = (format!("my-{namespace}"), format!("their-{namespace}"));
    let client = user_of(&mine, &user).await;
    let words = format!(
        "spec, metadata: who changes or deletes an operation on cluster {theirs} needs the verb use on clusters; \
         {user} has it not"
    );
    create(&admin, &playbook_on(&theirs, &theirs)).await.unwrap();
    for attack in attacks() {
        refused(patch_operation(&client, &theirs, attack).await, &words);
    }
    refused(patch_operation(&client, &theirs, json!({"spec": {"cluster": mine}})).await, &words);
    refused(delete_operation(&client, &theirs).await, &words);
    // Labels of others steer nothing.
    patch_operation(&client, &theirs, json!({"metadata": {"labels": {"seen": "yes"}}})).await.unwrap();

    create(&client, &playbook_on(&mine, &mine)).await.unwrap();
    for change in attacks() {
        patch_operation(&client, &mine, change).await.unwrap();
    }
    patch_operation(&client, &mine, json!({"metadata": {"finalizers": null}})).await.unwrap();
    delete_operation(&client, &mine).await.unwrap();

    // Neither of them has the right to use a cluster.
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let collector = world.server.client_as(collector, &[]).await.unwrap();
    for other in [world.operator().await, collector] {
        let name = format!("other-{namespace}");
        create(&admin, &playbook_on(&theirs, &name)).await.unwrap();
        patch_operation(&other, &name, json!({"metadata": {"finalizers": ["example.org/stay"]}}))
            .await
            .unwrap();
        patch_operation(&other, &name, json!({"metadata": {"finalizers": null}})).await.unwrap();
        delete_operation(&other, &name).await.unwrap();
    }
    delete_operation(&admin, &theirs).await.unwrap();
}

/// Its `spec.cluster` is a name in a namespace. A `Cluster` of the same name may be somebody else's.
#[tokio::test]
async fn who_changes_or_deletes_a_derived_operation_needs_the_right_to_patch_its_object() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("namesake-of-{namespace}");
    let shop = format!("shop-{namespace}");
    let client = user_of(&shop, &user).await;
    let labels = json!({"kubeon.io/cluster-namespace": namespace, "kubeon.io/cluster-uid": "u"});
    let derived = with(playbook_on(&shop, &shop), "/metadata/labels", labels);
    create(&world.operator().await, &derived).await.unwrap();
    let words = format!(
        "spec, metadata: who changes or deletes an operation of KubernetesCluster {namespace}/{shop} needs the verb \
         patch on it; {user} has it not"
    );
    for attack in attacks() {
        refused(patch_operation(&client, &shop, attack).await, &words);
    }
    refused(delete_operation(&client, &shop).await, &words);

    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubeon-cluster-editor"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    apply(&admin, &binding).await;
    let pausing = || async { patch_operation(&client, &shop, json!({"spec": {"paused": true}})).await.ok() };
    eventually("the right to patch", pausing).await;
    for other in [json!({"spec": {"action": "reset.yml"}}), json!({"spec": {"extraArgs": "-v"}})] {
        let words =
            "spec: only paused, cancelled, activeDeadlineSeconds of an operation of a KubernetesCluster";
        refused(patch_operation(&admin, &shop, other).await, words);
    }
    patch_operation(&client, &shop, json!({"spec": {"paused": null, "cancelled": true}})).await.unwrap();
    delete_operation(&client, &shop).await.unwrap();
}

/// The user of a hook must be able to read its ConfigMap, also the last of many, and the number of hooks is
/// limited.
async fn hooks(admin: &kube::Client, client: &kube::Client, namespace: &str, user: &str) {
    let hook = |at: usize, name: &str| {
        json!({"actionType": "shell", "action": format!("s{at}.sh"), "actionSource": "configmap",
            "actionSourceRef": {"namespace": namespace, "name": name}})
    };
    let asks = |name: &str, hooks: Vec<Value>| {
        let (before, after) = hooks.split_at(hooks.len() / 2);
        let asked = with(operation(&format!("{name}-{namespace}")), "/spec/preHook", json!(before));
        with(asked, "/spec/postHook", json!(after))
    };
    let mine: Vec<Value> = (0..15).map(|at| hook(at, &format!("mine-{at}"))).collect();
    let names: Vec<String> = (0..15).map(|at| format!("mine-{at}")).collect();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "mine", "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get"]}],
    });
    apply(admin, &role).await;
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "mine", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mine"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    apply(admin, &bound).await;
    eventually("the role", || async { create_dry(client, &asks("mine", mine.clone())).await.ok() }).await;
    let theirs = [mine.clone(), vec![hook(15, "theirs")]].concat();
    let words = format!(
        "spec.preHook, spec.postHook: who refers to configmaps {namespace}/theirs must be allowed to read it; {user} is not"
    );
    refused(create(client, &asks("theirs", theirs)).await, &words);
    let again: Vec<Value> = (0..17).map(|at| hook(at, "mine-0")).collect();
    refused(
        create(admin, &asks("many", again)).await,
        "at most 16 of them take their action from a ConfigMap, not 17",
    );
    create(client, &asks("mine", mine)).await.unwrap();
}

#[tokio::test]
async fn nobody_but_the_operator_derives_an_operation() {
    let world = world().await;
    let claimed =
        with(operation("claimed"), "/metadata/labels", json!({"kubeon.io/cluster-namespace": "default"}));
    refused(
        create(&world.admin().await, &claimed).await,
        "are written by the operator alone, on operations that it derives",
    );
    create(&world.operator().await, &claimed).await.unwrap();
    let api = operations(&world.admin().await);
    let patch = |labels: Value| Patch::Merge(json!({"metadata": {"labels": labels}}));
    let moved = api
        .patch("claimed", &PatchParams::default(), &patch(json!({"kubeon.io/cluster-namespace": "x"})))
        .await;
    refused(said(moved), "are written by the operator alone");
    api.patch("claimed", &PatchParams::default(), &patch(json!({"mine": "yes"}))).await.unwrap();
}

fn operation(name: &str) -> Value {
    json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "metadata": {"name": name},
        "spec": {"cluster": "c", "actionType": "shell", "action": "true", "image": "i"},
    })
}

#[tokio::test]
async fn a_runner_writes_the_status_of_its_own_operation() {
    let world = world().await;
    let (admin, operator) = (world.admin().await, world.operator().await);
    let long = format!("kubeonkube-{}-job", "x".repeat(48));
    for (name, job) in [("mine", "kubeonkube-mine-job"), ("long", long.as_str())] {
        create(&admin, &operation(name)).await.unwrap();
        let status =
            json!({"status": {"status": "Running", "jobRef": {"namespace": "default", "name": job}}});
        operations(&operator)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
    create(&admin, &operation("unstarted")).await.unwrap();
    let steps = || json!({"status": {"steps": {"done": 1, "total": 2, "text": "1/2"}}});
    let write = |client: kube::Client, name: &'static str, patch: Value| async move {
        said(operations(&client).patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    };
    let mine = world.runner("default", "kubeonkube-mine-job-abcde").await;
    write(mine.clone(), "mine", steps()).await.unwrap();
    refused(
        write(mine.clone(), "long", steps()).await,
        "status: an operation's status is written by its own Job",
    );
    refused(write(mine.clone(), "unstarted", steps()).await, "of which none is recorded yet");
    let stolen = json!({"status": {"jobRef": {"namespace": "default", "name": "other"}}});
    refused(write(mine.clone(), "mine", stolen).await, "are written by the operator alone");
    // A name of 63 characters leaves room for the Job controller's suffix only when it is cut.
    let cut = format!("{}abcde", &long[..58]);
    write(world.runner("default", &cut).await, "long", steps()).await.unwrap();
    // A Job whose name begins like the name of another Job.
    let alike = world.runner("default", "kubeonkube-mine-job-b-abcde").await;
    refused(write(alike, "mine", steps()).await, "this is pod default/kubeonkube-mine-job-b-abcde");
    let elsewhere = world.runner("kubeon-system", "kubeonkube-mine-job-abcde").await;
    refused(write(elsewhere, "mine", steps()).await, "this is pod kubeon-system/kubeonkube-mine-job-abcde");
    // A runner must not write the spec.
    let spec = json!({"spec": {"image": "evil"}});
    let result = operations(&mine).patch("mine", &PatchParams::default(), &Patch::Merge(spec)).await;
    refused(said(result), "cannot patch resource \"clusteroperations\"");
}

/// The UID of the pod that the API server knows this client by.
async fn pod_uid(client: &kube::Client) -> Result<String, String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = answer.map_err(|error| error.to_string())?;
    let extra = review.status.unwrap().user_info.unwrap().extra.unwrap();
    Ok(extra["authentication.kubernetes.io/pod-uid"][0].clone())
}

/// Another pod of the same Job, or one with its name, does not take the place of the pod that the operator recorded.
#[tokio::test]
async fn only_the_recorded_pod_writes_the_status_of_its_operation() {
    const NAME: &str = "recorded";
    let world = world().await;
    let (admin, operator) = (world.admin().await, world.operator().await);
    create(&admin, &operation(NAME)).await.unwrap();
    let write = |client: &kube::Client, status: Value| {
        let (api, patch) = (operations(client), Patch::Merge(json!({"status": status})));
        async move { said(api.patch_status(NAME, &PatchParams::default(), &patch).await) }
    };
    let job = json!({"namespace": "default", "name": "kubeonkube-recorded-job"});
    write(&operator, json!({"status": "Running", "jobRef": job})).await.unwrap();
    let first = world.runner("default", "kubeonkube-recorded-job-abcde").await;
    let second = world.runner("default", "kubeonkube-recorded-job-fghij").await;
    let steps = |done: u8| json!({"steps": {"done": done, "total": 9, "text": format!("{done}/9")}});
    // The operator has not seen a pod yet, or is of an earlier version.
    write(&first, steps(1)).await.unwrap();
    write(&second, steps(2)).await.unwrap();

    let (uid, other) = (pod_uid(&first).await.unwrap(), pod_uid(&second).await.unwrap());
    write(&operator, json!({"runnerPod": uid})).await.unwrap();
    let words = format!(
        "status: an operation's status is written by the pod of its Job with UID {uid}; \
         this is pod default/kubeonkube-recorded-job-fghij with UID {other}"
    );
    refused(write(&second, steps(3)).await, &words);
    refused(write(&second, json!({"runnerPod": other})).await, &words);
    write(&first, steps(3)).await.unwrap();
    for taken in [json!(null), json!(other)] {
        let taken = json!({"runnerPod": taken});
        refused(
            write(&first, taken).await,
            "runnerPod, observedGeneration are written by the operator alone",
        );
    }

    // The first pod was lost.
    write(&operator, json!({"runnerPod": null})).await.unwrap();
    write(&second, steps(4)).await.unwrap();
    refused(
        write(&second, json!({"runnerPod": other})).await,
        "runnerPod, observedGeneration are written by the operator alone",
    );
}

/// Before a pod is recorded, and for Secrets and ConfigMaps, the policies compare the name of the pod. The API server compares its
/// UID, so a name that is used again is no way to act as the runner before.
#[tokio::test]
async fn a_runner_ends_with_the_uid_of_its_pod() {
    const POD: &str = "kubeonkube-again-job-abcde";
    let world = world().await;
    let first = world.runner("default", POD).await;
    let uid =
        eventually("the token of the first pod is valid", || async { pod_uid(&first).await.ok() }).await;
    let pods: Api<Pod> = Api::namespaced(world.admin().await, "default");
    pods.delete(POD, &DeleteParams::default().grace_period(0)).await.unwrap();
    let second = world.runner("default", POD).await;
    // The API server remembers a valid token for seconds.
    let ends = || async { pod_uid(&first).await.err().filter(|error| error.contains("Unauthorized")) };
    eventually("the token of the first pod ends", ends).await;
    let other = eventually("that of the second is valid", || async { pod_uid(&second).await.ok() }).await;
    assert_ne!(uid, other);
}

/// Who may make pods, Jobs or tokens in a watched namespace must not become a runner.
#[tokio::test]
async fn only_pods_of_the_operators_jobs_get_the_account_of_runners() {
    let world = world().await;
    let admin = world.admin().await;
    let other = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other", "namespace": "default"},
    });
    apply(&admin, &other).await;
    let pod = |account: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kubeonkube-x-job-abcde", "namespace": "default"},
            "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "kubeonkube-x-job", "namespace": "default"},
        "spec": {"template": {"spec": pod("kubeon-runner")["spec"]}},
    });
    let job = with(job, "/spec/template/spec/restartPolicy", json!("Never"));
    refused(
        create_dry(&admin, &pod("kubeon-runner")).await,
        "spec.serviceAccountName: pods with kubeon-runner are made by the Job controller alone, not by ",
    );
    create_dry(&admin, &pod("other")).await.unwrap();
    create_dry(&world.job_controller().await, &pod("kubeon-runner")).await.unwrap();
    refused(
        create_dry(&admin, &job).await,
        "spec.template.spec.serviceAccountName: Jobs with kubeon-runner are made by the operator alone, not by ",
    );
    create_dry(&world.operator().await, &job).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, "default");
    let request = || serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token = accounts.create_token_request("kubeon-runner", &PostParams::default(), &request()).await;
    refused(said(token), "a token of kubeon-runner is made for its pods by kubelets alone, not by ");
    accounts.create_token_request("other", &PostParams::default(), &request()).await.unwrap();
}

#[tokio::test]
async fn a_runner_writes_only_secrets_that_were_created_for_its_job() {
    let world = world().await;
    let admin = world.admin().await;
    let secret = |name: &str, job: &str, label: bool| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "default", "annotations": {"kubeon.io/job": job}},
        });
        if label {
            object["metadata"]["labels"] = json!({"kubeon.io/cluster": "default.a"});
        }
        object
    };
    for object in [
        secret("state", "create-default-a-job-12345", true),
        secret("others", "create-default-b-job-12345", true),
        secret("foreign", "create-default-a-job-12345", false),
    ] {
        apply(&admin, &object).await;
    }
    let runner = world.runner("default", "create-default-a-job-12345-fghij").await;
    let secrets: Api<Secret> = Api::namespaced(runner, "default");
    let write = |name: &'static str, patch: Value| {
        let secrets = secrets.clone();
        async move { said(secrets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await) }
    };
    let data = || json!({"stringData": {"state": "x"}});
    write("state", data()).await.unwrap();
    refused(
        write("others", data()).await,
        "metadata.annotations[kubeon.io/job]: this Secret was made for Job create-default-b-job-12345",
    );
    refused(
        write("foreign", data()).await,
        "metadata.labels[kubeon.io/cluster]: this Secret was not made for a cluster",
    );
    let taken = json!({"metadata": {"annotations": {"kubeon.io/job": "create-default-b-job-12345"}}});
    refused(write("state", taken).await, "a runner writes the data of a Secret and nothing else");
    // The role permits only the patch of named Secrets, not reading, creating or deleting them.
    refused(said(secrets.get("state").await), "cannot get resource \"secrets\"");
    refused(said(secrets.list(&Default::default()).await), "cannot list resource \"secrets\"");
    refused(
        said(secrets.delete("state", &DeleteParams::default()).await),
        "cannot delete resource \"secrets\"",
    );
    let new = Patch::Apply(secret("new", "create-default-a-job-12345", true));
    refused(
        said(secrets.patch("new", &PatchParams::apply("r"), &new).await),
        "cannot create resource \"secrets\"",
    );
}

/// Who runs a playbook has the token of its runner.
#[tokio::test]
async fn a_runner_makes_the_log_and_the_plan_of_its_job_and_no_other_object() {
    let world = world().await;
    let log = || {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kubeonkube-a-job-log", "namespace": "default",
                "labels": {"kubeon.io/operation": "u"}, "annotations": {"kubeon.io/job": "kubeonkube-a-job", "kubeon.io/pod": "kubeonkube-a-job-fghij", "kubeon.io/stored-bytes": "4"},
                "ownerReferences": [{"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
                    "name": "a", "uid": "u", "controller": true, "blockOwnerDeletion": false}]},
            "immutable": true, "data": {"log": "done"},
        })
    };
    let own = world.runner("default", "kubeonkube-a-job-fghij").await;
    eventually("the right to create", || async { create_dry(&own, &log()).await.ok() }).await;
    let no_other =
        "neither makes nor removes Secrets and ConfigMaps, except for the log and the plan of its Job";
    let only_data = "metadata: a runner writes the data of a ConfigMap and nothing else";
    for (path, value, words) in [
        ("/metadata/name", json!("another"), no_other),
        ("/metadata/annotations", json!({"kubeon.io/job": "kubeonkube-b-job"}), no_other),
        (
            "/metadata/annotations",
            json!({"kubeon.io/job": "kubeonkube-a-job", "kubeon.io/stored-bytes": "-1"}),
            only_data,
        ),
        (
            "/metadata/annotations",
            json!({"kubeon.io/job": "kubeonkube-a-job", "kubeon.io/pod": "another"}),
            only_data,
        ),
        ("/metadata/annotations", json!({"kubeon.io/job": "kubeonkube-a-job", "other": "x"}), only_data),
        ("/metadata/labels", json!({"kubeon.io/cluster": "default.a"}), only_data),
        ("/metadata/labels", json!({"kubeon.io/operation": "v"}), only_data),
        ("/metadata/ownerReferences", json!([]), only_data),
        ("/metadata/ownerReferences/0/kind", json!("Cluster"), only_data),
        ("/metadata/finalizers", json!(["example.org/stay"]), only_data),
        ("/immutable", json!(false), only_data),
    ] {
        refused(create_dry(&own, &with(log(), path, value)).await, words);
    }
    let other = world.runner("default", "kubeonkube-b-job-fghij").await;
    refused(
        create_dry(&other, &log()).await,
        "this ConfigMap was made for Job kubeonkube-a-job; this is pod default/kubeonkube-b-job-fghij",
    );
    create(&own, &log()).await.unwrap();
    create(&own, &with(log(), "/metadata/name", json!("kubeonkube-a-job-plan"))).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(own, "default");
    let changed = Patch::Merge(json!({"metadata": {"labels": {"kubeon.io/cluster": "default.a"}}}));
    let changed = maps.patch("kubeonkube-a-job-log", &PatchParams::default(), &changed).await;
    refused(said(changed), "metadata.labels[kubeon.io/cluster]: this ConfigMap was not made for a cluster");
}
