//! The installation as bases of kustomize: one folder for each part, and `default` with all parts.

use crate::manifest::{HEADER, documents};
use crate::objects::{InstallPart, namespace};
use crate::{InstallError, InstallOptions};

/// Files below `deploy/`: their path there and their text.
///
/// # Errors
/// When the definitions cannot be generated or an object cannot be written as YAML.
pub fn files(options: &InstallOptions) -> Result<Vec<(String, String)>, InstallError> {
    let mut files = Vec::new();
    let mut folder = |path: &str, resources: &[String]| {
        files.push((format!("{path}/kustomization.yaml"), kustomization(resources)));
    };
    let definitions: Vec<String> = kubeon_api::crds()?.into_iter().map(|(name, _)| name).collect();
    // kustomize reads folders above a base, but not files there: so the definitions are in a folder of their own.
    folder("crds", &definitions);
    folder("kustomize/crd", &["../../crds".to_owned()]);
    let mut all = vec!["namespace.yaml".to_owned()];
    all.extend(InstallPart::ALL.map(|part| format!("../{}", part.folder())));
    folder("kustomize/default", &all);
    for part in InstallPart::ALL.into_iter().filter(|part| *part != InstallPart::Definitions) {
        folder(&format!("kustomize/{}", part.folder()), &[format!("{}.yaml", part.folder())]);
    }
    let text = documents(&[namespace(options)?])?;
    files.push(("kustomize/default/namespace.yaml".to_owned(), format!("{HEADER}{text}")));
    for part in InstallPart::ALL.into_iter().filter(|part| *part != InstallPart::Definitions) {
        let text = documents(&part.objects(options)?)?;
        files.push((format!("kustomize/{0}/{0}.yaml", part.folder()), format!("{HEADER}{text}")));
    }
    Ok(files)
}

fn kustomization(resources: &[String]) -> String {
    let list: String = resources.iter().map(|name| format!("- {name}\n")).collect();
    format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{list}")
}
