//! The Job of an operation, as contracts A (1.5) and B (2.4) describe it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The user and group of our images; files that are mounted belong to the group.
const NONROOT: i64 = 65532;
/// Where the image of a bundle copies it to.
const FILLED: &str = "/target";
/// The only folder of a runner's container that it may write in.
const SCRATCH: &str = "/tmp";
/// The file of a token in its volume.
pub const TOKEN: &str = "token";
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
        /// Further arguments.
        more: Vec<String>,
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
    /// A ConfigMap. It need not be there when `optional`.
    ConfigMap {
        /// Its name.
        name: String,
        /// Its files' mode, where it is not the usual one.
        mode: Option<u32>,
        /// Whether the volume is empty without it.
        optional: bool,
    },
    /// A Secret, whose files only the owner reads. It need not be there when `optional`.
    Secret {
        /// Its name.
        name: String,
        /// Whether the volume is empty without it.
        optional: bool,
    },
    /// A token of the pod's service account for nobody but this audience, file `token`. The kubelet renews it in time.
    Token {
        /// Who takes it.
        audience: String,
        /// For how many seconds it is good, 600 at least.
        seconds: u32,
    },
    /// Nothing at first. The init container that is named after the volume fills it: its image copies files that it
    /// brings along to `/target`.
    FilledBy(String),
}

impl Mount {
    /// The bundle of a Kubernetes version, at `/bundle`; `{version}` in the image's name stands for the version.
    #[must_use]
    pub fn bundle(image: &str, version: &str) -> Self {
        let source = Source::FilledBy(image.replace("{version}", version));
        Self { volume: "bundle", source, path: "/bundle".to_owned(), key: None }
    }
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
    let mut container = json!({
        "name": wanted.container,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command(&wanted.program),
        "env": env(wanted),
        "volumeMounts": wanted.mounts.iter().map(mount).collect::<Vec<_>>(),
        "securityContext": privileges(runner),
    });
    if let Some(resources) = &wanted.resources {
        container["resources"] = resources.clone();
    }
    let mut pod = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": runner,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": volumes(&wanted.mounts),
    });
    if runner {
        let security = &mut pod["securityContext"];
        security["runAsNonRoot"] = json!(true);
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            security[field] = json!(NONROOT);
        }
        pod["serviceAccountName"] = json!("kubeon-runner");
        append(&mut pod["volumes"], json!({"name": "scratch", "emptyDir": {}}));
        append(&mut container["volumeMounts"], json!({"name": "scratch", "mountPath": SCRATCH}));
    }
    pod["containers"] = json!([container]);
    let fillers = fillers(&wanted.mounts);
    if !fillers.is_empty() {
        pod["initContainers"] = json!(fillers);
    }
    pod
}

fn append(list: &mut Value, item: Value) {
    if let Value::Array(items) = list {
        items.push(item);
    }
}

fn command(program: &Program) -> Vec<&str> {
    match program {
        Program::Script => vec!["/bin/entrypoint.sh"],
        Program::Runner { operation, action, more } => {
            let mut words = vec!["kubeon-runner", "run", "--operation", operation, "--action", action];
            words.extend(["--grace", WORK_GRACE]);
            words.extend(more.iter().map(String::as_str));
            words
        }
    }
}

fn env(wanted: &OperationJob<'_>) -> Vec<Value> {
    // Whatever looks for a home finds the folder that may be written in.
    let own = (wanted.program != Program::Script).then_some(("HOME", SCRATCH));
    let given = wanted.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    given.chain(own).map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// What a container may do: ours as little as can be, any other what its image is made for.
fn privileges(ours: bool) -> Value {
    if ours {
        return json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        });
    }
    json!({"allowPrivilegeEscalation": false})
}

fn fillers(mounts: &[Mount]) -> Vec<Value> {
    let filler = |mount: &Mount| match &mount.source {
        Source::FilledBy(image) => Some(json!({
            "name": mount.volume,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": mount.volume, "mountPath": FILLED}],
            "securityContext": privileges(true),
        })),
        Source::ConfigMap { .. } | Source::Secret { .. } | Source::Token { .. } => None,
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
            Source::ConfigMap { name, mode, optional } => {
                let mut map = json!({"name": name});
                if let Some(mode) = mode {
                    map["defaultMode"] = json!(mode);
                }
                if *optional {
                    map["optional"] = json!(true);
                }
                volume.insert("configMap".to_owned(), map)
            }
            Source::Secret { name, optional } => {
                let mut secret = json!({"secretName": name, "defaultMode": 0o400});
                if *optional {
                    secret["optional"] = json!(true);
                }
                volume.insert("secret".to_owned(), secret)
            }
            Source::Token { audience, seconds } => {
                let token = json!({"audience": audience, "expirationSeconds": seconds, "path": TOKEN});
                let sources = json!([{"serviceAccountToken": token}]);
                volume.insert("projected".to_owned(), json!({"sources": sources, "defaultMode": 0o400}))
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
            source: Source::ConfigMap { name: "myops-entrypoint-0".into(), mode, optional: false },
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
        let ours = with_key(false, runner());
        let pod = &ours["spec"]["template"]["spec"];
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
    fn a_runner_is_nobody_special_and_writes_in_one_folder() {
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
    fn what_always_runs_has_most_of_the_time_between_the_signal_and_the_death() {
        let (work, grace) = (i64::from(crate::frame::WORK_SECONDS), WORK_GRACE.parse::<i64>().unwrap());
        assert!(2 * work < grace && grace < GRACE_SECONDS);
    }

    #[test]
    fn a_token_is_for_one_audience_and_a_bounded_time() {
        let source = Source::Token { audience: "kubeon-callback/uid-1".into(), seconds: 3600 };
        let mount = Mount { volume: "callback-token", source, path: "/callback".into(), key: None };
        let token = json!({"audience": "kubeon-callback/uid-1", "expirationSeconds": 3600, "path": "token"});
        let projected = json!({"sources": [{"serviceAccountToken": token}], "defaultMode": 0o400});
        assert_eq!(volumes(&[mount]), [json!({"name": "callback-token", "projected": projected})]);
    }

    #[test]
    fn a_bundle_is_copied_into_an_empty_volume_before_the_work() {
        let wanted = Mount::bundle("kubeon/kubeon-bundle:{version}", "v1.36.3");
        assert_eq!(wanted.source, Source::FilledBy("kubeon/kubeon-bundle:v1.36.3".into()));
        let fillers = fillers(std::slice::from_ref(&wanted));
        assert_eq!(fillers[0]["volumeMounts"], json!([{"name": "bundle", "mountPath": "/target"}]));
        assert_eq!(fillers[0]["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(mount(&wanted), json!({"name": "bundle", "mountPath": "/bundle", "readOnly": true}));
    }
}
