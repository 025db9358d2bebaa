use serde_json::{Value, json, to_value};

use super::*;

fn with_key(key: bool, program: Program) -> Value {
    placed(key, program, &JobPlacement::default())
}

fn placed(key: bool, program: Program, placement: &JobPlacement) -> Value {
    let conf = |volume, mode, path: &str, key: &str| Mount {
        volume,
        source: MountSource::ConfigMap { name: "myops-entrypoint-0".into(), mode, optional: false },
        path: path.into(),
        key: Some(key.into()),
    };
    let mut mounts = vec![
        conf("entrypoint", Some(0o700), "/bin/entrypoint.sh", "entrypoint.sh"),
        conf("hosts-conf", None, "/conf/hosts.yml", "hosts.yml"),
        conf("vars-conf", None, "/conf/group_vars.yml", "group_vars.yml"),
    ];
    if key {
        mounts.push(Mount {
            volume: "ssh-auth",
            source: MountSource::Secret { name: "key-0".into(), optional: false },
            path: "/auth/ssh-privatekey".into(),
            key: Some("ssh-privatekey".into()),
        });
    }
    to_value(job(&OperationJob {
        name: "kubeonkube-myops-job",
        namespace: "mynamespace",
        owner: Some(OwnerReference { kind: "ClusterOperation".into(), ..OwnerReference::default() }),
        labels: BTreeMap::new(),
        annotations: [("sidecar.istio.io/inject".to_owned(), "false".to_owned())].into(),
        container: "kubeonkube",
        image: "busybox",
        program,
        env: vec![("CLUSTER_NAME".into(), "sample".into())],
        mounts,
        resources: Some(serde_json::from_value(json!({"limits": {"cpu": "1m"}})).unwrap()),
        placement,
        deadline_seconds: Some(10),
        ttl_seconds: None,
    }))
    .unwrap()
}

#[test]
fn the_placement_is_that_of_the_pod_and_the_operation_has_its_own_limits() {
    let text = r#"{"nodeSelector":{"disk":"ssd"},"tolerations":[{"operator":"Exists"}],"priorityClassName":"high",
        "imagePullSecrets":[{"name":"registry"}],"resources":{"limits":{"cpu":"2"}}}"#;
    let job = placed(false, Program::Script, &text.parse().unwrap());
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"disk": "ssd"}));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(pod["containers"][0]["resources"], json!({"limits": {"cpu": "1m"}}));
}

/// Contract A, cases 13 to 17.
#[test]
fn a13_to_a17_is_the_job_of_the_contract() {
    let job = with_key(false, Program::Script);
    assert_eq!(
        (&job["metadata"]["name"], &job["metadata"]["namespace"]),
        (&json!("kubeonkube-myops-job"), &json!("mynamespace"))
    );
    let (spec, pod) = (&job["spec"], &job["spec"]["template"]["spec"]);
    assert_eq!((&spec["backoffLimit"], &pod["restartPolicy"]), (&json!(0), &json!("Never")));
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 3);
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&container["name"], &container["command"]),
        (&json!("kubeonkube"), &json!(["/bin/entrypoint.sh"]))
    );
    assert_eq!(container["env"], json!([{"name": "CLUSTER_NAME", "value": "sample"}]));
    assert_eq!(spec["activeDeadlineSeconds"], 10);
    assert_eq!(container["resources"], json!({"limits": {"cpu": "1m"}}));
    assert_eq!(spec["template"]["metadata"]["annotations"]["sidecar.istio.io/inject"], "false");
    let job = with_key(true, Program::Script);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["configMap"]["defaultMode"], 0o700);
    assert_eq!(pod["volumes"][3]["secret"]["defaultMode"], 0o400);
    assert_eq!(pod["containers"][0]["volumeMounts"].as_array().unwrap().len(), 4);
}

#[test]
fn only_the_runner_gets_a_token_and_no_container_may_gain_privileges() {
    let foreign = with_key(false, Program::Script);
    let pod = &foreign["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert!(pod.get("serviceAccountName").is_none());
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
    let own_image = with_key(false, runner());
    let pod = &own_image["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["serviceAccountName"], &pod["automountServiceAccountToken"]),
        (&json!("kubeon-runner"), &json!(true))
    );
    let command =
        json!(["kubeon-runner", "run", "--operation", "myops", "--action", "script", "--grace", "100"]);
    assert_eq!(pod["containers"][0]["command"], command);
}

fn runner() -> Program {
    Program::Runner { operation: "myops".into(), action: "script", more: Vec::new() }
}

#[test]
fn a_runner_is_not_root_and_writes_to_one_folder() {
    let job = with_key(true, runner());
    let pod = &job["spec"]["template"]["spec"];
    let security = &pod["securityContext"];
    assert_eq!((&security["runAsUser"], &security["fsGroup"]), (&json!(65532), &json!(65532)));
    assert_eq!(security["runAsNonRoot"], true);
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    let mounts = container["volumeMounts"].as_array().unwrap();
    let writable: Vec<_> = mounts.iter().filter(|mount| mount["readOnly"] != true).collect();
    assert_eq!(writable, [&json!({"name": "scratch", "mountPath": "/tmp"})]);
    let env = container["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "HOME", "value": "/tmp"})));
    let foreign = with_key(true, Program::Script);
    let pod = &foreign["spec"]["template"]["spec"];
    assert!(pod["securityContext"]["runAsUser"].is_null() && pod["initContainers"].is_null());
}

#[test]
fn always_hooks_get_most_of_the_grace_period() {
    let (work, grace) = (i64::from(crate::frame::WORK_SECONDS), WORK_GRACE.parse::<i64>().unwrap());
    assert!(2 * work < grace && grace < GRACE_SECONDS);
}

#[test]
fn a_token_has_one_audience_and_a_limited_lifetime() {
    let source = MountSource::Token { audience: "kubeon-callback/uid-1".into(), seconds: 3600 };
    let mount = Mount { volume: "callback-token", source, path: "/callback".into(), key: None };
    let token = json!({"audience": "kubeon-callback/uid-1", "expirationSeconds": 3600, "path": "token"});
    let projected = json!({"sources": [{"serviceAccountToken": token}], "defaultMode": 0o400});
    assert_eq!(
        to_value(volumes(&[mount])).unwrap(),
        json!([{"name": "callback-token", "projected": projected}])
    );
}

fn image(is_mounted: bool) -> BundleImage {
    BundleImage { name: "kubeon/kubeon-bundle:{version}".into(), is_mounted }
}

#[test]
fn a_bundle_is_mounted_from_its_image_without_a_copy() {
    let bundle = Mount::bundle_in_use(&image(true), "v1.35.8");
    assert_eq!(filler(&bundle), None);
    assert_eq!(
        to_value(volume(&bundle)).unwrap(),
        json!({"name": "bundle-in-use", "image": {"reference": "kubeon/kubeon-bundle:v1.35.8", "pullPolicy": "IfNotPresent"}})
    );
    assert_eq!(
        to_value(mount(&bundle)).unwrap(),
        json!({"name": "bundle-in-use", "mountPath": "/bundle-in-use", "readOnly": true, "subPath": "bundle"})
    );
}

#[test]
fn a_bundle_is_copied_into_an_empty_volume_before_the_work() {
    let bundle = Mount::bundle(&image(false), "v1.36.3");
    assert_eq!(bundle.source, MountSource::FilledBy("kubeon/kubeon-bundle:v1.36.3".into()));
    let filler = to_value(filler(&bundle)).unwrap();
    assert_eq!(filler["volumeMounts"], json!([{"name": "bundle", "mountPath": "/target"}]));
    assert_eq!(filler["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(
        to_value(mount(&bundle)).unwrap(),
        json!({"name": "bundle", "mountPath": "/bundle", "readOnly": true})
    );
}
