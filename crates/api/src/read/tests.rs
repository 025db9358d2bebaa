use super::*;

const HEAD: &str = "apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata: {name: demo}\n";

/// The message for a file of [`HEAD`] and `rest`; `rest` begins at line 4.
fn refused(rest: &str) -> String {
    read_yaml(&format!("{HEAD}{rest}")).unwrap_err().to_string()
}

#[test]
fn reads_json_and_older_spellings() {
    let text = r#"{"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "demo"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1", "role:omitempty": "control-plane"}],
        "containerCIDR": "10.128.0.0/14", "masterVIP": "10.0.0.9", "timeoutMins": 30}}}"#;
    let cluster = read_yaml(text).unwrap().spec.cluster;
    assert_eq!(cluster.pod_cidr.unwrap().to_string(), "10.128.0.0/14");
    assert_eq!(cluster.external_load_balancer.unwrap().to_string(), "10.0.0.9");
    assert_eq!(cluster.timeout_mins.unwrap().duration().as_secs(), 1800);
    assert_eq!(cluster.master_list[0].role, Some(crate::kubernetes_cluster::Role::ControlPlane));
}

#[test]
fn empty_and_null_fields_are_absent() {
    let rest = "spec:\n  cluster:\n    masterList: [{ip: 10.0.0.1, role: ''}]\n    nodeList:\n    podCIDR: ''\n    kubeVersion: ''\n    timeout_mins: ''\n    network:\n    authConfig: {username: '', password: '', privateSSHKey: ''}\n";
    let spec = read_yaml(&format!("{HEAD}{rest}")).unwrap().spec;
    let cluster = spec.cluster;
    assert!(cluster.node_list.is_empty() && cluster.pod_cidr.is_none() && cluster.kube_version.is_none());
    assert!(cluster.timeout_mins.is_none() && cluster.network.is_none());
    assert_eq!(cluster.auth_config, Some(crate::kubernetes_cluster::AuthConfig::default()));
}

#[test]
fn reads_the_output_of_kubectl() {
    let text = "apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata:\n  annotations:\n    app.kubernetes.io/operation: creating\n  creationTimestamp: \"2026-01-02T03:04:05Z\"\n  generation: 1\n  managedFields:\n  - apiVersion: ecs.yun.com/v1\n    fieldsType: FieldsV1\n    fieldsV1: {\"f:spec\": {\".\": {}}}\n    manager: kubectl\n    operation: Update\n  name: demo\n  namespace: default\n  resourceVersion: \"7\"\n  uid: 0c9f\nspec:\n  cluster:\n    masterList:\n    - ip: 10.0.0.1\nstatus:\n  lastTransitionTime: null\n  phase: Running\n";
    let cluster = read_yaml(text).unwrap();
    assert_eq!(cluster.status.unwrap().phase, Some(crate::Phase::Running));
    assert_eq!(cluster.metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn reports_the_position_of_invalid_yaml() {
    let message = |text: &str| read_yaml(text).unwrap_err().to_string();
    assert_eq!(message("a: [1\nb: }"), "line 2, column 2: not YAML: illegal placement of ':' indicator");
    assert_eq!(
        refused("spec:\n\tcluster: {}\n"),
        "line 5, column 2: not YAML: tabs disallowed within this context (block indentation)"
    );
    assert_eq!(refused("spec: {}\nspec: {}\n"), "line 5, column 1: not YAML: the field spec is given twice");
}

#[test]
fn requires_exactly_one_document() {
    let message = |text: &str| read_yaml(text).unwrap_err().to_string();
    for empty in ["", "# only a comment\n", "---\n", "---\n---\n"] {
        assert_eq!(message(empty), "the file is empty; it must contain one KubernetesCluster", "{empty:?}");
    }
    assert_eq!(
        message("a: 1\n---\nb: 2\n---\nc: 3\n"),
        "the file contains 3 documents, the second from line 3; keep one KubernetesCluster in a file"
    );
    let framed = format!("---\n{HEAD}spec: {{cluster: {{masterList: [{{ip: 10.0.0.1}}]}}}}\n---\n");
    assert!(read_yaml(&framed).is_ok());
}

#[test]
fn reports_the_kind_that_was_found() {
    let message = |text: &str| read_yaml(text).unwrap_err().to_string();
    let wanted = "not apiVersion: ecs.yun.com/v1, kind: KubernetesCluster";
    assert_eq!(
        message("apiVersion: v1\nkind: Pod\n"),
        format!("the file contains apiVersion: v1, kind: Pod, {wanted}")
    );
    assert_eq!(message("- a\n"), format!("the file contains a list, {wanted}"));
    assert_eq!(message("hello\n"), format!("the file contains text, {wanted}"));
    assert_eq!(message("a: 1\n"), format!("the file contains no apiVersion and no kind, {wanted}"));
    assert_eq!(
        message("kind: KubernetesCluster\n"),
        format!("the file contains kind: KubernetesCluster without an apiVersion, {wanted}")
    );
    assert_eq!(
        message("apiVersion: ecs.yun.com/v1\n"),
        format!("the file contains apiVersion: ecs.yun.com/v1 without a kind, {wanted}")
    );
}

#[test]
fn requires_a_valid_name() {
    let message = |text: &str| read_yaml(text).unwrap_err().to_string();
    let with = |metadata: &str| {
        message(&HEAD.replace("{name: demo}", metadata).replace("metadata", "spec: {}\nmetadata"))
    };
    assert_eq!(with("{}"), "line 4: metadata.name is missing; give the cluster a name");
    assert_eq!(
        with("{name: a.b}"),
        "line 4: metadata.name is wrong: cluster name \"a.b\" is not a DNS label: 1 to 63 of a-z, 0-9 and '-', a letter or digit first and last"
    );
    assert_eq!(
        message("apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nspec: {}\n"),
        "line 1: metadata is missing"
    );
}

#[test]
fn refuses_unknown_fields_by_name_with_the_closest_known_one() {
    assert_eq!(
        refused("spec:\n  cluster:\n    masterLists: []\n"),
        "line 6: spec.cluster.masterLists is not a field; did you mean masterList?"
    );
    assert_eq!(
        refused("spec:\n  cluster:\n    nodeList:\n    - ip: 10.0.0.2\n      rack: a\n"),
        "line 8: spec.cluster.nodeList[0].rack is not a field; known here: internalAddress, ip, labels, name, port, role, taints, user"
    );
    assert_eq!(refused("spec: {}\nstats: {}\n"), "line 5: stats is not a field; did you mean status?");
    assert_eq!(
        refused("spec: {addons: {helm: {}}}\n"),
        "line 4: spec.addons.helm is not a field; no field is allowed here"
    );
}

#[test]
fn reports_all_mistakes_at_once_in_the_order_of_the_file() {
    let message = refused(
        "spec:\n  paused: yep\n  cluster:\n    kubeVersion: 1.36\n    podCIDR: 10.1.2.3/8\n    deployMode: binery\n    nodeList:\n    - ip: 300.1.1.1\n      port: 0\n    - name: x\n    etcdList: 5\n    timeoutMins: 5000\n    network: {maxPods: \"3\"}\n",
    );
    let expected = [
        "10 mistakes",
        "  line 5: spec.paused must be true or false, not text",
        "  line 7: spec.cluster.kubeVersion must be text, not a number; put it in quotes",
        "  line 8: spec.cluster.podCIDR is wrong: \"10.1.2.3/8\" is not a network in CIDR notation: it has host bits set; did you mean 10.0.0.0/8?",
        "  line 9: spec.cluster.deployMode is \"binery\", but must be one of binary, container; did you mean binary?",
        "  line 11: spec.cluster.nodeList[0].ip is wrong: \"300.1.1.1\" is not an IPv4 address",
        "  line 12: spec.cluster.nodeList[0].port is 0, which is out of range: 1 to 65535",
        "  line 13: spec.cluster.nodeList[1].ip is missing",
        "  line 14: spec.cluster.etcdList must be a list, not a number; begin each entry with '- '",
        "  line 15: spec.cluster.timeoutMins is 5000, which is out of range: 1 to 1440",
        "  line 16: spec.cluster.network.maxPods must be a whole number, not text",
    ];
    assert_eq!(message, expected.join("\n"));
}

#[test]
fn refuses_shell_syntax() {
    assert_eq!(
        refused("spec: {cluster: {externalLoadBalancer: $(id)}}\n"),
        "line 4: spec.cluster.externalLoadBalancer is wrong: \"$(id)\" is not an IPv4 address or a DNS name"
    );
    assert_eq!(
        refused("spec: {cluster: {masterList: [{ip: 10.0.0.1, user: root;id}]}}\n"),
        "line 4: spec.cluster.masterList[0].user is wrong: \"root;id\" is not an account name such as root or kube-admin"
    );
    assert_eq!(
        refused("spec: {cluster: {masterList: [{ip: 10.0.0.1, labels: {\"a b\": c}}]}}\n"),
        "line 4: spec.cluster.masterList[0].labels.a b is wrong: \"a b\" is not a label key such as \
         example.com/disk: up to 63 letters, digits, '-', '_' and '.' after an optional DNS name and '/', a letter or digit first and last"
    );
}

/// Contract B, case 14. A message must not contain the key.
#[test]
fn refuses_an_invalid_key_without_showing_it() {
    assert_eq!(
        refused("spec: {privateSSHKey: c2VjcmV0}\n"),
        "line 4: spec.privateSSHKey is wrong: this is not a private key: it must be PEM (-----BEGIN … PRIVATE KEY-----) or the base64 of a PEM"
    );
}

#[test]
fn refuses_two_spellings_two_forms_and_contradicting_entries() {
    assert_eq!(
        refused("spec:\n  cluster:\n    podCIDR: 10.0.0.0/8\n    containerCIDR: 10.0.0.0/8\n"),
        "line 7: spec.cluster.containerCIDR is an older spelling of podCIDR, which is also set; remove containerCIDR"
    );
    let both = refused("spec:\n  cluster:\n    masterList: [{ip: 10.0.0.1}]\n  region: a\n");
    let reason =
        "fields are set under spec.cluster and directly under spec; put all of them under spec.cluster";
    assert!(both.ends_with(reason), "{both}");
    let twice = refused(
        "spec:\n  cluster:\n    masterList:\n    - ip: 10.0.0.1\n    - ip: 10.0.0.1\n      port: 2222\n",
    );
    assert!(twice.contains("spec.cluster.masterList"), "{twice}");
    assert!(twice.ends_with("10.0.0.1 is listed twice with different settings; keep one entry"), "{twice}");
}

#[test]
fn reads_a_cluster_of_5000_hosts() {
    let nodes: Vec<String> = (0..5000)
        .map(|n| {
            format!(
                "    - ip: 10.1.{}.{}\n      name: w{n}\n      labels: {{rack: r{n}, disk: ssd}}\n",
                n / 250,
                n % 250
            )
        })
        .collect();
    let rest =
        format!("spec:\n  cluster:\n    masterList: [{{ip: 10.0.0.1}}]\n    nodeList:\n{}", nodes.concat());
    assert_eq!(read_yaml(&format!("{HEAD}{rest}")).unwrap().spec.cluster.node_list.len(), 5000);
}

#[test]
fn every_title_of_the_schema_selects_a_type() {
    fn titles(value: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                let title = fields.get("title").and_then(serde_json::Value::as_str);
                if let Some(title) = title.filter(|_| fields.contains_key("pattern")) {
                    found.insert(title.to_owned());
                }
                fields.values().for_each(|field| titles(field, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| titles(item, found)),
            _ => {}
        }
    }
    let mut found = std::collections::BTreeSet::new();
    titles(&json_schema(), &mut found);
    assert!(found.len() >= 10, "{found:?}");
    for title in found {
        assert!(
            crate::schema::refusal(&title, "\u{1f4a3} no").is_some(),
            "{title} is not checked by its type"
        );
    }
}

#[test]
fn reads_windows_files_and_yaml_anchors() {
    let rest = "spec:\n  cluster:\n    masterList: [{ip: 10.0.0.1, labels: &common {disk: ssd}}]\n    nodeList: [{ip: 10.0.0.2, labels: *common}]\n";
    let text = format!("\u{feff}{HEAD}{rest}").replace('\n', "\r\n");
    let cluster = read_yaml(&text).unwrap().spec.cluster;
    assert_eq!(cluster.node_list[0].labels, cluster.master_list[0].labels);
    assert_eq!(cluster.node_list[0].labels.len(), 1);
}
