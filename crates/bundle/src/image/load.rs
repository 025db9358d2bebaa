//! Reading a user's image archive: what `docker save` or an OCI tool wrote. Only names and digests, nothing is kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use serde::Deserialize;

use crate::digest;
use crate::layout::{self, Index};

/// An index or a manifest list is text of a few kilobytes; anything larger is something else.
const MAX_INDEX: u64 = 4 << 20;

/// Which of the two formats an archive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// `manifest.json`, as `docker save` writes it.
    Docker,
    /// `oci-layout` and `index.json`.
    Oci,
}

/// What an image archive holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageArchive {
    /// How it is written.
    pub format: ArchiveFormat,
    /// The images' full names, sorted: `docker.io/library/nginx:1.29`. Empty when the archive names none.
    pub names: Vec<String>,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Bytes of the file.
    pub size: u64,
}

/// Why a file is not an image archive.
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
        /// What is missing or wrong.
        why: String,
    },
}

#[derive(Deserialize)]
struct DockerImage {
    #[serde(rename = "RepoTags")]
    repo_tags: Option<Vec<String>>,
}

/// Reads the names and the digest of an image archive.
///
/// # Errors
/// A file that cannot be read, is compressed, or is not a tar with an image inside.
pub fn load_archive(path: &Path) -> Result<ImageArchive, LoadError> {
    let read = |source| LoadError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(read)?;
    refuse_compressed(path, &mut file)?;
    let found = small_files(path, &mut file)?;
    let (format, names) = match (found.get(layout::INDEX_FILE), found.get("manifest.json")) {
        (Some(index), _) if found.contains_key(layout::LAYOUT_FILE) => {
            (ArchiveFormat::Oci, oci_names(path, index)?)
        }
        (_, Some(manifest)) => (ArchiveFormat::Docker, docker_names(path, manifest)?),
        _ => return Err(not_an_image(path, "it holds neither index.json with oci-layout nor manifest.json")),
    };
    file.rewind().map_err(read)?;
    let (digest, size) = digest::of_reader(file).map_err(read)?;
    let mut names: Vec<String> = names.iter().map(|name| normal_name(name)).collect();
    names.sort();
    names.dedup();
    Ok(ImageArchive { format, names, digest, size })
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

fn small_files(path: &Path, file: &mut File) -> Result<BTreeMap<String, Vec<u8>>, LoadError> {
    let broken = |error: io::Error| not_an_image(path, format!("it is not a whole tar ({error})"));
    let mut found = BTreeMap::new();
    let mut archive = tar::Archive::new(BufReader::new(file));
    for entry in archive.entries_with_seek().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        let wanted = [layout::INDEX_FILE, layout::LAYOUT_FILE, "manifest.json"].contains(&name.as_str());
        if wanted && entry.size() <= MAX_INDEX {
            let mut bytes = Vec::new();
            entry.take(MAX_INDEX).read_to_end(&mut bytes).map_err(broken)?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

fn oci_names(path: &Path, index: &[u8]) -> Result<Vec<String>, LoadError> {
    let index: Index = serde_json::from_slice(index)
        .map_err(|e| not_an_image(path, format!("index.json is damaged ({e})")))?;
    if index.manifests.is_empty() {
        return Err(not_an_image(path, "index.json lists no image"));
    }
    let name = |annotations: &BTreeMap<String, String>| {
        let full = annotations.get(layout::CONTAINERD_NAME).cloned();
        // Without a name this annotation is often a bare tag, which names nothing.
        full.or_else(|| annotations.get(layout::REF_NAME).filter(|name| name.contains([':', '/'])).cloned())
    };
    Ok(index.manifests.iter().filter_map(|manifest| name(&manifest.annotations)).collect())
}

fn docker_names(path: &Path, manifest: &[u8]) -> Result<Vec<String>, LoadError> {
    let images: Vec<DockerImage> = serde_json::from_slice(manifest)
        .map_err(|e| not_an_image(path, format!("manifest.json is damaged ({e})")))?;
    if images.is_empty() {
        return Err(not_an_image(path, "manifest.json lists no image"));
    }
    Ok(images.into_iter().filter_map(|image| image.repo_tags).flatten().collect())
}

/// The full form of an image name, as a container runtime stores it: `nginx` is `docker.io/library/nginx:latest`.
#[must_use]
pub fn normal_name(name: &str) -> String {
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
    fn reads_what_docker_saves() {
        let manifest =
            r#"[{"Config":"a.json","RepoTags":["nginx:1.29","quay.io/a/b:c"],"Layers":["x/layer.tar"]}]"#;
        let file = archive(&[("x/layer.tar", "…"), ("manifest.json", manifest)]);
        let read = load_archive(file.path()).unwrap();
        assert_eq!(read.format, ArchiveFormat::Docker);
        assert_eq!(read.names, ["docker.io/library/nginx:1.29", "quay.io/a/b:c"]);
        assert_eq!((read.digest, read.size), digest::of_file(file.path()).unwrap());
    }

    #[test]
    fn refuses_what_is_no_image() {
        let tar = archive(&[("readme", "hello")]);
        assert!(load_archive(tar.path()).unwrap_err().to_string().contains("neither index.json"));
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "x".repeat(2000)).unwrap();
        assert!(matches!(load_archive(text.path()), Err(LoadError::NotAnImage { .. })));
        std::fs::write(text.path(), [0x1f, 0x8b, 8, 0, 0]).unwrap();
        assert!(load_archive(text.path()).unwrap_err().to_string().contains("gunzip"));
    }

    #[test]
    fn refuses_a_cut_archive() {
        let file = archive(&[("oci-layout", layout::LAYOUT), ("index.json", &" ".repeat(3000))]);
        file.as_file().set_len(1024 + 512 + 700).unwrap();
        assert!(matches!(load_archive(file.path()), Err(LoadError::NotAnImage { .. })));
    }

    #[test]
    fn writes_names_in_full() {
        for (short, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("a/b:1", "docker.io/a/b:1"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("quay.io/a/b@sha256:00", "quay.io/a/b@sha256:00"),
        ] {
            assert_eq!(normal_name(short), full);
        }
    }
}
