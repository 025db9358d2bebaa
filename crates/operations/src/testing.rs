//! A simulated API server for tests: objects as JSON, and reconciles that write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::kubeonkube::{Action, ClusterOperationSpec};
use kubeon_api::{ClusterOperation, DataRef};
use kubeon_render::job::BundleImage;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::view::{
    ClusterObject, Data, ObjectOwnership, Objects, Observed, StartPermission, View, WriteRefusal,
};
use crate::write::{Change, Decision, FAILURES, ObjectKind, ObjectRef, Write};
use crate::{ObservedHealth, OperatorSettings, QueueKey, decide};

/// The most reconciles until nothing is left to do; more mean that the reconciles do not converge.
const MOST_RECONCILES: usize = 40;

pub(crate) fn operation(name: &str, at: i64) -> ClusterOperation {
    let spec = ClusterOperationSpec {
        cluster: "sample".into(),
        main: Action { action_type: "shell".into(), action: "sleep 10".into(), ..Action::default() },
        image: "busybox".into(),
        ..ClusterOperationSpec::default()
    };
    let mut operation = ClusterOperation::new(name, spec);
    operation.metadata.uid = Some(format!("uid-{name}"));
    operation.metadata.creation_timestamp =
        Timestamp::from_second(at).ok().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
    operation
}

#[derive(Clone)]
pub(crate) struct World {
    pub objects: BTreeMap<ObjectRef, Value>,
    pub queue_key: QueueKey,
    pub settings: OperatorSettings,
    pub now: Timestamp,
    pub refusals: BTreeMap<String, WriteRefusal>,
    pub start: StartPermission,
    pub health: Option<ObservedHealth>,
    /// What every pod wrote.
    pub log: String,
    pub written: Vec<Write>,
    version: u64,
}

impl Objects for World {
    fn meta(&self, target: &ObjectRef) -> Option<ObjectOwnership> {
        let found = self.objects.get(target)?;
        Some(ObjectOwnership::of(&serde_json::from_value(found["metadata"].clone()).unwrap()))
    }
}

impl World {
    pub(crate) fn new(queue_key: QueueKey) -> Self {
        let settings = OperatorSettings {
            namespace: "ns".into(),
            watched: vec!["default".into()],
            runner_images: vec!["wangzhichidocker/kubeonkube:v0.1".into(), "kubeon/kubeon-runner:v1".into()],
            placement: kubeon_api::JobPlacement::default(),
            allowed_images: vec!["busybox".into(), "quay.io/kubespray/*".into()],
            bundle_image: Some(BundleImage {
                name: "kubeon/kubeon-bundle:{version}".into(),
                is_mounted: false,
            }),
            default_version: "v1.36.3".into(),
            versions: ["v1.36.3", "v1.36.4", "v1.37.2", "v1.38.1"].map(|text| text.parse().unwrap()).into(),
            history_limit: 30,
            log_kib: crate::settings::LOG_KIB,
            callback: None,
            trusted_keys: Vec::new(),
        };
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let (objects, refusals, written) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let start = StartPermission::Now;
        let log = "words of the pod\n".to_owned();
        Self { objects, queue_key, settings, now, refusals, start, health: None, log, written, version: 1 }
    }

    /// A Cluster `sample` with inventory, variables and key in the operator's namespace.
    pub(crate) fn with_cluster() -> Self {
        let mut world = Self::new(QueueKey::Cluster("sample".into()));
        let at = |name: &str| json!({"namespace": "ns", "name": name});
        world.put(
            ObjectKind::Cluster,
            "",
            "sample",
            json!({"spec": {
            "hostsConfRef": at("hosts"), "varsConfRef": at("vars"), "sshAuthRef": at("key")}}),
        );
        world.put(ObjectKind::ConfigMap, "ns", "hosts", json!({"data": {"hosts.yml": "all: {}\n"}}));
        world.put(ObjectKind::ConfigMap, "ns", "vars", json!({"data": {"group_vars.yml": "a: 1\n"}}));
        world.put(
            ObjectKind::Secret,
            "ns",
            "key",
            json!({"type": "kubernetes.io/ssh-auth", "stringData": {
            "ssh-privatekey": "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"}}),
        );
        world
    }

    pub(crate) fn put(&mut self, kind: ObjectKind, namespace: &str, name: &str, mut value: Value) {
        self.version += 1;
        let uid = format!("uid-{name}");
        let meta =
            value.as_object_mut().unwrap().entry("metadata").or_insert(json!({})).as_object_mut().unwrap();
        meta.insert("name".into(), json!(name));
        if !namespace.is_empty() {
            meta.insert("namespace".into(), json!(namespace));
        }
        meta.entry("uid").or_insert(json!(uid));
        meta.entry("generation").or_insert(json!(1));
        meta.insert("resourceVersion".into(), json!(self.version.to_string()));
        meta.entry("creationTimestamp").or_insert(json!(self.now.to_string()));
        let (group, kind_name) = match kind {
            ObjectKind::Cluster | ObjectKind::Operation => ("kubeonkube.clay.io/v1alpha1", kind.as_str()),
            ObjectKind::KubernetesCluster => ("ecs.yun.com/v1", kind.as_str()),
            ObjectKind::Job => ("batch/v1", "Job"),
            _ => ("v1", kind.as_str()),
        };
        value["apiVersion"] = json!(group);
        value["kind"] = json!(kind_name);
        self.objects.insert(ObjectRef::new(kind, namespace, name), value);
    }

    pub(crate) fn ask(&mut self, name: &str, change: impl FnOnce(&mut ClusterOperationSpec)) {
        let mut spec = operation(name, 0).spec;
        change(&mut spec);
        self.now += SignedDuration::from_secs(1);
        self.put(ObjectKind::Operation, "", name, json!({"spec": spec}));
    }

    pub(crate) fn change(&mut self, kind: ObjectKind, namespace: &str, name: &str, patch: &Value) {
        let target = ObjectRef::new(kind, namespace, name);
        let mut value = self.objects.get(&target).cloned().unwrap_or_else(|| panic!("{target:?} is missing"));
        merge(&mut value, patch);
        self.put(kind, namespace, name, value);
    }

    pub(crate) fn all<K: DeserializeOwned>(&self, kind: ObjectKind) -> Vec<Arc<K>> {
        let found = self.objects.iter().filter(|(target, _)| target.kind == kind);
        found.map(|(_, value)| Arc::new(serde_json::from_value(value.clone()).unwrap())).collect()
    }

    pub(crate) fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> &Value {
        let target = ObjectRef::new(kind, namespace, name);
        self.objects.get(&target).unwrap_or_else(|| panic!("{target:?} is missing"))
    }

    pub(crate) fn status(&self, name: &str) -> &Value {
        &self.get(ObjectKind::Operation, "", name)["status"]
    }

    pub(crate) fn jobs(&self) -> Vec<String> {
        self.objects
            .keys()
            .filter(|target| target.kind == ObjectKind::Job)
            .map(|target| target.name.clone())
            .collect()
    }

    /// Writes a condition into the status of a Job, as the Job controller does.
    pub(crate) fn job_says(&mut self, name: &str, condition: &str) {
        let namespace = self.jobs_namespace(name);
        let now = self.now.to_string();
        let condition = json!([{"type": condition, "status": "True", "reason": condition, "message": "said so", "lastTransitionTime": now}]);
        let status = json!({"status": {"conditions": condition, "completionTime": now}});
        self.change(ObjectKind::Job, &namespace, name, &status);
    }

    fn jobs_namespace(&self, name: &str) -> String {
        let found = self.objects.keys().find(|target| target.kind == ObjectKind::Job && target.name == name);
        found.map(|target| target.namespace.clone()).unwrap_or_default()
    }

    fn subject(&self) -> ClusterObject {
        match &self.queue_key {
            QueueKey::Cluster(_) => ClusterObject::Cluster(
                self.all(ObjectKind::Cluster).pop().map_or(Observed::Absent, Observed::Found),
            ),
            QueueKey::KubernetesCluster { .. } => ClusterObject::KubernetesCluster(
                self.all(ObjectKind::KubernetesCluster).pop().map_or(Observed::Absent, Observed::Found),
            ),
        }
    }

    fn plan(&self, data: &BTreeMap<ObjectRef, Data>) -> Decision {
        decide(&View {
            queue_key: &self.queue_key,
            settings: &self.settings,
            now: self.now,
            subject: self.subject(),
            operations: self.all(ObjectKind::Operation),
            jobs: self.all(ObjectKind::Job),
            pods: self.all(ObjectKind::Log),
            objects: self,
            data,
            refusals: &self.refusals,
            start: self.start.clone(),
            health: self.health.clone(),
        })
    }

    /// The changes of one decision; its reads are answered.
    pub(crate) fn next(&self) -> crate::ClusterChanges {
        let mut data = BTreeMap::new();
        for _ in 0..4 {
            match self.plan(&data) {
                Decision::Apply(changes) => return changes,
                Decision::Read(targets) => {
                    for target in targets {
                        assert!(!data.contains_key(&target), "{target:?} is read twice");
                        data.insert(target.clone(), self.answer(&target));
                    }
                }
            }
        }
        panic!("the decision does not stop reading");
    }

    fn answer(&self, target: &ObjectRef) -> Data {
        let Some(value) = self.objects.get(target) else { return Data::Absent };
        let bytes = |key: &str| -> BTreeMap<String, Vec<u8>> {
            let map = value[key].as_object().cloned().unwrap_or_default();
            map.into_iter().map(|(key, value)| (key, value.as_str().unwrap().as_bytes().to_vec())).collect()
        };
        match target.kind {
            ObjectKind::ConfigMap => Data::Values { values: bytes("data"), kind: String::new() },
            ObjectKind::Secret => Data::Values {
                values: bytes("stringData"),
                kind: value["type"].as_str().unwrap_or_default().to_owned(),
            },
            ObjectKind::Log => Data::Log(self.log.clone()),
            ObjectKind::Job => Data::Job(Box::new(serde_json::from_value(value.clone()).unwrap())),
            _ => Data::Exists,
        }
    }

    /// Reconciles until nothing is left to do, or until `most` writes were sent, as if the process was killed
    /// then.
    pub(crate) fn settle_within(&mut self, most: usize) -> usize {
        let mut done = 0;
        for _ in 0..MOST_RECONCILES {
            let changes = self.next();
            if changes.is_done() {
                return done;
            }
            for notice in changes.notices.iter().filter(|notice| notice.reason.ends_with("Failed")) {
                assert!(
                    FAILURES.contains(&notice.reason),
                    "the counter of {} does not start at zero",
                    notice.reason
                );
            }
            for notice in &changes.notices {
                let with = |write: &Write| write.target == notice.with;
                assert!(
                    changes.stages.iter().flatten().any(with),
                    "the event belongs to no write: {notice:?}"
                );
            }
            'stages: for stage in changes.stages {
                let mut targets: Vec<_> = stage.iter().map(|write| write.target.clone()).collect();
                targets.sort();
                targets.dedup();
                assert_eq!(targets.len(), stage.len(), "one object is written twice in one stage: {stage:?}");
                let mut refused = false;
                for write in stage {
                    if done == most {
                        return done;
                    }
                    refused |= !self.write(&write);
                    self.written.push(write);
                    done += 1;
                }
                if refused {
                    break 'stages;
                }
            }
            self.check_one_at_a_time();
        }
        panic!(
            "the reconciles do not converge; last writes: {:?}",
            self.written.iter().rev().take(4).collect::<Vec<_>>()
        );
    }

    pub(crate) fn settle(&mut self) -> usize {
        self.settle_within(usize::MAX)
    }

    /// Checks that two operations of one queue key never run at the same time.
    pub(crate) fn check_one_at_a_time(&self) {
        let live: Vec<String> = self
            .all::<k8s_openapi::api::batch::v1::Job>(ObjectKind::Job)
            .iter()
            .filter(|job| crate::job_state::job_state(job) == crate::job_state::JobState::Running)
            .filter_map(|job| job.metadata.name.clone())
            .collect();
        assert!(live.len() < 2, "two Jobs run: {live:?}");
    }

    /// Applies a write; false when it was refused.
    pub(crate) fn write(&mut self, write: &Write) -> bool {
        let target = write.target.clone();
        let current = self.objects.get(&target).cloned();
        match (&write.change, current) {
            (Change::Create(_), Some(_)) | (Change::Delete { .. }, None) => true,
            (Change::Create(value), None) => {
                self.put(target.kind, &target.namespace, &target.name, json!(value));
                true
            }
            (Change::Delete { .. }, Some(_)) => {
                self.objects.remove(&target);
                true
            }
            (_, None) => false,
            (Change::Merge(_) | Change::Status(_), Some(mut value)) => {
                let patch = &body(&write.change);
                let guard = patch.pointer("/metadata/resourceVersion");
                if guard.is_some_and(|guard| *guard != value["metadata"]["resourceVersion"]) {
                    return false;
                }
                merge(&mut value, patch);
                let deleting = !value["metadata"]["deletionTimestamp"].is_null();
                if deleting && value["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                    self.objects.remove(&target);
                    return true;
                }
                self.put(target.kind, &target.namespace, &target.name, value);
                true
            }
            (Change::Disown { owner }, Some(mut value)) => {
                let mut owners = value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                owners.retain(|one| one["uid"] != *owner);
                value["metadata"]["ownerReferences"] = json!(owners);
                self.put(target.kind, &target.namespace, &target.name, value);
                true
            }
        }
    }
}

/// The JSON of a write, as it is sent to the API server.
pub(crate) fn body(change: &Change) -> Value {
    match change {
        Change::Create(object) => json!(object),
        Change::Merge(patch) => json!(patch),
        Change::Disown { owner } => json!({"owner": owner}),
        Change::Status(patch) => json!(patch),
        Change::Delete { uid } => json!({"uid": uid}),
    }
}

pub(crate) fn reference(name: &str) -> DataRef {
    DataRef::new("ns", name)
}

fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Value::Object(fields) = value else { return };
    for (key, new) in patch {
        if new.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), new);
        }
    }
}
