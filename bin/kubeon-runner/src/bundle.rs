//! Links the mounted bundle to the path where the program `kubeon` expects it: `FOLDER/VERSION-ARCHITECTURE`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder of bundles: a new folder in `home` if `mounted` is a bundle, `mounted` itself if it contains
/// bundles, none if nothing is mounted.
///
/// # Errors
/// When the mounted bundle cannot be read.
pub(crate) fn folder(mounted: &Path, home: &Path) -> io::Result<Option<PathBuf>> {
    if !mounted.join("index.json").is_file() {
        return Ok(Some(mounted.to_owned()).filter(|folder| folder.is_dir()));
    }
    let name = name(mounted).ok_or_else(|| {
        let text = format!("{} is not a bundle of kubeon", mounted.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    let bundles = home.join("bundles");
    fs::create_dir(&bundles)?;
    symlink(mounted, bundles.join(name))?;
    Ok(Some(bundles))
}

/// The name of the bundle, such as `v1.36.3-amd64`, from the manifest in the layout's index.
fn name(layout: &Path) -> Option<String> {
    let read = |file: &Path| serde_json::from_slice::<Value>(&fs::read(file).ok()?).ok();
    let blob = |descriptor: &Value| {
        let digest: kubeon_api::Digest =
            descriptor["digest"].as_str()?.strip_prefix("sha256:")?.parse().ok()?;
        read(&layout.join("blobs/sha256").join(digest.as_str()))
    };
    let index = read(&layout.join("index.json"))?;
    let is_bundle = |manifest: &&Value| manifest["artifactType"] == "application/vnd.kubeon.bundle.v1";
    let manifest = blob(index["manifests"].as_array()?.iter().find(is_bundle)?)?;
    let config = blob(&manifest["config"])?;
    let version: kubeon_api::Version = config["kubernetes"].as_str()?.parse().ok()?;
    let word = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some(format!("{version}-{}", config["arch"].as_str().filter(word)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_found_under_its_version() {
        let place = tempfile::tempdir().unwrap();
        let (mounted, home) = (place.path().join("bundle"), place.path().join("home"));
        fs::create_dir_all(mounted.join("blobs/sha256")).unwrap();
        fs::create_dir(&home).unwrap();
        let (manifest, config) = ("a".repeat(64), "b".repeat(64));
        let write = |name: &str, text: String| fs::write(mounted.join(name), text).unwrap();
        write(&format!("blobs/sha256/{manifest}"), format!(r#"{{"config":{{"digest":"sha256:{config}"}}}}"#));
        write(&format!("blobs/sha256/{config}"), r#"{"kubernetes":"v1.36.3","arch":"amd64"}"#.to_owned());
        assert_eq!(folder(&mounted, &home).unwrap(), Some(mounted.clone()), "the folder may contain bundles");
        let kind = r#""artifactType":"application/vnd.kubeon.bundle.v1""#;
        write("index.json", format!(r#"{{"manifests":[{{{kind},"digest":"sha256:{manifest}"}}]}}"#));
        let bundles = folder(&mounted, &home).unwrap().unwrap();
        assert_eq!(fs::read_link(bundles.join("v1.36.3-amd64")).unwrap(), mounted);
        assert_eq!(folder(&place.path().join("nothing"), &home).unwrap(), None);
        write("index.json", "{}".to_owned());
        assert!(folder(&mounted, &home).is_err());
    }
}
