//! Tests of the installed objects without a cluster.

use super::*;

fn all() -> Vec<Value> {
    objects(&InstallOptions::default()).unwrap()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name} is not installed"))
}

#[test]
fn names_every_object_once() {
    let objects = all();
    let mut unique = std::collections::BTreeSet::new();
    for object in &objects {
        let key = (
            object["kind"].to_string(),
            object["metadata"]["namespace"].to_string(),
            object["metadata"]["name"].to_string(),
        );
        assert!(unique.insert(key.clone()), "{key:?} exists twice");
    }
    assert!(objects.len() > 30, "{}", objects.len());
}

#[test]
fn a_namespace_that_is_named_twice_is_watched_once() {
    let options = InstallOptions {
        watch_namespaces: vec!["kubeon-system".into(), "a".into(), "a".into()],
        ..InstallOptions::default()
    };
    assert_eq!(options.namespaces().collect::<Vec<_>>(), ["kubeon-system", "a"]);
}

#[test]
fn gives_no_process_a_wildcard_nor_secrets_everywhere() {
    for object in all().iter().filter(|o| matches!(o["kind"].as_str(), Some("Role" | "ClusterRole"))) {
        let text = object.to_string();
        assert!(!text.contains("\"*\""), "{text}");
        if object["kind"] == "ClusterRole" {
            assert!(!text.contains("secrets"), "{text}");
            for rule in object["rules"].as_array().unwrap() {
                let all = rule["resources"].to_string().contains("configmaps")
                    && rule["resourceNames"] != serde_json::json!([names::API_SERVER_IDENTITY]);
                assert!(!all, "{rule}");
            }
        }
    }
}

#[test]
fn lets_a_runner_patch_and_read_its_status_alone() {
    let objects = all();
    let rules = |kind: &str| named(&objects, kind, names::RUNNER)["rules"].clone();
    assert_eq!(
        rules("Role"),
        serde_json::json!([
            {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        ])
    );
    assert_eq!(rules("ClusterRole")[0]["resources"], serde_json::json!(["clusteroperations/status"]));
    assert_eq!(rules("ClusterRole")[0]["verbs"], serde_json::json!(["get", "patch"]));
}

/// The Pod Security level `restricted`, and a read-only root file system.
#[test]
fn runs_the_operator_restricted() {
    let objects = all();
    let pod = &named(&objects, "Deployment", names::OPERATOR)["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"], serde_json::json!(["ALL"]));
}

#[test]
fn requests_are_refused_while_the_webhook_is_unavailable() {
    let objects = all();
    let hook =
        &named(&objects, "ValidatingWebhookConfiguration", names::WEBHOOK_CONFIGURATION)["webhooks"][0];
    assert_eq!(hook["failurePolicy"], "Fail");
    assert_eq!(hook["timeoutSeconds"], 5);
    assert!(hook["clientConfig"].get("caBundle").is_none(), "the operator writes it");
}

/// Sets the namespace to another text where kustomize does: in metadata, subjects, and the services of webhooks.
fn hide_known_namespaces(object: &mut Value, path: &str) {
    match object {
        Value::Object(fields) => {
            for (key, value) in fields {
                let at = format!("{path}/{key}");
                let is_known = matches!(
                    at.as_str(),
                    "/metadata/namespace"
                        | "/subjects/namespace"
                        | "/webhooks/clientConfig/service/namespace"
                        | "/spec/rules/subjects/serviceAccount/namespace"
                );
                if is_known {
                    *value = "hidden".into();
                } else {
                    hide_known_namespaces(value, &at);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_known_namespaces(item, path)),
        _ => {}
    }
}

#[test]
fn kustomize_knows_every_place_with_the_namespace_of_the_operator() {
    let options = kustomize::options(&InstallOptions::default());
    let mut objects = objects(&options).unwrap();
    objects.retain(|object| object["kind"] != "Namespace");
    for mut object in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(names::NAMESPACE).to_owned();
        assert_eq!(namespace, names::NAMESPACE, "kustomize would move {}", object["metadata"]["name"]);
        hide_known_namespaces(&mut object, "");
        let text = object.to_string();
        assert!(!text.contains(names::NAMESPACE), "{text}");
    }
}

#[test]
fn a_movable_operator_is_known_by_a_right_that_no_other_role_has() {
    let options = InstallOptions { is_movable: true, ..InstallOptions::default() };
    let objects = objects(&options).unwrap();
    let with_right = objects.iter().filter(|object| object["rules"].to_string().contains(names::OPERATE));
    let with_right: Vec<_> = with_right.map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(with_right, [names::OPERATOR]);
    let policy = named(&objects, "ValidatingAdmissionPolicy", "kubeon-commands").to_string();
    assert!(
        policy.contains("endsWith(':kubeon-operator')") && policy.contains("check('operate')"),
        "{policy}"
    );
}

#[test]
fn passes_the_callback_to_the_operator_when_it_is_set() {
    let flags = |options: &InstallOptions| {
        let objects = objects(options).unwrap();
        let pod = named(&objects, "Deployment", names::OPERATOR)["spec"]["template"]["spec"].clone();
        let all: Vec<String> = serde_json::from_value(pod["containers"][0]["args"].clone()).unwrap();
        (all.into_iter().filter(|argument| argument.contains("callback")).collect::<Vec<_>>(), pod)
    };
    let (none, pod) = flags(&InstallOptions::default());
    assert!(none.is_empty() && pod["volumes"].is_null());
    let options = InstallOptions {
        callback_url: "https://gateway.example".into(),
        callback_ca: "gateway-ca".into(),
        ..InstallOptions::default()
    };
    let (given, pod) = flags(&options);
    let wanted = ["--callback-url=https://gateway.example", "--callback-ca=/etc/kubeon/gateway-ca/ca.crt"];
    assert_eq!(given, wanted);
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "gateway-ca");
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/kubeon/gateway-ca");
}

#[test]
fn images_of_a_release_have_their_digests_and_others_stay() {
    let digests = [(OPERATOR_IMAGE, "sha256:aa"), (RUNNER_IMAGE, "sha256:cc"), (GATEWAY_IMAGE, "sha256:bb")];
    let digests = digests.map(|(name, digest)| (name.to_owned(), digest.to_owned())).into();
    let mut options = InstallOptions::default();
    options.runner_images.push("other/runner:v1".to_owned());
    options.pin(&digests);
    assert_eq!(options.image, format!("{OPERATOR_IMAGE}@sha256:aa"));
    let runners =
        [RUNNER_IMAGES[0].to_owned(), format!("{RUNNER_IMAGE}@sha256:cc"), "other/runner:v1".to_owned()];
    assert_eq!(options.runner_images, runners);
    let mut gateway = GatewayInstallOptions::default();
    gateway.pin(&digests);
    assert_eq!(gateway.image, format!("{GATEWAY_IMAGE}@sha256:bb"));
}

#[test]
fn passes_further_arguments_to_the_operator_after_its_own() {
    let extra_arguments = vec!["--workers=64".to_owned()];
    let objects = objects(&InstallOptions { extra_arguments, ..InstallOptions::default() }).unwrap();
    let container =
        &named(&objects, "Deployment", names::OPERATOR)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"].as_array().unwrap().last().unwrap(), "--workers=64");
}

#[test]
fn passes_the_collector_to_the_operator_when_it_is_set() {
    let flags = |endpoint: &str| {
        let options = InstallOptions { otlp_endpoint: endpoint.to_owned(), ..InstallOptions::default() };
        let objects = objects(&options).unwrap();
        let pod = named(&objects, "Deployment", names::OPERATOR)["spec"]["template"]["spec"].clone();
        let all: Vec<String> = serde_json::from_value(pod["containers"][0]["args"].clone()).unwrap();
        all.into_iter().filter(|argument| argument.contains("otlp")).collect::<Vec<_>>()
    };
    assert!(flags("").is_empty());
    assert_eq!(flags("http://collector:4318"), ["--otlp-endpoint=http://collector:4318"]);
}

#[test]
fn passes_the_trusted_keys_to_the_operator() {
    let trusted_keys = vec!["release ssh-ed25519 AAAA".to_owned()];
    let objects = objects(&InstallOptions { trusted_keys, ..InstallOptions::default() }).unwrap();
    let container =
        &named(&objects, "Deployment", names::OPERATOR)["spec"]["template"]["spec"]["containers"][0];
    assert!(container["args"].to_string().contains("--trusted-key=release ssh-ed25519 AAAA"));
}
