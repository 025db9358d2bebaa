//! The step of stage `join` that writes how containerd reaches registries, if the settings say something about it.

use kubeon_render::registry::{authorities_folder, environment, mirrors};
use kubeon_wire::Op;

use super::files;
use super::step::DesiredStep;
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;

/// Writes the mirrors of registries and the further certificate authorities. containerd reads the mirrors with every pull.
pub(super) fn step(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    stage: StageName,
) -> Option<DesiredStep> {
    let runtime = &context.spec().settings.container_runtime;
    let registries = runtime.registry_mirrors.iter().map(|(registry, urls)| mirrors(registry, urls));
    let mut files: Vec<_> = registries.map(|(path, text)| files::config(path, text)).collect();
    let authorities = runtime.ca_bundle.iter();
    files.extend(authorities.map(|authorities| {
        files::config(format!("{}/authorities.pem", authorities_folder()), authorities.to_string())
    }));
    (!files.is_empty()).then(|| {
        DesiredStep::new(host, host.id(stage, "registry-config"), Op::Files { files })
            .title("write how containerd reaches registries")
            .because("containerd does not know the mirrors and authorities of registries")
    })
}

/// The environment of containerd.
pub(super) fn runtime_environment(context: &PlanContext<'_>) -> Vec<(&'static str, String)> {
    let settings = &context.spec().settings;
    environment(&settings.container_runtime, [settings.pod_cidr, settings.service_cidr])
}
