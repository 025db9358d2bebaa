//! The older form of the spec, used in the published sample: the fields of the cluster directly under `spec`.
//!
//! Reading moves them into `spec.cluster`, so no other code handles the older form. The schema contains these fields,
//! because an API server would drop them otherwise. An object with both forms is refused.

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::Value;

use super::choices::{ClusterType, DeletionPolicy, DeployMode, RepairPolicy};
use super::maintenance::MaintenanceWindow;
use super::nodes::NodeList;
use super::snapshots::Snapshots;
use super::spec::{Addons, AuthConfig, DeclaredCluster};
use super::timeout::TimeoutMins;
use super::{rules, unset};
use crate::addresses::{Endpoint, Registry};
use crate::job_placement::ClusterJobPlacement;
use crate::labels::LabelValue;
use crate::names::{Cidr, Version};
use crate::schema::{deprecate, never_null};
use crate::secret::PrivateKey;

/// The fields that older clients write directly under `spec`.
const FIELDS: &[&str] = &[
    "authConfig",
    "clusterType",
    "containerCIDR",
    "deployMode",
    "etcdList",
    "externalLoadBalancer",
    "imagesRegistry",
    "kubeVersion",
    "masterList",
    "masterVIP",
    "nodeList",
    "podCIDR",
    "privateSSHKey",
    "region",
    "serviceCIDR",
    "timeoutMins",
    "timeout_mins",
];

/// A spec in either form, as it is in a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EitherForm {
    cluster: Option<DeclaredCluster>,
    pub(super) addons: Option<Addons>,
    #[serde(default, deserialize_with = "unset::when_null")]
    pub(super) paused: bool,
    #[serde(default, deserialize_with = "unset::when_null")]
    pub(super) plan: bool,
    #[serde(default, deserialize_with = "unset::when_null")]
    pub(super) maintenance_windows: Vec<MaintenanceWindow>,
    pub(super) repair: Option<RepairPolicy>,
    pub(super) deletion_policy: Option<DeletionPolicy>,
    pub(super) snapshots: Option<Snapshots>,
    pub(super) job_placement: Option<ClusterJobPlacement>,
    auth_config: Option<AuthConfig>,
    cluster_type: Option<ClusterType>,
    deploy_mode: Option<DeployMode>,
    etcd_list: Option<NodeList>,
    #[serde(default, alias = "masterVIP", deserialize_with = "unset::when_empty")]
    external_load_balancer: Option<Endpoint>,
    #[serde(default, deserialize_with = "unset::when_empty")]
    images_registry: Option<Registry>,
    #[serde(default, deserialize_with = "unset::when_empty")]
    kube_version: Option<Version>,
    master_list: Option<NodeList>,
    node_list: Option<NodeList>,
    #[serde(default, rename = "podCIDR", alias = "containerCIDR", deserialize_with = "unset::when_empty")]
    pod_cidr: Option<Cidr>,
    #[serde(default, rename = "privateSSHKey", deserialize_with = "unset::when_empty")]
    private_ssh_key: Option<PrivateKey>,
    #[serde(default, deserialize_with = "unset::when_empty")]
    region: Option<LabelValue>,
    #[serde(default, rename = "serviceCIDR", deserialize_with = "unset::when_empty")]
    service_cidr: Option<Cidr>,
    #[serde(
        default,
        rename = "timeout_mins",
        alias = "timeoutMins",
        deserialize_with = "TimeoutMins::when_given"
    )]
    timeout_mins: Option<TimeoutMins>,
}

/// Why the two forms of a spec cannot be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("fields are set under spec.cluster and directly under spec; put all of them under spec.cluster")]
    Both,
    #[error("privateSSHKey is given twice; keep the one under authConfig")]
    TwoKeys,
}

impl EitherForm {
    /// The cluster that the spec declares, in either form.
    pub(super) fn into_cluster(self) -> Result<DeclaredCluster, FormError> {
        let mut auth_config = self.auth_config;
        if let Some(key) = self.private_ssh_key {
            let auth = auth_config.get_or_insert_default();
            if auth.private_ssh_key.replace(key).is_some() {
                return Err(FormError::TwoKeys);
            }
        }
        let flat = DeclaredCluster {
            kube_version: self.kube_version,
            master_list: self.master_list.unwrap_or_default(),
            node_list: self.node_list.unwrap_or_default(),
            etcd_list: self.etcd_list.unwrap_or_default(),
            auth_config,
            cluster_type: self.cluster_type,
            deploy_mode: self.deploy_mode,
            pod_cidr: self.pod_cidr,
            service_cidr: self.service_cidr,
            external_load_balancer: self.external_load_balancer,
            region: self.region,
            images_registry: self.images_registry,
            timeout_mins: self.timeout_mins,
            ..DeclaredCluster::default()
        };
        match self.cluster {
            Some(cluster) if flat == DeclaredCluster::default() => Ok(cluster),
            Some(_) => Err(FormError::Both),
            None => Ok(flat),
        }
    }
}

/// Completes the schema of the spec: adds the flat fields and the rules, and removes `null` and `required`.
pub(super) fn finish(schema: &mut Schema) {
    schema.remove("required");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let cluster = properties.get("cluster").and_then(|cluster| cluster.get("properties")).cloned();
        for name in FIELDS {
            let source = cluster.as_ref().and_then(|fields| match *name {
                "privateSSHKey" => fields.pointer("/authConfig/properties/privateSSHKey"),
                name => fields.get(name),
            });
            if let Some(mut copy) = source.cloned() {
                drop_descriptions(&mut copy);
                deprecate(&mut copy, &instead(name));
                properties.insert((*name).to_owned(), copy);
            }
        }
    }
    rules::add(schema, &rules::spec(FIELDS));
    let mut value = schema.clone().to_value();
    never_null(&mut value);
    if let Ok(finished) = Schema::try_from(value) {
        *schema = finished;
    }
}

fn instead(name: &str) -> String {
    let path = match name {
        "privateSSHKey" => "authConfig.privateSSHKey",
        "timeoutMins" => "timeout_mins",
        "containerCIDR" => "podCIDR",
        "masterVIP" => "externalLoadBalancer",
        same => same,
    };
    format!("spec.cluster.{path}")
}

fn drop_descriptions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("description").is_some_and(Value::is_string) {
                fields.remove("description");
            }
            fields.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

/// The complete schema of `T`, also with a generator that writes references: [`finish`] copies from it.
pub(super) fn inline<T: JsonSchema>(generator: &mut schemars::SchemaGenerator) -> Schema {
    T::json_schema(generator)
}
