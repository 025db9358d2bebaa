//! Files generated from the types. They are committed for review; `check` compares them.

mod reference;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Every generated file, by its path within the workspace.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let mut files: Vec<(PathBuf, String)> = kubeon_api::crds()?
        .into_iter()
        .map(|(name, text)| (Path::new("deploy/crds").join(name), text))
        .collect();
    let schema = format!("{:#}\n", kubeon_api::json_schema());
    files.push((PathBuf::from("deploy/schema/kubernetescluster.json"), schema));
    files.extend(installation()?);
    files.extend(reference::pages()?);
    Ok(files)
}

/// The files for the installation in a meta cluster: manifest, kustomize, the chart's custom resource
/// definitions, monitoring.
fn installation() -> Result<Vec<(PathBuf, String)>> {
    let options = kubeon_install::InstallOptions::default();
    let mut files = vec![("kubeon.yaml".to_owned(), kubeon_install::manifest::manifest(&options)?)];
    let gateway = kubeon_install::gateway_objects(&kubeon_install::GatewayInstallOptions::default())?;
    let gateway = kubeon_install::manifest::documents(&gateway)?;
    files.push(("gateway.yaml".to_owned(), format!("{}{gateway}", kubeon_install::manifest::HEADER)));
    files.extend(kubeon_install::kustomize::files(&options)?);
    let below = |folder: &'static str| move |(path, text)| (format!("{folder}/{path}"), text);
    files.extend(kubeon_api::crds()?.into_iter().map(below("chart/files/crds")));
    files.extend(kubeon_install::monitoring::files()?.into_iter().map(below("monitoring")));
    Ok(files.into_iter().map(|(path, text)| (Path::new("deploy").join(path), text)).collect())
}

/// Writes all generated files.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, text) in files()? {
        let target = root.join(&path);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&target, text).with_context(|| format!("cannot write {}", target.display()))?;
        crate::terminal::say(&format!("wrote {}", path.display()));
    }
    Ok(())
}
