//! Tests of the kinds against the contract of older clients.

use kube_cel::Validator;
use kube_core::{CustomResourceExt, Resource as _};
use serde_json::{Value, json};

use super::*;

fn schema<K: CustomResourceExt>() -> Value {
    let crd = serde_json::to_value(K::crd()).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap().clone()
}

fn required(value: &Value, place: &str) -> Vec<String> {
    let listed = value.pointer(place).unwrap_or_else(|| panic!("{place} is missing"))["required"].as_array();
    let mut names: Vec<_> =
        listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    names.sort();
    names
}

/// Contract A, §1.1.
#[test]
fn the_kinds_have_the_identity_of_the_contract() {
    for (crd, name) in [
        (Cluster::crd(), "clusters.kubeonkube.clay.io"),
        (ClusterOperation::crd(), "clusteroperations.kubeonkube.clay.io"),
    ] {
        assert_eq!(crd.metadata.name.as_deref(), Some(name));
        assert_eq!(crd.spec.scope, "Cluster");
        assert!(crd.spec.names.short_names.unwrap_or_default().is_empty());
        assert!(crd.spec.versions[0].subresources.as_ref().unwrap().status.is_some());
    }
    assert_eq!(Cluster::api_version(&()), "kubeonkube.clay.io/v1alpha1");
    let (cluster, operation) = (schema::<Cluster>(), schema::<ClusterOperation>());
    assert_eq!(required(&cluster, "/spec"), ["hostsConfRef", "varsConfRef"]);
    assert_eq!(required(&cluster, "/spec/properties/hostsConfRef"), ["name", "namespace"]);
    assert_eq!(required(&operation, "/spec"), ["action", "actionType", "cluster", "image"]);
    assert_eq!(required(&operation, "/spec/properties/preHook/items"), ["action", "actionType"]);
}

/// The samples of the contract's README, with a field of each kind.
#[test]
fn the_samples_of_the_contract_are_read() {
    let reference = json!({"namespace": "kubeonkube", "name": "sample"});
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "sample"},
        "spec": {"hostsConfRef": reference, "varsConfRef": reference, "sshAuthRef": reference},
        "status": {"conditions": [{"clusterOps": "a", "status": "Succeeded", "startTime": "2024-04-07T00:00:00Z"}]},
    }))
    .unwrap();
    assert_eq!(cluster.spec.ssh_auth_ref.unwrap().to_string(), "kubeonkube,sample");
    let operation: ClusterOperation = serde_json::from_value(json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "metadata": {"name": "sample-node-add"},
        "spec": {"cluster": "sample", "image": "wangzhichidocker/kubeonkube:v0.1", "actionType": "playbook",
                 "action": "scale.yml", "actionSource": "builtin", "extraArgs": "--limit=node3",
                 "preHook": [{"actionType": "shell", "action": "echo test"}],
                 "entrypointSHRef": reference, "activeDeadlineSeconds": 10,
                 "resources": {"limits": {"cpu": "1m"}}},
    }))
    .unwrap();
    assert_eq!(operation.spec.main.action_source, Some(ActionSource::Builtin));
    assert_eq!(operation.spec.entrypoint_sh_ref, Some(DataRef::new("kubeonkube", "sample")));
    let written = serde_json::to_value(&operation).unwrap();
    assert!(written["spec"].get("paused").is_none(), "absent fields are not written: {written}");
}

fn action(playbook: &str) -> Action {
    Action { action_type: "playbook".into(), action: playbook.into(), ..Action::default() }
}

/// Contract A, case 20, and §1.3: the fields that the digest covers.
#[test]
fn the_digest_is_compatible_with_older_clients() {
    let spec = ClusterOperationSpec {
        cluster: "sample".into(),
        main: action("scale.yml"),
        image: "wangzhichidocker/kubeonkube:v0.1".into(),
        ..ClusterOperationSpec::default()
    };
    assert_eq!(spec.digest(), "4dbdd009a6bf42e7d43abfa842a3d8d0");
    let mut same = ClusterOperationSpec { active_deadline_seconds: Some(1), ..spec.clone() };
    same.main.extra_args = Some("x".into());
    assert_eq!(same.digest(), spec.digest());
    let other = ClusterOperationSpec { main: action("cluster.yml"), ..spec.clone() };
    assert_ne!(other.digest(), spec.digest());
}

#[test]
fn the_whole_digest_covers_every_field_that_decides_what_runs() {
    let spec = ClusterOperationSpec {
        cluster: "sample".into(),
        main: action("scale.yml"),
        image: "wangzhichidocker/kubeonkube:v0.1".into(),
        ..ClusterOperationSpec::default()
    };
    let changed = |change: fn(&mut ClusterOperationSpec)| {
        let mut spec = spec.clone();
        change(&mut spec);
        spec.whole_digest()
    };
    let reference = || Some(DataRef::new("a", "b"));
    let hook =
        || HookAction { what: Action { extra_args: Some("-v".into()), ..action("a.yml") }, when: None };
    let changes: [fn(&mut ClusterOperationSpec); 3] = [
        |spec| spec.paused = true,
        |spec| spec.cancelled = true,
        |spec| spec.active_deadline_seconds = Some(60),
    ];
    for change in changes {
        assert_eq!(changed(change), spec.whole_digest());
    }
    let mut others: Vec<ClusterOperationSpec> = vec![spec.clone(); 9];
    others[0].main.extra_args = Some("--limit=x".into());
    others[1].main.action_source = Some(ActionSource::Configmap);
    others[2].main.action_source_ref = reference();
    others[3].hosts_conf_ref = reference();
    others[4].vars_conf_ref = reference();
    others[5].ssh_auth_ref = reference();
    others[6].entrypoint_sh_ref = reference();
    others[7].resources = serde_json::from_value(json!({"limits": {"cpu": "1m"}})).unwrap();
    others[8].post_hook = vec![hook()];
    let mut digests: Vec<String> = others.iter().map(ClusterOperationSpec::whole_digest).collect();
    digests.push(spec.whole_digest());
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 10);
}

#[test]
fn printer_columns_show_progress_and_duration() {
    let columns = ClusterOperation::crd().spec.versions[0].additional_printer_columns.clone().unwrap();
    let shown = columns.iter().filter(|column| column.priority.unwrap_or(0) == 0);
    let shown: Vec<_> = shown.map(|column| column.name.to_uppercase()).collect();
    assert_eq!(shown.join(" "), "CLUSTER ACTION STATUS STEPS STARTED TOOK AGE");
}

/// The violated rules of the schema for a spec, each with its field.
fn violations(kind: &str, spec: &Value) -> Vec<String> {
    let definitions = crate::definitions().unwrap();
    let crd = definitions.iter().find(|definition| definition["spec"]["names"]["kind"] == kind).unwrap();
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
    let object = json!({"metadata": {"name": "sample"}, "spec": spec});
    let errors = Validator::new().validate(schema, &object, None).err();
    errors.into_iter().flat_map(|errors| errors.into_vec()).map(|error| error.to_string()).collect()
}

/// A valid spec of an operation, with these fields.
fn operation_with(fields: &Value) -> Value {
    let mut spec =
        json!({"cluster": "sample", "image": "x", "actionType": "playbook", "action": "scale.yml"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[test]
fn rules_accept_the_samples_and_operations_that_end_as_failed() {
    let reference = json!({"namespace": "kubeonkube", "name": "sample"});
    for fields in [
        json!({}),
        json!({"actionType": "shell", "action": "echo the hosts: $(wc -l < /conf/hosts.yml) lines\n"}),
        json!({"actionSource": "builtin", "extraArgs": "--limit=node3", "entrypointSHRef": reference}),
        json!({"actionSource": "configmap", "actionSourceRef": reference, "action": " my_play-book.yml\n"}),
        json!({"preHook": [{"actionType": "shell", "action": "a b", "when": "OnSuccess"}]}),
        json!({"postHook": [{"actionType": "playbook", "action": "ping.yml", "when": "Always"}]}),
        json!({"hostsConfRef": {"namespace": "", "name": ""}, "sshAuthRef": reference}),
        json!({"actionType": "kubeon", "action": "creating"}),
        // Contract A, cases 9, 10, 19 and 43.
        json!({"action": "abc.yml"}),
        json!({"actionType": "OtherAction"}),
        json!({"image": ""}),
        json!({"cluster": ""}),
    ] {
        assert_eq!(
            violations("ClusterOperation", &operation_with(&fields)),
            Vec::<String>::new(),
            "{fields}"
        );
    }
    let cluster = json!({"hostsConfRef": reference, "varsConfRef": reference, "sshAuthRef": reference});
    assert_eq!(violations("Cluster", &cluster), Vec::<String>::new());
}

#[test]
fn rules_refuse_operations_that_would_wait_for_ever() {
    let reference = json!({"namespace": "kubeonkube", "name": "sample"});
    let no_source = "actionSourceRef: actionSourceRef must be specified if actionSource set as configmap";
    let no_file = "action: the action from a ConfigMap must be a file name";
    let hook = |fields: Value| {
        let mut hook = json!({"actionType": "shell", "action": "hello.sh"});
        for (name, value) in fields.as_object().unwrap() {
            hook[name] = value.clone();
        }
        hook
    };
    let from_map = |action: &str, reference: Value| json!({"actionSource": "configmap", "action": action, "actionSourceRef": reference});
    let nothing = json!({"namespace": "", "name": ""});
    for (fields, words) in [
        (json!({"actionSource": "configmap"}), format!("spec.{no_source}")),
        (from_map("my.yml", nothing.clone()), format!("spec.{no_source}")),
        (json!({"postHook": [hook(from_map("a.sh", nothing))]}), format!("spec.postHook[0].{no_source}")),
        (from_map("a b.yml", reference.clone()), format!("spec.{no_file}")),
        (json!({"preHook": [hook(from_map("a/b.sh", reference))]}), format!("spec.preHook[0].{no_file}")),
        (
            json!({"preHook": [hook(json!({"actionType": "kubeon"}))]}),
            "spec.preHook[0].actionType: unknown action type of a hook".to_owned(),
        ),
        (
            json!({"preHook": [hook(json!({"when": "Always"}))]}),
            "spec.preHook: when: Always is for postHook".to_owned(),
        ),
        (json!({"cluster": "No Cluster"}), "spec.cluster: is not a valid name of a Cluster".to_owned()),
        (
            json!({"sshAuthRef": {"namespace": "", "name": "key"}}),
            "spec.sshAuthRef.namespace: a reference with a name needs a namespace".to_owned(),
        ),
    ] {
        let found = violations("ClusterOperation", &operation_with(&fields));
        assert!(found.len() == 1 && found[0].starts_with(&words), "{fields}: {found:?}");
    }
    let hosts =
        json!({"hostsConfRef": {"namespace": "", "name": "a"}, "varsConfRef": {"namespace": "", "name": ""}});
    let found = violations("Cluster", &hosts);
    assert_eq!(found, ["spec.hostsConfRef.namespace: a reference with a name needs a namespace"]);
}

#[test]
fn rules_refuse_pods_on_control_planes() {
    let placed = |key: &str| {
        let reference = json!({"namespace": "kubeonkube", "name": "sample"});
        let tolerations = json!([{"key": key, "operator": "Exists", "effect": "NoSchedule"}]);
        let placement = json!({"nodeSelector": {"disk": "ssd"}, "tolerations": tolerations});
        violations(
            "Cluster",
            &json!({"hostsConfRef": reference, "varsConfRef": reference, "jobPlacement": placement}),
        )
    };
    assert_eq!(placed("dedicated"), Vec::<String>::new());
    let found = placed("node-role.kubernetes.io/control-plane");
    let words = "spec.jobPlacement.tolerations: taints of Kubernetes itself";
    assert!(found.len() == 1 && found[0].starts_with(words), "{found:?}");
}

/// An API server computes the cost of a rule from the largest object that the schema allows: texts and lists in rules need
/// limits.
#[test]
fn every_text_and_list_in_a_rule_has_a_limit() {
    let spec = schema::<ClusterOperation>();
    for (field, limit) in [
        ("/cluster", "maxLength"),
        ("/action", "maxLength"),
        ("/preHook", "maxItems"),
        ("/postHook", "maxItems"),
        ("/preHook/items/properties/action", "maxLength"),
        ("/preHook/items/properties/actionType", "maxLength"),
        ("/actionSourceRef/properties/name", "maxLength"),
        ("/actionSourceRef/properties/namespace", "maxLength"),
    ] {
        let found = spec.pointer(&format!("/spec/properties{field}")).unwrap();
        assert!(found[limit].is_number(), "{field} has no {limit}: {found}");
    }
}
