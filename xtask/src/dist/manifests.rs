//! The manifests and the bases of kustomize of a release, with the digests of its images.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use kubeon_install::manifest::{HEADER, documents, manifest};
use kubeon_install::{GatewayInstallOptions, InstallOptions, gateway_objects, kustomize};
use tempfile::NamedTempFile;

use super::archive::pack;

/// Writes `kubeon.yaml`, `gateway.yaml` and the bases of kustomize. Returns a file with the digests by the names of the images.
pub(super) fn write(digests: &[(&str, &str)], out: &Path) -> Result<NamedTempFile> {
    let digests = by_name(digests);
    let (mut options, mut gateway) = (InstallOptions::default(), GatewayInstallOptions::default());
    options.pin(&digests);
    gateway.pin(&digests);
    fs::write(out.join("kubeon.yaml"), manifest(&options)?)?;
    fs::write(out.join("gateway.yaml"), format!("{HEADER}{}", documents(&gateway_objects(&gateway)?)?))?;
    let scratch = tempfile::tempdir()?;
    let definitions = kubeon_api::crds()?.into_iter().map(|(name, text)| (format!("crds/{name}"), text));
    for (path, text) in kustomize::files(&options)?.into_iter().chain(definitions) {
        let target = scratch.path().join(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(target, text)?;
    }
    pack(scratch.path(), &["crds", "kustomize"], &out.join("kubeon-kustomize.tar.gz"))?;
    let mut file = NamedTempFile::new()?;
    file.write_all(&serde_json::to_vec(&digests)?)?;
    Ok(file)
}

/// The digests by the full names of the images.
fn by_name(digests: &[(&str, &str)]) -> BTreeMap<String, String> {
    let name = |image: &str| format!("kubeon/kubeon-{image}:v{}", env!("CARGO_PKG_VERSION"));
    digests.iter().map(|(image, digest)| (name(image), (*digest).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_of_a_release_name_its_images_by_digest() {
        let out = tempfile::tempdir().unwrap();
        let digests = [("operator", "sha256:aa"), ("gateway", "sha256:bb"), ("runner", "sha256:cc")];
        let file = write(&digests, out.path()).unwrap();
        let text = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
        let image = |name: &str, digest: &str| {
            format!("kubeon/kubeon-{name}:v{}@sha256:{digest}", env!("CARGO_PKG_VERSION"))
        };
        let kubeon = text("kubeon.yaml");
        for image in [image("operator", "aa"), image("runner", "cc")] {
            assert!(kubeon.contains(&image), "{image}");
        }
        assert!(text("gateway.yaml").contains(&image("gateway", "bb")));
        let attached: BTreeMap<String, String> =
            serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(attached.len(), 3);
        assert_eq!(attached[kubeon_install::OPERATOR_IMAGE], "sha256:aa");
        assert!(out.path().join("kubeon-kustomize.tar.gz").is_file());
    }
}
