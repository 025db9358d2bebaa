//! The Job of an operation, as contracts A (1.5) and B (2.4) describe it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The group that a runner's files belong to: its image runs as this user, who must be able to read them.
const RUNNER_GROUP: i64 = 65532;
/// Seconds between the signal that ends a pod and its death: hooks that always run need them.
const GRACE_SECONDS: i64 = 120;
/// What of them the runner leaves to its work.
const WORK_GRACE: &str = "100";

/// A Job, in plain values.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationJob<'a> {
    /// Its name, at most 63 characters.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The `ownerReferences` entry of what controls it.
    pub owner: Option<Value>,
    /// Labels of the Job and its pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Job and its pods.
    pub annotations: BTreeMap<String, String>,
    /// The container's name.
    pub container: &'a str,
    /// The image.
    pub image: &'a str,
    /// What process 1 is.
    pub program: Program,
    /// Environment, in order. Never a secret.
    pub env: Vec<(String, String)>,
    /// Files.
    pub mounts: Vec<Mount>,
    /// What the container may use.
    pub resources: Option<Value>,
    /// Seconds after which it is ended.
    pub deadline_seconds: Option<i64>,
    /// Seconds after its end when it is removed.
    pub ttl_seconds: Option<i64>,
}

/// What process 1 of the Job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The mounted script, in an image that kubeon knows nothing of; without any token.
    Script,
    /// `kubeon-runner run`, under the service account `kubeon-runner`.
    Runner {
        /// The operation whose status it writes.
        operation: String,
        /// What it runs: `script` or `kubeon`.
        action: &'static str,
    },
}

/// One file or folder of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The volume's name; mounts of one name share a volume.
    pub volume: &'static str,
    /// What it is made of.
    pub source: Source,
    /// Where it is.
    pub path: String,
    /// The key that it shows; all of them when absent.
    pub key: Option<String>,
}

/// What a volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A ConfigMap, with its files' mode.
    ConfigMap(String, Option<u32>),
    /// A Secret, whose files only the owner reads. It need not be there when `optional`.
    Secret {
        /// Its name.
        name: String,
        /// Whether the volume is empty without it.
        optional: bool,
    },
    /// Nothing at first. The init container that is named after the volume fills it: its image brings files and copies
    /// them to the same path.
    FilledBy(String),
}

/// The Job as JSON.
#[must_use]
pub fn job(wanted: &OperationJob<'_>) -> Value {
    let mut spec = json!({
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        // A pod that was taken away is a failure, never a reason for a second one beside it.
        "podReplacementPolicy": "Failed",
        "template": {
            "metadata": {"labels": wanted.labels, "annotations": wanted.annotations},
            "spec": pod(wanted),
        },
    });
    if let Some(seconds) = wanted.deadline_seconds.filter(|seconds| *seconds > 0) {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    if let Some(seconds) = wanted.ttl_seconds {
        spec["ttlSecondsAfterFinished"] = json!(seconds);
    }
    let mut metadata = json!({
        "name": wanted.name,
        "namespace": wanted.namespace,
        "labels": wanted.labels,
        "annotations": wanted.annotations,
    });
    if let Some(owner) = &wanted.owner {
        metadata["ownerReferences"] = json!([owner]);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

fn pod(wanted: &OperationJob<'_>) -> Value {
    let runner = wanted.program != Program::Script;
    let command = match &wanted.program {
        Program::Script => json!(["/bin/entrypoint.sh"]),
        Program::Runner { operation, action } => {
            json!([
                "kubeon-runner",
                "run",
                "--operation",
                operation,
                "--action",
                action,
                "--grace",
                WORK_GRACE
            ])
        }
    };
    let env: Vec<Value> =
        wanted.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let mut container = json!({
        "name": wanted.container,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": env,
        "volumeMounts": wanted.mounts.iter().map(mount).collect::<Vec<_>>(),
        "securityContext": {"allowPrivilegeEscalation": false},
    });
    if let Some(resources) = &wanted.resources {
        container["resources"] = resources.clone();
    }
    let mut security = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    if runner {
        security["fsGroup"] = json!(RUNNER_GROUP);
    }
    let mut pod = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": runner,
        "securityContext": security,
        "containers": [container],
        "volumes": volumes(&wanted.mounts),
    });
    if runner {
        pod["serviceAccountName"] = json!("kubeon-runner");
    }
    let fillers = fillers(&wanted.mounts);
    if !fillers.is_empty() {
        pod["initContainers"] = json!(fillers);
    }
    pod
}

fn fillers(mounts: &[Mount]) -> Vec<Value> {
    let filler = |mount: &Mount| match &mount.source {
        Source::FilledBy(image) => Some(json!({
            "name": mount.volume,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": mount.volume, "mountPath": mount.path}],
            "securityContext": {"allowPrivilegeEscalation": false},
        })),
        Source::ConfigMap(..) | Source::Secret { .. } => None,
    };
    mounts.iter().filter_map(filler).collect()
}

fn mount(mount: &Mount) -> Value {
    let mut value = json!({"name": mount.volume, "mountPath": mount.path, "readOnly": true});
    if let Some(key) = &mount.key {
        value["subPath"] = json!(key);
    }
    value
}

fn volumes(mounts: &[Mount]) -> Vec<Value> {
    let mut volumes: Vec<Value> = Vec::new();
    for mount in mounts {
        if volumes.iter().any(|volume| volume["name"] == mount.volume) {
            continue;
        }
        let mut volume = Map::from_iter([("name".to_owned(), json!(mount.volume))]);
        match &mount.source {
            Source::ConfigMap(name, None) => volume.insert("configMap".to_owned(), json!({"name": name})),
            Source::ConfigMap(name, Some(mode)) => {
                volume.insert("configMap".to_owned(), json!({"name": name, "defaultMode": mode}))
            }
            Source::Secret { name, optional } => {
                let mut secret = json!({"secretName": name, "defaultMode": 0o400});
                if *optional {
                    secret["optional"] = json!(true);
                }
                volume.insert("secret".to_owned(), secret)
            }
            Source::FilledBy(_) => volume.insert("emptyDir".to_owned(), json!({})),
        };
        volumes.push(Value::Object(volume));
    }
    volumes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_key(key: bool, program: Program) -> Value {
        let conf = |volume, mode, path: &str, key: &str| Mount {
            volume,
            source: Source::ConfigMap("myops-entrypoint-0".into(), mode),
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
                source: Source::Secret { name: "key-0".into(), optional: false },
                path: "/auth/ssh-privatekey".into(),
                key: Some("ssh-privatekey".into()),
            });
        }
        job(&OperationJob {
            name: "kubeonkube-myops-job",
            namespace: "mynamespace",
            owner: Some(json!({"kind": "ClusterOperation"})),
            labels: BTreeMap::new(),
            annotations: [("sidecar.istio.io/inject".to_owned(), "false".to_owned())].into(),
            container: "kubeonkube",
            image: "busybox",
            program,
            env: vec![("CLUSTER_NAME".into(), "sample".into())],
            mounts,
            resources: Some(json!({"limits": {"cpu": "1m"}})),
            deadline_seconds: Some(10),
            ttl_seconds: None,
        })
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
    fn only_the_runner_gets_a_token_and_nobody_more_rights_than_it_has() {
        let foreign = with_key(false, Program::Script);
        let pod = &foreign["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert!(pod.get("serviceAccountName").is_none());
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
        let runner = Program::Runner { operation: "myops".into(), action: "script" };
        let ours = with_key(false, runner);
        let pod = &ours["spec"]["template"]["spec"];
        assert_eq!(
            (&pod["serviceAccountName"], &pod["automountServiceAccountToken"]),
            (&json!("kubeon-runner"), &json!(true))
        );
        let command =
            json!(["kubeon-runner", "run", "--operation", "myops", "--action", "script", "--grace", "100"]);
        assert_eq!(pod["containers"][0]["command"], command);
    }
}
