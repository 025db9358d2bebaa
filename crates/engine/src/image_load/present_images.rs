//! The images that a node has, as containerd lists them.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeon_api::{Digest, HostAddress};
use kubeon_bundle::image::{ArchivedImage, ImageArchive, ImageContent};
use kubeon_link_host::SshHosts;
use serde_json::Value;

use crate::cluster_nodes::command_output;

/// The program `ctr` of the bundle. The program of this name in `/usr/local/bin` may be the owner's.
pub(super) const CTR: &str = "/var/lib/kubeon/current/containerd/bin/ctr --namespace k8s.io";
/// Time limit of a query. containerd reads the list of layers of every image.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The images of a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PresentImages {
    /// Manifests of the complete images, by name.
    complete: BTreeMap<String, Digest>,
    /// Configs of the manifests that were read.
    configs: BTreeMap<Digest, Digest>,
}

impl PresentImages {
    /// Queries a node for the images of these archives.
    ///
    /// # Errors
    /// When a query fails.
    pub(super) async fn query(
        hosts: &SshHosts,
        host: HostAddress,
        archives: impl Iterator<Item = &ImageArchive>,
    ) -> Result<Self, String> {
        // `check` fails if an image cannot be read. Its output for the other images is valid.
        let line = format!("{CTR} images list --quiet >/dev/null && {{ {CTR} images check || true; }}");
        let mut present = Self {
            complete: complete(&command_output(hosts, host, &line, QUERY_TIMEOUT).await?),
            ..Self::default()
        };
        for image in archives.flat_map(|archive| &archive.images) {
            let Some(manifest) = present.unread(image) else { continue };
            // A digest is hexadecimal and needs no quotes.
            let text =
                command_output(hosts, host, &format!("{CTR} content get sha256:{manifest}"), QUERY_TIMEOUT)
                    .await?;
            if let Some(config) = config_of(&text) {
                present.configs.insert(manifest, config);
            }
        }
        Ok(present)
    }

    /// The manifest that must be read to know whether the node has the image.
    fn unread(&self, image: &ArchivedImage) -> Option<Digest> {
        let (Some(name), ImageContent::Config(_)) = (&image.name, &image.content) else { return None };
        self.complete.get(name).filter(|manifest| !self.configs.contains_key(*manifest)).cloned()
    }

    /// Whether the node has every image of the archive with its name and its name by digest.
    pub(super) fn has(&self, archive: &ImageArchive) -> bool {
        archive.images.iter().all(|image| self.has_image(image))
    }

    fn has_image(&self, image: &ArchivedImage) -> bool {
        let named = image.name.as_ref().map(|name| self.complete.get(name));
        match (&image.content, named) {
            (ImageContent::Manifest(wanted), Some(present)) => {
                let by_digest = image.name_by_digest().and_then(|name| self.complete.get(&name));
                present == Some(wanted) && by_digest == Some(wanted)
            }
            (ImageContent::Manifest(wanted), None) => self.complete.values().any(|present| present == wanted),
            (ImageContent::Config(wanted), Some(present)) => {
                present.and_then(|manifest| self.configs.get(manifest)) == Some(wanted)
            }
            // Without name and manifest the image cannot be looked up.
            (ImageContent::Config(_), None) => false,
        }
    }
}

/// The complete images in the output of `ctr images check`: `REF TYPE DIGEST STATUS …`, where the status is
/// `complete (4/4)`.
fn complete(text: &str) -> BTreeMap<String, Digest> {
    let image = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, digest, status) = (words.first()?, words.get(2)?, words.get(3)?);
        let digest = digest.strip_prefix("sha256:")?.parse().ok()?;
        (*status == "complete").then(|| ((*name).to_owned(), digest))
    };
    text.lines().filter_map(image).collect()
}

/// The config that an image's manifest names; a list of manifests names none.
fn config_of(manifest: &str) -> Option<Digest> {
    let value: Value = serde_json::from_str(manifest).ok()?;
    value["config"]["digest"].as_str()?.strip_prefix("sha256:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kubeon_bundle::image::ArchiveFormat;

    use super::*;

    /// Output of containerd 2.4.
    const CHECKED: &str = "\
REF                             TYPE                                       DIGEST                                                                  STATUS           SIZE            UNPACKED
docker.io/a/b:1                 application/vnd.oci.image.manifest.v1+json sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa complete (2/2)   1.0 MiB/1.0 MiB true
registry.k8s.io/coredns:v1.14.2 application/vnd.oci.image.index.v1+json    sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb complete (5/5)   9.0 MiB/9.0 MiB false
docker.io/a/half:1              application/vnd.oci.image.manifest.v1+json sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc incomplete (1/2) 1.0 MiB/2.0 MiB false
docker.io/a/gone:1              application/vnd.oci.image.manifest.v1+json sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd unavailable (0/?) 0.0 B/?       false
";

    fn digest(letter: &str) -> Digest {
        letter.repeat(64).parse().unwrap()
    }

    fn archive(images: &[(Option<&str>, ImageContent)]) -> ImageArchive {
        let images: Vec<_> = images
            .iter()
            .map(|(name, content)| ArchivedImage { name: name.map(str::to_owned), content: content.clone() })
            .collect();
        let names = images.iter().filter_map(|image| image.name.clone()).collect();
        ImageArchive { format: ArchiveFormat::Oci, names, images, digest: digest("0"), size: 1 }
    }

    fn manifest(letter: &str) -> ImageContent {
        ImageContent::Manifest(digest(letter))
    }

    #[test]
    fn an_image_is_present_if_digest_and_name_match_and_it_is_complete() {
        let mut present = PresentImages { complete: complete(CHECKED), ..PresentImages::default() };
        assert_eq!(present.complete.len(), 2, "{present:?}");
        let named = archive(&[(Some("docker.io/a/b:1"), manifest("a"))]);
        assert!(!present.has(&named), "it has no name by digest");
        present.complete.insert(named.images[0].name_by_digest().unwrap(), digest("a"));
        let one = |name, content| archive(&[(name, content)]);
        assert!(present.has(&one(Some("docker.io/a/b:1"), manifest("a"))));
        assert!(present.has(&one(None, manifest("a"))));
        for (name, letter) in [
            (Some("docker.io/a/b:1"), "b"),
            (Some("docker.io/a/b:2"), "a"),
            (Some("docker.io/a/half:1"), "c"),
            (Some("docker.io/a/gone:1"), "d"),
            (None, "c"),
        ] {
            assert!(!present.has(&one(name, manifest(letter))), "{name:?} {letter}");
        }
        let two = [(Some("docker.io/a/b:1"), manifest("a")), (Some("docker.io/a/new:1"), manifest("e"))];
        assert!(!present.has(&archive(&two)), "one of two images is missing");
    }

    #[test]
    fn archives_of_docker_save_are_compared_by_config() {
        let mut present = PresentImages { complete: complete(CHECKED), ..PresentImages::default() };
        let config = |letter| ImageContent::Config(digest(letter));
        let saved = archive(&[(Some("docker.io/a/b:1"), config("e"))]);
        assert_eq!(present.unread(&saved.images[0]), Some(digest("a")));
        assert!(!present.has(&saved), "the manifest is not read yet");
        let text = format!(r#"{{"schemaVersion":2,"config":{{"digest":"sha256:{}"}}}}"#, "e".repeat(64));
        present.configs.insert(digest("a"), config_of(&text).unwrap());
        assert_eq!(present.unread(&saved.images[0]), None);
        assert!(present.has(&saved));
        assert!(!present.has(&archive(&[(Some("docker.io/a/b:1"), config("f"))])));
        assert!(!present.has(&archive(&[(None, config("e"))])));
        assert_eq!(config_of(r#"{"manifests":[]}"#), None);
    }
}
