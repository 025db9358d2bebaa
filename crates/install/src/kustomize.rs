//! The installation as bases of kustomize: one folder for each part, `default` with all parts, and one for a further namespace.
//!
//! The field `namespace` of a user's kustomization moves all objects of a base to one namespace. So the base of the operator has
//! no object in another namespace, and no text with the name of its namespace that kustomize does not know.

use crate::manifest::{HEADER, documents};
use crate::objects::{InstallPart, namespace, rbac};
use crate::{InstallError, InstallOptions};

/// The namespace in the base for a watched namespace.
const WATCHED: &str = "default";
/// The settings of kustomize that name further fields with a namespace.
const FIELDS: &str = "namespace-fields.yaml";

/// The options of the bases: with the namespace of the operator only, which kustomize may change.
#[must_use]
pub fn options(options: &InstallOptions) -> InstallOptions {
    InstallOptions { watch_namespaces: Vec::new(), is_movable: true, ..options.clone() }
}

/// Files below `deploy/`: their path there and their text.
///
/// # Errors
/// When the definitions cannot be generated or an object cannot be written as YAML.
pub fn files(given: &InstallOptions) -> Result<Vec<(String, String)>, InstallError> {
    let options = options(given);
    let mut files = Vec::new();
    let mut folder = |path: &str, resources: &[String], fields: bool| {
        files.push((format!("{path}/kustomization.yaml"), kustomization(resources, fields)));
    };
    let definitions: Vec<String> = kubeon_api::crds()?.into_iter().map(|(name, _)| name).collect();
    // kustomize reads folders above a base, but not files there: so the definitions are in a folder of their own.
    folder("crds", &definitions, false);
    folder("kustomize/crd", &["../../crds".to_owned()], false);
    let mut all = vec!["namespace.yaml".to_owned()];
    all.extend(InstallPart::ALL.map(|part| format!("../{}", part.folder())));
    folder("kustomize/default", &all, false);
    for part in InstallPart::ALL.into_iter().filter(|part| *part != InstallPart::Definitions) {
        let path = format!("kustomize/{}", part.folder());
        folder(&path, &[format!("{}.yaml", part.folder())], fields(part).is_some());
    }
    folder("kustomize/watched-namespace", &["watched-namespace.yaml".to_owned()], false);
    let mut file = |path: String, text: &str| files.push((path, format!("{HEADER}{text}")));
    file("kustomize/default/namespace.yaml".to_owned(), &documents(&[namespace(&options)?])?);
    for part in InstallPart::ALL.into_iter().filter(|part| *part != InstallPart::Definitions) {
        file(format!("kustomize/{0}/{0}.yaml", part.folder()), &documents(&part.objects(&options)?)?);
        if let Some(fields) = fields(part) {
            file(format!("kustomize/{}/{FIELDS}", part.folder()), fields);
        }
    }
    let watched = documents(&rbac::watched_namespace(&options, WATCHED)?)?;
    file("kustomize/watched-namespace/watched-namespace.yaml".to_owned(), &watched);
    Ok(files)
}

fn kustomization(resources: &[String], has_fields: bool) -> String {
    let list: String = resources.iter().map(|name| format!("- {name}\n")).collect();
    let configurations = if has_fields { format!("configurations:\n- {FIELDS}\n") } else { String::new() };
    format!(
        "{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{list}{configurations}"
    )
}

/// Fields with the operator's namespace that kustomize does not know. The kustomizations above the base use them too.
fn fields(part: InstallPart) -> Option<&'static str> {
    match part {
        InstallPart::Deployment => Some(
            "namespace:\n\
             - group: flowcontrol.apiserver.k8s.io\n  kind: FlowSchema\n  path: spec/rules/subjects/serviceAccount/namespace\n",
        ),
        InstallPart::Admission => Some(
            "namespace:\n\
             - group: admissionregistration.k8s.io\n  kind: ValidatingWebhookConfiguration\n  path: webhooks/clientConfig/service/namespace\n\
             - group: admissionregistration.k8s.io\n  kind: MutatingWebhookConfiguration\n  path: webhooks/clientConfig/service/namespace\n",
        ),
        InstallPart::Definitions | InstallPart::Rbac => None,
    }
}
