//! The programs of the control plane: their names, ports and steps.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::{HostName, Version};
use kubeon_render::paths::pki;
use kubeon_render::static_pods::KUBEADM;
use kubeon_wire::Check;

use crate::context::{ObservedHost, PlanContext};
use crate::input::Artifacts;
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The stage that runs them.
pub(crate) const STAGE: StageName = StageName::new("control");

/// A program of the control plane that runs on every master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlPlaneProgram {
    ApiServer,
    ControllerManager,
    Scheduler,
}

/// The argument of a program that emulates an older minor version.
const EMULATED_VERSION: &str = "emulated-version";

/// Whether the part of a bundle is a program of the control plane, or what makes its pods.
pub(crate) fn is_control_plane_part(name: &str) -> bool {
    name == KUBEADM || is_program(name)
}

/// Whether the part of a bundle is a program of the control plane.
pub(crate) fn is_program(name: &str) -> bool {
    ControlPlaneProgram::ALL.iter().any(|program| program.part() == name)
}

impl Artifacts {
    /// The same content with the control plane's programs of another bundle, and with their images.
    #[must_use]
    pub fn with_control_plane_of(&self, other: &Self) -> Self {
        let programs = other.parts.iter().filter(|(name, _)| is_control_plane_part(name));
        let mut merged = self.clone();
        merged.parts.extend(programs.map(|(name, part)| (name.clone(), part.clone())));
        let images = other.images.iter().filter(|(name, _)| is_program(name));
        merged.images.extend(images.map(|(name, image)| (name.clone(), image.clone())));
        merged
    }
}

/// The argument with which a program of the control plane emulates the version of the cluster while another one is tried: its name
/// and its value.
pub(crate) fn emulation(context: &PlanContext<'_>) -> Option<(&'static str, String)> {
    context.intent.trial?;
    let version = context.spec().version;
    Some((EMULATED_VERSION, format!("{}.{}", version.major, version.minor)))
}

/// The arguments that a declaration adds to a program of the control plane. While a version is tried, it also emulates the
/// version of the cluster.
pub(crate) fn arguments<'a>(
    context: &PlanContext<'a>,
    declared: &'a BTreeMap<String, String>,
) -> Cow<'a, BTreeMap<String, String>> {
    let Some((name, version)) = emulation(context) else { return Cow::Borrowed(declared) };
    let mut all = declared.clone();
    all.insert(name.to_owned(), version);
    Cow::Owned(all)
}

/// The step that selects the programs of the control plane on a host, or the kubeadm that makes their pods.
pub(super) fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose")
}

/// The version of the programs.
pub(super) fn version(context: &PlanContext<'_>) -> Version {
    context.intent.trial.unwrap_or(context.spec().version)
}

/// The version of the programs, such as `v1.36.3`, or `v1.37.2 as v1.36` while they emulate an older one.
pub(crate) fn version_text(context: &PlanContext<'_>) -> String {
    let version = context.spec().version;
    match context.intent.trial {
        Some(trial) => format!("{trial} as v{}.{}", version.major, version.minor),
        None => version.to_string(),
    }
}

impl ControlPlaneProgram {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// The name in its files and in the id of its step.
    pub(crate) const fn short_name(self) -> &'static str {
        match self {
            Self::ApiServer => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
        }
    }

    /// The part of the bundle that holds it; its image and its unit have this name too.
    pub(crate) const fn part(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }

    /// The port at which it serves on its host.
    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::ApiServer => 6443,
            Self::ControllerManager => 10257,
            Self::Scheduler => 10259,
        }
    }

    /// The step that runs it on a host.
    pub(crate) fn id(self, host: &ObservedHost<'_>) -> StepId {
        host.id(STAGE, self.short_name())
    }
}

/// The steps that run the programs of a master.
pub(crate) fn ids_of(node: &HostName) -> [StepId; 3] {
    ControlPlaneProgram::ALL.map(|program| StepId::new(STAGE, program.short_name(), node))
}

/// The step that runs the API server of a node.
pub(crate) fn apiserver_of(node: &HostName) -> StepId {
    StepId::new(STAGE, ControlPlaneProgram::ApiServer.short_name(), node)
}

/// The step that runs the API server of a host.
pub(crate) fn apiserver_id(host: &ObservedHost<'_>) -> StepId {
    ControlPlaneProgram::ApiServer.id(host)
}

/// Whether the step runs an API server.
pub(crate) fn is_apiserver(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == ControlPlaneProgram::ApiServer.short_name()
}

/// The step that runs the controller manager of a host.
pub(crate) fn controller_manager_id(host: &ObservedHost<'_>) -> StepId {
    ControlPlaneProgram::ControllerManager.id(host)
}

/// The step that runs the scheduler of a host.
pub(crate) fn scheduler_id(host: &ObservedHost<'_>) -> StepId {
    ControlPlaneProgram::Scheduler.id(host)
}

/// An API server of this cluster is ready behind an address. A host needs no rights for it.
pub(crate) fn api_ready_at(address: Ipv4Addr, port: u16) -> Check {
    Check::Https {
        address,
        port,
        path: "/readyz".to_owned(),
        ca_file: pki("ca.crt"),
        certificate_file: None,
        key_file: None,
    }
}

/// The API server of the host itself is ready.
pub(crate) fn api_ready() -> Check {
    Check::Https {
        address: Ipv4Addr::LOCALHOST,
        port: 6443,
        path: "/readyz".to_owned(),
        ca_file: pki("ca.crt"),
        certificate_file: Some(pki("admin.crt")),
        key_file: Some(pki("admin.key")),
    }
}
