//! The options of an installation.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use kubeon_api::JobPlacement;
use kubeon_api::kubeonkube::RUNNER_ALIAS;

use crate::names;

/// The operator's image.
pub const OPERATOR_IMAGE: &str = concat!("kubeon/kubeon-operator:v", env!("CARGO_PKG_VERSION"));
/// The image whose entry point copies a bundle; `{version}` is replaced by the Kubernetes version.
pub const BUNDLE_IMAGE: &str = "kubeon/kubeon-bundle:{version}";
/// The runner's image.
pub const RUNNER_IMAGE: &str = concat!("kubeon/kubeon-runner:v", env!("CARGO_PKG_VERSION"));
/// The name of the file, attached to the program of a release, with the digests of its images: a JSON object by their names.
pub const IMAGE_DIGESTS: &str = "image-digests";
/// Images whose process 1 is `kubeon-runner`: the name in the samples of kube-on-kube, which stands for the next one, then the
/// name of kubeon. The last one runs operations that are derived from a `KubernetesCluster`.
pub const RUNNER_IMAGES: [&str; 2] = [RUNNER_ALIAS, RUNNER_IMAGE];

/// The options of an installation. `deploy/kubeon.yaml` has the [`Default`] ones.
#[derive(Debug, Clone, PartialEq)]
pub struct InstallOptions {
    /// The operator's namespace.
    pub namespace: String,
    /// More namespaces whose clusters, Secrets and Jobs the operator manages. They must exist.
    pub watch_namespaces: Vec<String>,
    /// The operator's image.
    pub image: String,
    /// The number of replicas. One of them leads; all of them answer admission reviews.
    pub replicas: i32,
    /// Images that get the runner's service account.
    pub runner_images: Vec<String>,
    /// Other images that operations may run: names, and prefixes that end with `*`.
    pub allowed_images: Vec<String>,
    /// Where and with which limits the pods of Jobs run.
    pub job_placement: JobPlacement,
    /// The most operations that run at the same time; `None` for no limit.
    pub max_operations: Option<NonZeroU16>,
    /// The same of the clusters of one region.
    pub max_operations_per_region: Option<NonZeroU16>,
    /// Whether a namespace without a pool of hosts may have no clusters. Otherwise its clusters may have any hosts.
    pub require_host_pools: bool,
    /// The object stores that `spec.snapshots.endpoint` of a cluster may name, as it names them; when there is none, every one.
    pub snapshot_endpoints: Vec<String>,
    /// Whether the webhook answers only API servers that present their client certificate, as those of kubeon's clusters do.
    pub only_api_servers: bool,
    /// The image with the bundle; empty when Jobs get the bundle in another way.
    pub bundle_image: String,
    /// Whether Jobs mount that image. Otherwise its files are copied into each Job.
    pub mount_bundle_image: bool,
    /// The listener for results of operations of a `KubernetesCluster`: `https://…`; empty for none.
    pub callback_url: String,
    /// The ConfigMap in the operator's namespace with the listener's authorities in its key `ca.crt`; when empty, those of the
    /// runner's image are used.
    pub callback_ca: String,
    /// The OpenTelemetry collector for traces: `http://…` or `https://…`; empty for none.
    pub otlp_endpoint: String,
    /// Lines of the format `allowed_signers`: the keys whose bundles Jobs accept; when there is none, they accept every bundle.
    pub trusted_keys: Vec<String>,
    /// More arguments of the operator, such as `--workers=64`.
    pub extra_arguments: Vec<String>,
    /// More users with the operator's rights in admission policies, such as an operator outside of the cluster.
    pub operators: Vec<String>,
    /// Whether another tool may still change the namespace of the operator, as kustomize does. Then admission knows the operator
    /// by a right of its role and not by its namespace.
    pub is_movable: bool,
    /// Resource requests and limits of the operator's container.
    pub resources: ResourceRequirements,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the operator's pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// The number of operations that are kept for each cluster, 1 to 200.
    pub history_limit: String,
}

/// Adds the digest of this image to its name, if it is known.
pub(crate) fn pin_image(image: &mut String, digests: &BTreeMap<String, String>) {
    if let Some(digest) = digests.get(image.as_str()) {
        image.push('@');
        image.push_str(digest);
    }
}

pub(crate) fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, quantity)| ((*name).to_owned(), Quantity((*quantity).to_owned()))).collect()
}

impl Default for InstallOptions {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.to_owned(),
            watch_namespaces: Vec::new(),
            image: OPERATOR_IMAGE.to_owned(),
            replicas: 2,
            runner_images: RUNNER_IMAGES.map(str::to_owned).to_vec(),
            allowed_images: Vec::new(),
            job_placement: JobPlacement::default(),
            max_operations: None,
            max_operations_per_region: None,
            require_host_pools: false,
            snapshot_endpoints: Vec::new(),
            only_api_servers: false,
            bundle_image: BUNDLE_IMAGE.to_owned(),
            mount_bundle_image: false,
            callback_url: String::new(),
            callback_ca: String::new(),
            otlp_endpoint: String::new(),
            trusted_keys: Vec::new(),
            extra_arguments: Vec::new(),
            operators: Vec::new(),
            is_movable: false,
            resources: ResourceRequirements {
                requests: Some(quantities(&[("cpu", "50m"), ("memory", "64Mi")])),
                limits: Some(quantities(&[("memory", "256Mi")])),
                claims: None,
            },
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            history_limit: "30".to_owned(),
        }
    }
}

impl InstallOptions {
    /// The operator's own namespace and the watched ones, each once.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        let others = self.watch_namespaces.iter().map(String::as_str).filter(|name| *name != self.namespace);
        let mut unique = std::collections::BTreeSet::new();
        std::iter::once(self.namespace.as_str()).chain(others).filter(move |name| unique.insert(*name))
    }

    /// Adds the digests of images, such as `sha256:…`, by the names of the images. Other images stay as they are.
    pub fn pin(&mut self, digests: &BTreeMap<String, String>) {
        pin_image(&mut self.image, digests);
        self.runner_images.iter_mut().for_each(|image| pin_image(image, digests));
    }

    /// The users with the operator's rights in admission policies.
    pub fn operator_users(&self) -> Vec<String> {
        let own = names::service_account(&self.namespace, names::OPERATOR);
        std::iter::once(own).chain(self.operators.iter().cloned()).collect()
    }
}
