//! Links the mounted bundle to the path where the program `kubeon` expects it: `FOLDER/VERSION-ARCHITECTURE`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder of bundles: a new folder in `home` if `mounted` is a bundle, `mounted` itself if it contains
/// bundles, none if nothing is mounted. The new folder also has the bundle at `in_use`, if there is one.
///
/// # Errors
/// When a mounted bundle cannot be read.
pub(crate) fn folder(mounted: &Path, in_use: &Path, home: &Path) -> io::Result<Option<PathBuf>> {
    if !is_layout(mounted) {
        return Ok(Some(mounted.to_owned()).filter(|folder| folder.is_dir()));
    }
    let bundles = home.join("bundles");
    fs::create_dir(&bundles)?;
    for layout in [mounted, in_use].into_iter().filter(|layout| is_layout(layout)) {
        let name = name(layout).ok_or_else(|| {
            let text = format!("{} is not a bundle of kubeon", layout.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        symlink(layout, bundles.join(name))?;
    }
    Ok(Some(bundles))
}

fn is_layout(folder: &Path) -> bool {
    folder.join("index.json").is_file()
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
        let none = place.path().join("nothing");
        assert_eq!(
            folder(&mounted, &none, &home).unwrap(),
            Some(mounted.clone()),
            "the folder may contain bundles"
        );
        let kind = r#""artifactType":"application/vnd.kubeon.bundle.v1""#;
        write("index.json", format!(r#"{{"manifests":[{{{kind},"digest":"sha256:{manifest}"}}]}}"#));
        let bundles = folder(&mounted, &none, &home).unwrap().unwrap();
        assert_eq!(fs::read_link(bundles.join("v1.36.3-amd64")).unwrap(), mounted);
        assert_eq!(folder(&none, &mounted, &home).unwrap(), None);
        write("index.json", "{}".to_owned());
        assert!(folder(&mounted, &none, &home).is_err());
    }
}
