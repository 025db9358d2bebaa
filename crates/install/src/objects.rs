//! The objects, by part. A part is a folder of kustomize.

pub(crate) mod config;
pub mod deployment;
pub(crate) mod fairness;
pub(crate) mod gateway;
pub(crate) mod metadata;
pub mod rbac;
pub mod webhook;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use self::metadata::{texts_by_key, value};
use crate::{InstallError, InstallOptions, policies};

/// A part of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstallPart {
    /// The custom resource definitions.
    Definitions,
    /// Service accounts, roles and bindings.
    Rbac,
    /// The operator itself.
    Deployment,
    /// Admission policies and the webhook.
    Admission,
}

impl InstallPart {
    /// Every part, in the order of applying.
    pub const ALL: [Self; 4] = [Self::Definitions, Self::Rbac, Self::Deployment, Self::Admission];

    /// The folder in `deploy/kustomize`.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Definitions => "crd",
            Self::Rbac => "rbac",
            Self::Deployment => "deployment",
            Self::Admission => "admission",
        }
    }

    /// Its objects.
    ///
    /// # Errors
    /// When the definitions cannot be generated, or an object cannot be written as JSON.
    pub fn objects(self, options: &InstallOptions) -> Result<Vec<Value>, InstallError> {
        Ok(match self {
            Self::Definitions => kubeon_api::definitions()?,
            Self::Rbac => rbac::objects(options)?,
            Self::Deployment => {
                let mut all = vec![value(config::history(options))?, value(fairness::leases(options))?];
                all.extend(deployment::objects(options)?);
                all
            }
            Self::Admission => {
                let mut all = policies::objects(options)?;
                all.push(value(webhook::configuration(options))?);
                all.push(value(webhook::requester_configuration(options))?);
                all
            }
        })
    }
}

/// The part that installs objects of this kind.
#[must_use]
pub fn part(kind: &str) -> InstallPart {
    match kind {
        "CustomResourceDefinition" => InstallPart::Definitions,
        "ServiceAccount" | "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => InstallPart::Rbac,
        kind if kind.starts_with("Validating") || kind.starts_with("Mutating") => InstallPart::Admission,
        _ => InstallPart::Deployment,
    }
}

/// The operator's namespace. Jobs of any image run in it, so it enforces no more than `baseline`.
pub(crate) fn namespace(options: &InstallOptions) -> Result<Value, InstallError> {
    let labels = texts_by_key(&[
        ("app.kubernetes.io/part-of", "kubeon"),
        ("pod-security.kubernetes.io/enforce", "baseline"),
    ]);
    value(Namespace {
        metadata: ObjectMeta {
            name: Some(options.namespace.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    })
}
