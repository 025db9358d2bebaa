//! The Job of an operation, as contracts A (1.5) and B (2.4) describe it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, ImageVolumeSource,
    PodSecurityContext, PodSpec, PodTemplateSpec, ProjectedVolumeSource, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, ServiceAccountTokenProjection, Volume, VolumeMount,
    VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::JobPlacement;

/// The user and group of the images of kubeon. Mounted files belong to the group.
const NONROOT: i64 = 65532;
/// The mode of files that only their owner can read.
const OWNER_READS: i32 = 0o400;
/// The folder to which the image of a bundle copies its files.
const FILLED: &str = "/target";
/// The only writable folder in the container of a runner.
const SCRATCH: &str = "/tmp";
/// The name of the token file in its volume.
pub const TOKEN: &str = "token";
/// The service account of runners.
pub const RUNNER_ACCOUNT: &str = "kubeon-runner";
/// Seconds between SIGTERM and SIGKILL of a pod, for the hooks that always run.
const GRACE_SECONDS: i64 = 120;
/// The part of [`GRACE_SECONDS`] that the runner gives to its work.
const WORK_GRACE: &str = "100";

/// The values of a Job that differ between operations.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationJob<'a> {
    /// Its name, at most 63 characters.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The object that controls it.
    pub owner: Option<OwnerReference>,
    /// Labels of the Job and its pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Job and its pods.
    pub annotations: BTreeMap<String, String>,
    /// The container's name.
    pub container: &'a str,
    /// The image.
    pub image: &'a str,
    /// The program that runs as process 1.
    pub program: Program,
    /// Environment variables, in order. They never contain a secret.
    pub env: Vec<(String, String)>,
    /// Mounted files and folders.
    pub mounts: Vec<Mount>,
    /// Requests and limits of the container, if they differ from those of the placement.
    pub resources: Option<ResourceRequirements>,
    /// Where and with which limits the pod runs.
    pub placement: &'a JobPlacement,
    /// Seconds after which Kubernetes ends the Job; 0 or less: no deadline.
    pub deadline_seconds: Option<i64>,
    /// Seconds between the end of the Job and its removal.
    pub ttl_seconds: Option<i32>,
}

/// The program that runs as process 1 of the Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The mounted script, in an image that is not from kubeon. It gets no service account token.
    Script,
    /// `kubeon-runner run`, under the service account [`RUNNER_ACCOUNT`].
    Runner {
        /// The operation whose status it writes.
        operation: String,
        /// The action that it runs: `script` or `kubeon`.
        action: &'static str,
        /// Further arguments.
        more: Vec<String>,
    },
}

impl Program {
    /// Whether another pod continues where one was stopped. A playbook or a script would begin again.
    fn continues(&self) -> bool {
        matches!(self, Self::Runner { action: "kubeon", .. })
    }
}

/// One file or folder of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The volume's name; mounts of one name share a volume.
    pub volume: &'static str,
    /// The content of the volume.
    pub source: MountSource,
    /// The path in the container.
    pub path: String,
    /// The key or the folder that is mounted; everything when absent.
    pub key: Option<String>,
}

/// The content of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountSource {
    /// A ConfigMap.
    ConfigMap {
        /// Its name.
        name: String,
        /// The mode of its files; the default of Kubernetes when absent.
        mode: Option<i32>,
        /// Whether the pod starts with an empty volume when the ConfigMap does not exist.
        optional: bool,
    },
    /// A Secret. Only the owner can read its files.
    Secret {
        /// Its name.
        name: String,
        /// Whether the pod starts with an empty volume when the Secret does not exist.
        optional: bool,
    },
    /// A token of the pod's service account for one audience, in the file [`TOKEN`]. The kubelet renews it before it expires.
    Token {
        /// The audience.
        audience: String,
        /// Seconds until it expires, 600 at least.
        seconds: u32,
    },
    /// An empty folder that an init container fills. The container has the name of the volume and runs this image, which
    /// copies its files to `/target`.
    FilledBy(String),
    /// The files of this image, without a copy.
    Image(String),
}

/// The image with the bundle of a Kubernetes version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleImage {
    /// Its name, in which `{version}` stands for the version.
    pub name: String,
    /// Whether the folder `bundle` of the image is mounted. Otherwise its entry point copies the bundle to `/target`.
    pub is_mounted: bool,
}

impl Mount {
    /// The bundle of a Kubernetes version, at `/bundle`.
    #[must_use]
    pub fn bundle(image: &BundleImage, version: &str) -> Self {
        let name = image.name.replace("{version}", version);
        let (source, key) = match image.is_mounted {
            true => (MountSource::Image(name), Some("bundle".to_owned())),
            false => (MountSource::FilledBy(name), None),
        };
        Self { volume: "bundle", source, path: "/bundle".to_owned(), key }
    }

    /// The bundle of a second version, beside [`Mount::bundle`], at `/bundle-in-use`: of the one that runs, or of an upgrade that
    /// is not complete.
    #[must_use]
    pub fn bundle_in_use(image: &BundleImage, version: &str) -> Self {
        Self { volume: "bundle-in-use", path: "/bundle-in-use".to_owned(), ..Self::bundle(image, version) }
    }
}

/// The Job.
#[must_use]
pub fn job(operation: &OperationJob<'_>) -> Job {
    let metadata = ObjectMeta {
        labels: Some(operation.labels.clone()),
        annotations: Some(operation.annotations.clone()),
        ..ObjectMeta::default()
    };
    let spec = JobSpec {
        backoff_limit: Some(0),
        completions: Some(1),
        parallelism: Some(1),
        // A removed pod counts as failed; the Job must not start a second pod while the first one terminates.
        pod_replacement_policy: Some("Failed".to_owned()),
        pod_failure_policy: operation.program.continues().then(replacement_of_lost_pods),
        template: PodTemplateSpec { metadata: Some(metadata.clone()), spec: Some(pod(operation)) },
        active_deadline_seconds: operation.deadline_seconds.filter(|seconds| *seconds > 0),
        ttl_seconds_after_finished: operation.ttl_seconds,
        ..JobSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(operation.name.to_owned()),
        namespace: Some(operation.namespace.to_owned()),
        owner_references: operation.owner.clone().map(|owner| vec![owner]),
        ..metadata
    };
    Job { metadata, spec: Some(spec), status: None }
}

/// A pod that is evicted, preempted or lost with its node is replaced and does not count as failed.
fn replacement_of_lost_pods() -> PodFailurePolicy {
    PodFailurePolicy {
        rules: vec![PodFailurePolicyRule {
            action: "Ignore".to_owned(),
            on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                type_: "DisruptionTarget".to_owned(),
                status: Some("True".to_owned()),
            }]),
            ..PodFailurePolicyRule::default()
        }],
    }
}

fn pod(operation: &OperationJob<'_>) -> PodSpec {
    let runner = operation.program != Program::Script;
    let fillers: Vec<Container> = operation.mounts.iter().filter_map(filler).collect();
    let mut volumes = volumes(&operation.mounts);
    volumes.extend(runner.then(|| Volume {
        name: "scratch".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }));
    let placement = operation.placement;
    PodSpec {
        node_selector: Some(placement.node_selector.clone()).filter(|labels| !labels.is_empty()),
        tolerations: Some(placement.tolerations.clone()).filter(|tolerations| !tolerations.is_empty()),
        priority_class_name: placement.priority_class_name.clone(),
        image_pull_secrets: Some(placement.image_pull_secrets.clone()).filter(|secrets| !secrets.is_empty()),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        automount_service_account_token: Some(runner),
        service_account_name: runner.then(|| RUNNER_ACCOUNT.to_owned()),
        security_context: Some(pod_security(runner)),
        volumes: Some(volumes),
        init_containers: Some(fillers).filter(|fillers| !fillers.is_empty()),
        containers: vec![container(operation, runner)],
        ..PodSpec::default()
    }
}

fn container(operation: &OperationJob<'_>, runner: bool) -> Container {
    let scratch = || VolumeMount {
        name: "scratch".to_owned(),
        mount_path: SCRATCH.to_owned(),
        ..VolumeMount::default()
    };
    let mounts = operation.mounts.iter().map(mount).chain(runner.then(scratch));
    Container {
        name: operation.container.to_owned(),
        image: Some(operation.image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(command(&operation.program)),
        env: Some(env(operation, runner)),
        volume_mounts: Some(mounts.collect()),
        security_context: Some(privileges(runner)),
        resources: operation.resources.clone().or_else(|| operation.placement.resources.clone()),
        ..Container::default()
    }
}

fn command(program: &Program) -> Vec<String> {
    let words = match program {
        Program::Script => return vec!["/bin/entrypoint.sh".to_owned()],
        Program::Runner { operation, action, more } => {
            let words = ["kubeon-runner", "run", "--operation", operation, "--action", action];
            words.into_iter().chain(["--grace", WORK_GRACE]).chain(more.iter().map(String::as_str))
        }
    };
    words.map(str::to_owned).collect()
}

fn env(operation: &OperationJob<'_>, runner: bool) -> Vec<EnvVar> {
    // HOME is the writable folder, for programs that need a home directory.
    let home = runner.then(|| ("HOME".to_owned(), SCRATCH.to_owned()));
    let variable = |(name, value)| EnvVar { name, value: Some(value), value_from: None };
    operation.env.iter().cloned().chain(home).map(variable).collect()
}

fn pod_security(runner: bool) -> PodSecurityContext {
    let nonroot = runner.then_some(NONROOT);
    PodSecurityContext {
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        run_as_non_root: runner.then_some(true),
        run_as_user: nonroot,
        run_as_group: nonroot,
        fs_group: nonroot,
        ..PodSecurityContext::default()
    }
}

/// The security context of a container. Images of kubeon get no capabilities; other images may need theirs.
fn privileges(own_image: bool) -> SecurityContext {
    let dropped = || Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None };
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: own_image.then_some(true),
        capabilities: own_image.then(dropped),
        ..SecurityContext::default()
    }
}

/// The init container that fills the volume of this mount, if it needs one.
fn filler(mount: &Mount) -> Option<Container> {
    let MountSource::FilledBy(image) = &mount.source else { return None };
    Some(Container {
        name: mount.volume.to_owned(),
        image: Some(image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        volume_mounts: Some(vec![VolumeMount {
            name: mount.volume.to_owned(),
            mount_path: FILLED.to_owned(),
            ..VolumeMount::default()
        }]),
        security_context: Some(privileges(true)),
        ..Container::default()
    })
}

fn mount(mount: &Mount) -> VolumeMount {
    VolumeMount {
        name: mount.volume.to_owned(),
        mount_path: mount.path.clone(),
        read_only: Some(true),
        sub_path: mount.key.clone(),
        ..VolumeMount::default()
    }
}

/// One volume for each name, made from the first mount with that name.
fn volumes(mounts: &[Mount]) -> Vec<Volume> {
    let mut names = BTreeSet::new();
    mounts.iter().filter(|mount| names.insert(mount.volume)).map(volume).collect()
}

fn volume(mount: &Mount) -> Volume {
    let mut volume = Volume { name: mount.volume.to_owned(), ..Volume::default() };
    match &mount.source {
        MountSource::ConfigMap { name, mode, optional } => {
            volume.config_map = Some(ConfigMapVolumeSource {
                name: name.clone(),
                default_mode: *mode,
                optional: optional.then_some(true),
                items: None,
            });
        }
        MountSource::Secret { name, optional } => {
            volume.secret = Some(SecretVolumeSource {
                secret_name: Some(name.clone()),
                default_mode: Some(OWNER_READS),
                optional: optional.then_some(true),
                items: None,
            });
        }
        MountSource::Token { audience, seconds } => volume.projected = Some(token(audience, *seconds)),
        MountSource::FilledBy(_) => volume.empty_dir = Some(EmptyDirVolumeSource::default()),
        MountSource::Image(name) => {
            volume.image = Some(ImageVolumeSource {
                reference: Some(name.clone()),
                pull_policy: Some("IfNotPresent".to_owned()),
            });
        }
    }
    volume
}

fn token(audience: &str, seconds: u32) -> ProjectedVolumeSource {
    let token = ServiceAccountTokenProjection {
        audience: Some(audience.to_owned()),
        expiration_seconds: Some(i64::from(seconds)),
        path: TOKEN.to_owned(),
    };
    let source = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    ProjectedVolumeSource { sources: Some(vec![source]), default_mode: Some(OWNER_READS) }
}

#[cfg(test)]
mod tests;
