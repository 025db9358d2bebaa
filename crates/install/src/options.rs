//! What a person decides about an installation.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::names;

/// The operator's image.
pub const OPERATOR_IMAGE: &str = concat!("kubeon/kubeon-operator:v", env!("CARGO_PKG_VERSION"));
/// The image whose entry point copies a bundle; `{version}` stands for the Kubernetes version.
pub const BUNDLE_IMAGE: &str = "kubeon/kubeon-bundle:{version}";
/// Images whose process 1 is `kubeon-runner`: the name that samples of kube-on-kube use, then ours. The last one runs
/// operations that are derived from a `KubernetesCluster`.
pub const RUNNER_IMAGES: [&str; 2] =
    ["wangzhichidocker/kubeonkube:v0.1", concat!("kubeon/kubeon-runner:v", env!("CARGO_PKG_VERSION"))];

/// What a person decides about an installation. [`Default`] is what `deploy/kubeon.yaml` holds.
#[derive(Debug, Clone, PartialEq)]
pub struct InstallOptions {
    /// The operator's namespace.
    pub namespace: String,
    /// Further namespaces whose clusters, Secrets and Jobs the operator looks after. They must exist.
    pub watch_namespaces: Vec<String>,
    /// The operator's image.
    pub image: String,
    /// How many operators run; one of them works, all of them answer admission.
    pub replicas: Value,
    /// Images that get the runner's service account.
    pub runner_images: Vec<String>,
    /// The image that holds a bundle; empty: a Job's hosts get theirs otherwise.
    pub bundle_image: String,
    /// Who is told what came of operations of a `KubernetesCluster`: `https://…`; empty: nobody.
    pub callback_url: String,
    /// The ConfigMap in the operator's namespace whose key `ca.crt` vouches for that listener; empty: the authorities of
    /// the runner's image do.
    pub callback_ca: String,
    /// The OpenTelemetry collector that traces are sent to: `http://…` or `https://…`; empty: none.
    pub otlp_endpoint: String,
    /// Further arguments of the operator, such as `--workers=64`.
    pub extra_arguments: Vec<String>,
    /// Users beside the operator's service account that may write what is the operator's: one that runs outside of the
    /// cluster, from a kubeconfig.
    pub operators: Vec<String>,
    /// What the operator's container may use: requests and limits.
    pub resources: Value,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are no obstacle.
    pub tolerations: Vec<Value>,
    /// Whether replicas agree on one that works: `true` or `false`. Needed for more than one.
    pub leader_election: String,
    /// How many operations of a cluster are kept, 1 to 200.
    pub history_limit: String,
}

impl Default for InstallOptions {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.to_owned(),
            watch_namespaces: vec!["default".to_owned()],
            image: OPERATOR_IMAGE.to_owned(),
            replicas: json!(2),
            runner_images: RUNNER_IMAGES.map(str::to_owned).to_vec(),
            bundle_image: BUNDLE_IMAGE.to_owned(),
            callback_url: String::new(),
            callback_ca: String::new(),
            otlp_endpoint: String::new(),
            extra_arguments: Vec::new(),
            operators: Vec::new(),
            resources: json!({
                "requests": {"cpu": "50m", "memory": "64Mi"},
                "limits": {"memory": "256Mi"},
            }),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            leader_election: "true".to_owned(),
            history_limit: "30".to_owned(),
        }
    }
}

impl InstallOptions {
    /// The operator's own namespace and the watched ones, each once.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        let others = self.watch_namespaces.iter().map(String::as_str).filter(|name| *name != self.namespace);
        let mut seen = std::collections::BTreeSet::new();
        std::iter::once(self.namespace.as_str()).chain(others).filter(move |name| seen.insert(*name))
    }

    /// Everyone who may write what is the operator's.
    pub fn operator_users(&self) -> Vec<String> {
        let own = names::service_account(&self.namespace, names::OPERATOR);
        std::iter::once(own).chain(self.operators.iter().cloned()).collect()
    }
}
