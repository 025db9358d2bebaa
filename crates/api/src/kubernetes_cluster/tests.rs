use std::path::PathBuf;

use kube_cel::{Validator, compile_schema};
use kube_core::{CustomResourceExt, Resource};
use serde_json::{Value, json};

use super::*;
use crate::{crds, read_yaml};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn examples() -> Vec<(String, String)> {
    let mut found: Vec<_> = std::fs::read_dir(root().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(&path).unwrap(),
            )
        })
        .filter(|(_, text)| text.contains("kind: KubernetesCluster"))
        .collect();
    found.sort();
    found
}

fn schema() -> Value {
    let definitions = crate::crd::definitions().unwrap();
    let crd = definitions
        .iter()
        .find(|definition| definition["spec"]["names"]["kind"] == "KubernetesCluster")
        .unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone()
}

fn cluster(fields: Value) -> KubernetesCluster {
    let mut all = json!({"masterList": [{"ip": "10.0.0.1"}]});
    for (name, value) in fields.as_object().unwrap() {
        all[name] = value.clone();
    }
    object(json!({"cluster": all}))
}

fn object(spec: Value) -> KubernetesCluster {
    serde_json::from_value(json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "demo"}, "spec": spec
    }))
    .unwrap()
}

/// The messages of the violated rules for an object, or for a change of it.
fn violations(object: &Value, old: Option<&Value>) -> Vec<String> {
    let errors = Validator::new().validate(&schema(), object, old).err();
    let errors = errors.map(|errors| errors.into_vec()).unwrap_or_default();
    errors.into_iter().map(|error| error.message).collect()
}

fn violations_of(cluster: &KubernetesCluster) -> Vec<String> {
    violations(&json!(cluster), None)
}

fn violations_of_change(old: &KubernetesCluster, new: &KubernetesCluster) -> Vec<String> {
    violations(&json!(new), Some(&json!(old)))
}

/// Contract B, §1.1.
#[test]
fn keeps_the_identity_of_the_contract() {
    let crd = KubernetesCluster::crd();
    assert_eq!(crd.metadata.name.as_deref(), Some("kubernetesclusters.ecs.yun.com"));
    assert_eq!(KubernetesCluster::api_version(&()), "ecs.yun.com/v1");
    assert_eq!(KubernetesCluster::kind(&()), "KubernetesCluster");
    assert_eq!(KubernetesCluster::shortnames(), ["ecs"]);
    assert_eq!(crd.spec.scope, "Namespaced");
    assert_eq!(crd.spec.names.singular.as_deref(), Some("kubernetescluster"));
    assert!(crd.spec.versions[0].subresources.as_ref().unwrap().status.is_some());
}

/// Contract B, case 48: NAME STATUS AGE, in that order, with the columns of the progress in between.
#[test]
fn prints_name_status_progress_and_age() {
    let columns = KubernetesCluster::crd().spec.versions[0].additional_printer_columns.clone().unwrap();
    let shown = columns.iter().filter(|column| column.priority.unwrap_or(0) == 0);
    let shown: Vec<_> = shown.map(|column| column.name.to_uppercase()).collect();
    assert_eq!(shown.join(" "), "STATUS OPERATION STEP READY VERSION AGE");
}

/// Contract B, case 48: the schema refuses invalid addresses and modes.
#[test]
fn refuses_bad_addresses_and_modes_by_schema() {
    let schema = schema();
    for place in ["/properties/spec/properties", "/properties/spec/properties/cluster/properties"] {
        let at = |path: &str| {
            schema.pointer(&format!("{place}/{path}")).unwrap_or_else(|| panic!("{place}/{path}"))
        };
        let ip = regex::Regex::new(at("nodeList/items/properties/ip/pattern").as_str().unwrap()).unwrap();
        assert!(ip.is_match("10.0.0.1") && !ip.is_match("300.1.1.1"));
        assert_eq!(at("deployMode/enum"), &json!(["binary", "container"]));
        assert_eq!(at("nodeList/items/required"), &json!(["ip"]));
    }
}

/// An API server drops fields that are not in its schema: every field that the reader accepts must be in it.
#[test]
fn the_schema_contains_every_alias() {
    let schema = schema();
    for path in [
        "cluster/properties/timeoutMins",
        "cluster/properties/containerCIDR",
        "cluster/properties/masterVIP",
        "cluster/properties/masterList/items/properties/role:omitempty",
        "timeout_mins",
        "timeoutMins",
        "containerCIDR",
        "masterVIP",
        "masterList",
        "nodeList/items/properties/role:omitempty",
        "etcdList",
        "privateSSHKey",
        "authConfig",
        "region",
    ] {
        assert!(schema.pointer(&format!("/properties/spec/properties/{path}")).is_some(), "{path}");
    }
    assert_eq!(schema.pointer("/properties/spec/required"), None);
}

#[test]
fn no_field_of_the_spec_may_be_null() {
    fn nulls(path: &str, value: &Value, found: &mut Vec<String>) {
        if value.get("nullable") == Some(&Value::Bool(true)) {
            found.push(path.to_owned());
        }
        if let Value::Object(fields) = value {
            fields.iter().for_each(|(name, field)| nulls(&format!("{path}/{name}"), field, found));
        }
    }
    let mut found = Vec::new();
    nulls("", schema().pointer("/properties/spec").unwrap(), &mut found);
    // A schema without a type accepts null; the reader treats it as absent, and no rule reads the field.
    found.retain(|path| !path.to_lowercase().contains("timeout"));
    assert_eq!(found, Vec::<String>::new());
    let time = schema().pointer("/properties/status/properties/lastTransitionTime/nullable").cloned();
    assert_eq!(time, Some(Value::Bool(true)), "the contract allows null there");
}

#[test]
fn reads_every_example_and_writes_it_back_unchanged() {
    let examples = examples();
    assert!(examples.len() >= 5);
    for (name, text) in examples {
        let read = read_yaml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(violations_of(&read), Vec::<String>::new(), "{name}");
        read.spec.cluster.settings().unwrap_or_else(|error| panic!("{name}: {error}"));
        read.spec.cluster.hosts().unwrap_or_else(|error| panic!("{name}: {error}"));
        let yaml = serde_saphyr::to_string(&read).unwrap();
        assert_eq!(
            read_yaml(&yaml).unwrap_or_else(|error| panic!("{name}: {error}\n{yaml}")),
            read,
            "{name}"
        );
        let json = serde_json::to_value(&read).unwrap();
        assert_eq!(serde_json::from_value::<KubernetesCluster>(json).unwrap(), read, "{name}");
    }
}

/// Contract B, §1.6 and case 49: the published sample.
#[test]
fn lifts_the_published_sample_into_the_cluster() {
    let (_, text) = examples().into_iter().find(|(name, _)| name == "older-form.yaml").unwrap();
    let cluster = read_yaml(&text).unwrap().spec.cluster;
    let ips = |list: &NodeList| list.iter().map(|node| node.ip.to_string()).collect::<Vec<_>>();
    assert_eq!(cluster.cluster_type, Some(ClusterType::Kubernetes));
    assert_eq!(ips(&cluster.master_list), ["192.168.1.10", "192.168.1.11"]);
    assert_eq!(
        (ips(&cluster.node_list), ips(&cluster.etcd_list)),
        (vec!["192.168.1.12".into()], vec!["192.168.1.12".into()])
    );
    assert!(cluster.service_cidr.is_none() && cluster.auth_config.is_none());
    let roles: Vec<_> = cluster.hosts().unwrap().iter().map(|host| host.roles).collect();
    assert_eq!(roles[2], Roles { master: false, worker: true, etcd: true });
}

#[test]
fn lifts_a_key_beside_the_lists_into_auth_config() {
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let spec = object(
        json!({"masterList": [{"ip": "10.0.0.1"}], "privateSSHKey": key, "authConfig": {"username": "ops"}}),
    )
    .spec;
    let auth = spec.cluster.auth_config.unwrap();
    assert_eq!((auth.private_ssh_key.unwrap().pem(), auth.username.unwrap().as_str()), (key, "ops"));
}

#[test]
fn does_not_write_absent_fields() {
    let written = serde_json::to_value(cluster(json!({}))).unwrap();
    assert_eq!(written["spec"], json!({"cluster": {"masterList": [{"ip": "10.0.0.1"}]}}));
}

#[test]
fn refuses_hosts_with_two_roles() {
    let workers = cluster(json!({"nodeList": [{"ip": "10.0.0.1"}]}));
    assert_eq!(violations_of(&workers), ["a host is in masterList and in nodeList; a host has one role"]);
}

#[test]
fn refuses_networks_that_overlap_each_other_or_a_default() {
    let overlap = ["podCIDR and serviceCIDR overlap (defaults: 10.96.0.0/12 and 10.64.0.0/12)"];
    assert_eq!(violations_of(&cluster(json!({"podCIDR": "10.64.0.0/12"}))), overlap);
    assert_eq!(
        violations_of(&cluster(json!({"podCIDR": "10.0.0.0/8", "serviceCIDR": "10.1.0.0/16"}))),
        overlap
    );
    assert_eq!(
        violations_of(&cluster(json!({"podCIDR": "10.1.0.0/16", "serviceCIDR": "10.0.0.0/8"}))),
        overlap
    );
    assert_eq!(violations_of(&cluster(json!({"podCIDR": "10.1.0.0/16"}))), Vec::<String>::new());
}

#[test]
fn refuses_a_cluster_without_masters_or_with_a_dotted_name() {
    assert_eq!(
        violations_of(&object(json!({"cluster": {}}))),
        ["spec.cluster.masterList is empty; name at least one master"]
    );
    let mut dotted = cluster(json!({}));
    dotted.metadata.name = Some("a.b".to_owned());
    assert_eq!(
        violations_of(&dotted),
        ["the name of a cluster is a DNS label: at most 63 of a-z, 0-9 and '-', no dots"]
    );
}

#[test]
fn refuses_an_external_load_balancer_without_an_address() {
    let message = "loadBalancer.mode external needs loadBalancer.address or externalLoadBalancer";
    assert_eq!(violations_of(&cluster(json!({"loadBalancer": {"mode": "external"}}))), [message]);
    let given = cluster(json!({"loadBalancer": {"mode": "external"}, "externalLoadBalancer": "10.0.0.9"}));
    assert_eq!(violations_of(&given), Vec::<String>::new());
}

#[test]
fn refuses_changes_of_immutable_fields() {
    let plain = cluster(json!({}));
    for (field, default, other) in [
        ("clusterType", "kubernetes", "k3s"),
        ("deployMode", "binary", "container"),
        ("podCIDR", "10.96.0.0/12", "10.128.0.0/14"),
        ("serviceCIDR", "10.64.0.0/12", "10.32.0.0/16"),
    ] {
        let message = format!("{field} cannot be changed; make a new cluster");
        assert_eq!(violations_of_change(&plain, &cluster(json!({field: other}))), [message], "{field}");
        assert_eq!(
            violations_of_change(&plain, &cluster(json!({field: default}))),
            Vec::<String>::new(),
            "{field}"
        );
    }
    let (a, b) = (cluster(json!({"region": "a"})), cluster(json!({"region": "b"})));
    assert_eq!(violations_of_change(&a, &b), ["region cannot be changed; make a new cluster"]);
    assert_eq!(violations_of_change(&plain, &a), Vec::<String>::new(), "a region may be set later");
    assert_eq!(
        violations_of_change(&a, &cluster(json!({"region": "a", "kubeVersion": "v1.36.3"}))),
        Vec::<String>::new()
    );
}

#[test]
fn refuses_another_account() {
    let of = |name: &str| cluster(json!({"authConfig": {"username": name}}));
    let message = "authConfig.username cannot be changed: the cluster was created with that account";
    assert_eq!(violations_of_change(&of("ops"), &of("root")), [message]);
    assert_eq!(
        violations_of_change(&of("ops"), &cluster(json!({}))),
        [message],
        "without the field the account is root"
    );
    assert_eq!(violations_of_change(&of("ops"), &of("ops")), Vec::<String>::new());
    assert_eq!(
        violations_of_change(&cluster(json!({})), &of("ops")),
        Vec::<String>::new(),
        "it may be set later"
    );
}

/// An API server evaluates the rules for the older form as it was written.
#[test]
fn the_same_rules_apply_to_the_older_form() {
    let object = |spec: Value| json!({"metadata": {"name": "demo"}, "spec": spec});
    let messages = |spec: Value, old: Option<Value>| violations(&object(spec), old.map(object).as_ref());
    let masters = json!([{"ip": "10.0.0.1"}]);
    let twice = json!([{"ip": "10.0.0.2"}, {"ip": "10.0.0.2"}]);
    assert_eq!(
        messages(json!({"masterList": masters, "nodeList": twice, "etcdList": twice}), None),
        Vec::<String>::new()
    );
    assert_eq!(
        messages(json!({"masterList": masters, "nodeList": masters}), None),
        ["a host is in masterList and in nodeList; a host has one role"]
    );
    assert_eq!(
        messages(json!({"cluster": {"masterList": masters}, "region": "a"}), None),
        ["fields are set under spec.cluster and directly under spec; put all of them under spec.cluster"]
    );
    let flat = json!({"masterList": masters, "containerCIDR": "10.128.0.0/14"});
    let same = json!({"cluster": {"masterList": masters, "podCIDR": "10.128.0.0/14"}});
    assert_eq!(messages(same, Some(flat.clone())), Vec::<String>::new(), "the older form may be rewritten");
    assert_eq!(
        messages(json!({"cluster": {"masterList": masters}}), Some(flat)),
        ["podCIDR cannot be changed; make a new cluster"]
    );
}

/// An API server refuses a definition with a rule that does not compile.
#[test]
fn compiles_every_rule() {
    fn walk(path: &str, schema: &Value, rules: &mut usize) {
        let compiled = compile_schema(schema);
        assert!(!compiled.has_errors(), "{path}: {:?}", compiled.compilation_errors());
        *rules += schema.get("x-kubernetes-validations").and_then(Value::as_array).map_or(0, Vec::len);
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            walk(&format!("{path}.{name}"), field, rules);
        }
    }
    let mut rules = 0;
    walk("", &schema(), &mut rules);
    assert_eq!(rules, 1 + 5 + 12 + 1, "the object's, the cluster's, the spec's, the placement's");
}

/// An API server computes the cost of a rule from the largest object that the schema allows: every list, map and text needs
/// a limit.
#[test]
fn limits_every_list_map_and_text_of_the_spec() {
    fn walk(path: &str, schema: &Value, unlimited: &mut Vec<String>) {
        let limit = match (schema.get("type").and_then(Value::as_str), schema.get("enum")) {
            (Some("array"), _) => Some("maxItems"),
            (Some("string"), None) => Some("maxLength"),
            (Some("object"), _) if schema.get("additionalProperties").is_some() => Some("maxProperties"),
            _ => None,
        };
        if limit.is_some_and(|limit| schema.get(limit).is_none()) {
            unlimited.push(path.to_owned());
        }
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            walk(&format!("{path}.{name}"), field, unlimited);
        }
        for inner in ["items", "additionalProperties"] {
            schema.get(inner).into_iter().for_each(|field| walk(&format!("{path}[]"), field, unlimited));
        }
    }
    let mut unlimited = Vec::new();
    walk("spec", schema().pointer("/properties/spec").unwrap(), &mut unlimited);
    assert_eq!(unlimited, Vec::<String>::new());
}

#[test]
fn evaluates_its_rules_for_5000_hosts() {
    let nodes: Vec<Value> =
        (0..5000).map(|n| json!({"ip": format!("10.1.{}.{}", n / 250, n % 250)})).collect();
    assert_eq!(violations_of(&cluster(json!({"nodeList": nodes}))), Vec::<String>::new());
}

#[test]
fn has_the_words_of_the_older_clients() {
    let words: Vec<&str> = Operation::ALL.iter().map(|operation| operation.as_str()).collect();
    let is_new = |word: &&&str| ["renew", "repair", "snapshot"].iter().any(|new| word.starts_with(new));
    let new = words.iter().filter(is_new).count();
    assert_eq!((words.len() - new, new), (18, 9));
    assert_eq!("scale-down-finished".parse(), Ok(Operation::ScaleDownFinished));
    assert_eq!(serde_json::to_value(Phase::Prechecking).unwrap(), json!("Prechecking"));
    let error = "delete".parse::<DeletionPolicy>().unwrap_err();
    assert_eq!(error.to_string(), "\"delete\" is not one of: Delete Retain");
}

#[test]
fn hides_secrets_in_debug_output() {
    let shown = format!("{:?}", cluster(json!({"authConfig": {"password": "hunter2"}})));
    assert!(!shown.contains("hunter2") && shown.contains("(hidden)"));
}

/// `cargo xtask gen` writes `deploy/crds`; this test fails when it was not run after a change of the types.
#[test]
fn the_generated_definitions_are_up_to_date() {
    for (name, yaml) in crds().unwrap() {
        let path = root().join("deploy/crds").join(&name);
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == yaml,
            "{name} is out of date: cargo run -p kubeon-api --example gen -- deploy/crds"
        );
    }
}
