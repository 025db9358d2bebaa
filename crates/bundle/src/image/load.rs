//! Reads names and digests from an image archive that `docker save` or an OCI tool wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use serde::Deserialize;

use crate::digest;
use crate::layout::{self, Index};

/// The largest size of an index or a manifest list in bytes; they usually have a few kilobytes.
const MAX_INDEX: u64 = 4 << 20;

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// `manifest.json`, as `docker save` writes it.
    Docker,
    /// `oci-layout` and `index.json`.
    Oci,
}

/// The images of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageArchive {
    /// Its format.
    pub format: ArchiveFormat,
    /// The images' full names, sorted: `docker.io/library/nginx:1.29`. Empty when the archive names none.
    pub names: Vec<String>,
    /// The images in it, once for each name.
    pub images: Vec<ArchivedImage>,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Bytes of the file.
    pub size: u64,
}

/// An image in an archive, as a container runtime identifies it after the import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedImage {
    /// Its full name; `None` when the archive gives it none.
    pub name: Option<String>,
    /// Its digest.
    pub content: ImageContent,
}

impl ArchivedImage {
    /// Its name by digest, such as `docker.io/library/nginx@sha256:…`; `None` for an image without a name or a manifest.
    #[must_use]
    pub fn name_by_digest(&self) -> Option<String> {
        let (Some(name), ImageContent::Manifest(digest)) = (&self.name, &self.content) else { return None };
        Some(format!("{}@sha256:{digest}", repository(name)))
    }
}

/// The digest that identifies an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageContent {
    /// SHA-256 of its manifest, or of its index of manifests.
    Manifest(Digest),
    /// SHA-256 of its config. `docker save` writes no manifest: each runtime creates its own.
    Config(Digest),
}

/// The reason why a file cannot be loaded as an image archive.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// It is compressed.
    #[error("{path} is compressed with {with}; unpack it first: {command} {path}", path = path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// `gzip` or `zstd`.
        with: &'static str,
        /// The command that unpacks it.
        command: &'static str,
    },
    /// It is not a tar, or one without images.
    #[error("{path} is not an image archive: {why}; make one with `docker save -o FILE IMAGE`", path = path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
}

#[derive(Deserialize)]
struct DockerImage {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags")]
    repo_tags: Option<Vec<String>>,
}

/// Reads the names and the digests of an image archive.
///
/// # Errors
/// A file that cannot be read, is compressed, or is not a tar with an image inside.
pub fn load_archive(path: &Path) -> Result<ImageArchive, LoadError> {
    let read = |source| LoadError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(read)?;
    refuse_compressed(path, &mut file)?;
    let wanted = [layout::INDEX_FILE, layout::LAYOUT_FILE, "manifest.json"].map(str::to_owned).into();
    let found = small_files(path, &mut file, &wanted)?;
    let (format, mut images) = match (found.get(layout::INDEX_FILE), found.get("manifest.json")) {
        (Some(index), _) if found.contains_key(layout::LAYOUT_FILE) => {
            (ArchiveFormat::Oci, oci_images(path, index)?)
        }
        (_, Some(manifest)) => (ArchiveFormat::Docker, docker_images(path, &mut file, manifest)?),
        _ => {
            return Err(not_an_image(
                path,
                "it contains neither index.json with oci-layout nor manifest.json",
            ));
        }
    };
    file.rewind().map_err(read)?;
    let (digest, size) = digest::of_reader(file).map_err(read)?;
    images.sort_by(|a, b| a.name.cmp(&b.name));
    let mut names: Vec<String> = images.iter().filter_map(|image| image.name.clone()).collect();
    names.dedup();
    Ok(ImageArchive { format, names, images, digest, size })
}

fn not_an_image(path: &Path, why: impl ToString) -> LoadError {
    LoadError::NotAnImage { path: path.to_owned(), why: why.to_string() }
}

fn refuse_compressed(path: &Path, file: &mut File) -> Result<(), LoadError> {
    let read = |source| LoadError::Read { path: path.to_owned(), source };
    let mut magic = Vec::new();
    file.take(4).read_to_end(&mut magic).map_err(read)?;
    file.rewind().map_err(read)?;
    let compressed = |with, command| LoadError::Compressed { path: path.to_owned(), with, command };
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => Err(compressed("gzip", "gunzip")),
        [0x28, 0xb5, 0x2f, 0xfd] => Err(compressed("zstd", "unzstd")),
        _ => Ok(()),
    }
}

/// The content of the wanted files that exist and are not larger than [`MAX_INDEX`].
fn small_files(
    path: &Path,
    file: &mut File,
    wanted: &BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<u8>>, LoadError> {
    file.rewind().map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let broken = |error: io::Error| not_an_image(path, format!("it is not a complete tar ({error})"));
    let mut found = BTreeMap::new();
    let mut archive = tar::Archive::new(BufReader::new(file));
    for entry in archive.entries_with_seek().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        if wanted.contains(&name) && entry.size() <= MAX_INDEX {
            let mut bytes = Vec::new();
            entry.take(MAX_INDEX).read_to_end(&mut bytes).map_err(broken)?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

fn oci_images(path: &Path, index: &[u8]) -> Result<Vec<ArchivedImage>, LoadError> {
    let index: Index = serde_json::from_slice(index)
        .map_err(|e| not_an_image(path, format!("index.json is damaged ({e})")))?;
    if index.manifests.is_empty() {
        return Err(not_an_image(path, "index.json lists no image"));
    }
    let name = |annotations: &BTreeMap<String, String>| {
        let full = annotations.get(layout::CONTAINERD_NAME).cloned();
        // In archives without names this annotation is often only a tag.
        full.or_else(|| annotations.get(layout::REF_NAME).filter(|name| name.contains([':', '/'])).cloned())
    };
    let image = |manifest: layout::Descriptor| ArchivedImage {
        name: name(&manifest.annotations).map(|name| full_name(&name)),
        content: ImageContent::Manifest(manifest.digest),
    };
    Ok(index.manifests.into_iter().map(image).collect())
}

fn docker_images(path: &Path, file: &mut File, manifest: &[u8]) -> Result<Vec<ArchivedImage>, LoadError> {
    let images: Vec<DockerImage> = serde_json::from_slice(manifest)
        .map_err(|e| not_an_image(path, format!("manifest.json is damaged ({e})")))?;
    if images.is_empty() {
        return Err(not_an_image(path, "manifest.json lists no image"));
    }
    let configs = small_files(path, file, &images.iter().map(|image| image.config.clone()).collect())?;
    let mut found = Vec::new();
    for DockerImage { config, repo_tags } in images {
        let bytes = configs
            .get(&config)
            .ok_or_else(|| not_an_image(path, format!("it lacks {config}, the config of an image")))?;
        let digest =
            digest::of_bytes(bytes).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        let image = |name| ArchivedImage { name, content: ImageContent::Config(digest.clone()) };
        let tags = repo_tags.unwrap_or_default();
        if tags.is_empty() {
            found.push(image(None));
        }
        found.extend(tags.iter().map(|tag| image(Some(full_name(tag)))));
    }
    Ok(found)
}

/// The full form of an image name, as a container runtime stores it: `nginx` is `docker.io/library/nginx:latest`.
#[must_use]
pub fn full_name(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let is_domain = first.contains(['.', ':']) || first == "localhost";
    let full = match (is_domain, first) {
        (true, _) => name.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{name}"),
    };
    let last = full.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { full } else { format!("{full}:latest") }
}

/// The name of an image without its tag and its digest.
fn repository(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    match name.rsplit_once(':') {
        // A colon before the last slash begins a port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut tar = tar::Builder::new(file.reopen().unwrap());
        for (name, text) in files {
            crate::pack::append_stream(&mut tar, name, 0o644, text.len() as u64, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap();
        file
    }

    #[test]
    fn reads_an_archive_of_docker() {
        let manifest =
            r#"[{"Config":"a.json","RepoTags":["quay.io/a/b:c","nginx:1.29"],"Layers":["x/layer.tar"]}]"#;
        let file = archive(&[("x/layer.tar", "…"), ("a.json", "{}"), ("manifest.json", manifest)]);
        let read = load_archive(file.path()).unwrap();
        assert_eq!(read.format, ArchiveFormat::Docker);
        assert_eq!(read.names, ["docker.io/library/nginx:1.29", "quay.io/a/b:c"]);
        let content = ImageContent::Config(digest::of_bytes(b"{}").unwrap());
        let image = |name: &String| ArchivedImage { name: Some(name.clone()), content: content.clone() };
        assert_eq!(read.images, read.names.iter().map(image).collect::<Vec<_>>());
        assert_eq!((read.digest, read.size), digest::of_file(file.path()).unwrap());
    }

    #[test]
    fn reads_an_archive_of_oci_tools() {
        let digest = "ab".repeat(32);
        let index = format!(
            r#"{{"schemaVersion":2,"manifests":[
                {{"mediaType":"m","digest":"sha256:{digest}","size":1,"annotations":{{"io.containerd.image.name":"quay.io/a/b:c"}}}},
                {{"mediaType":"m","digest":"sha256:{digest}","size":1,"annotations":{{"org.opencontainers.image.ref.name":"latest"}}}}]}}"#
        );
        let file = archive(&[("oci-layout", layout::LAYOUT), ("index.json", &index)]);
        let read = load_archive(file.path()).unwrap();
        assert_eq!((read.format, read.names), (ArchiveFormat::Oci, vec!["quay.io/a/b:c".to_owned()]));
        let content = ImageContent::Manifest(digest.parse().unwrap());
        let image =
            |name: Option<&str>| ArchivedImage { name: name.map(str::to_owned), content: content.clone() };
        assert_eq!(read.images, [image(None), image(Some("quay.io/a/b:c"))]);
    }

    #[test]
    fn an_image_without_its_config_is_refused() {
        let file = archive(&[("manifest.json", r#"[{"Config":"a.json","RepoTags":["a:b"],"Layers":[]}]"#)]);
        assert!(load_archive(file.path()).unwrap_err().to_string().contains("it lacks a.json"));
    }

    #[test]
    fn refuses_files_that_are_not_images() {
        let tar = archive(&[("readme", "hello")]);
        assert!(load_archive(tar.path()).unwrap_err().to_string().contains("neither index.json"));
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "x".repeat(2000)).unwrap();
        assert!(matches!(load_archive(text.path()), Err(LoadError::NotAnImage { .. })));
        std::fs::write(text.path(), [0x1f, 0x8b, 8, 0, 0]).unwrap();
        assert!(load_archive(text.path()).unwrap_err().to_string().contains("gunzip"));
    }

    #[test]
    fn refuses_a_truncated_archive() {
        let file = archive(&[("oci-layout", layout::LAYOUT), ("index.json", &" ".repeat(3000))]);
        file.as_file().set_len(1024 + 512 + 700).unwrap();
        assert!(matches!(load_archive(file.path()), Err(LoadError::NotAnImage { .. })));
    }

    #[test]
    fn completes_image_names() {
        for (short, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("a/b:1", "docker.io/a/b:1"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("quay.io/a/b@sha256:00", "quay.io/a/b@sha256:00"),
        ] {
            assert_eq!(full_name(short), full);
        }
    }

    #[test]
    fn the_name_by_digest_has_no_tag() {
        let digest = "a".repeat(64);
        let named = |name: Option<&str>, content| ArchivedImage { name: name.map(str::to_owned), content };
        let manifest = ImageContent::Manifest(digest.parse().unwrap());
        for name in ["r:5000/a/b:1", "r:5000/a/b", "r:5000/a/b:1@sha256:0"] {
            let by_digest = named(Some(name), manifest.clone()).name_by_digest();
            assert_eq!(by_digest, Some(format!("r:5000/a/b@sha256:{digest}")), "{name}");
        }
        assert_eq!(named(None, manifest).name_by_digest(), None);
        assert_eq!(named(Some("a:1"), ImageContent::Config(digest.parse().unwrap())).name_by_digest(), None);
    }
}
