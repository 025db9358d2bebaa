//! The list of a bundle's contents: JSON, stored as the config of the layout's manifest.

use kubeon_api::{Digest, Version};
use serde::{Deserialize, Serialize};

use crate::Arch;

/// The version of this format. A reader refuses a higher version.
pub const SCHEMA: u32 = 1;

/// The contents of a bundle. Signatures and bills of materials attach to the layout's manifest as OCI
/// referrers and need no field here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleManifest {
    /// The version of the format, [`SCHEMA`].
    pub schema: u32,
    /// The Kubernetes version that the bundle is for.
    pub kubernetes: Version,
    /// The architecture of every program in it.
    pub arch: Arch,
    /// The source of the parts: `go-modules` or `directory`.
    pub created_from: String,
    /// Digest of the catalogue's data that it was built from. Equal inputs mean that nothing needs to be built.
    pub inputs: Digest,
    /// The parts that hosts receive, sorted by name.
    pub parts: Vec<Part>,
    /// The images, sorted by name. Those that every host needs are also a part of kind `image`.
    pub images: Vec<Image>,
}

impl BundleManifest {
    /// The part of that name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// The image of that short name (`coredns`) or full reference (`registry.k8s.io/coredns/coredns:v1.14.2`).
    #[must_use]
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.images.iter().find(|image| image.name == name || image.reference == name)
    }
}

/// The contents of a part's unpacked blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// One static program at `bin/NAME`.
    Program,
    /// Several static programs at `bin/NAME`.
    Archive,
    /// A root file system with its own libraries.
    Rootfs,
    /// `image.tar`, an OCI archive to import.
    Image,
}

/// A part that hosts receive: one blob, a tar compressed with zstd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Unique in the bundle: `kubelet`, `coredns-image`.
    pub name: String,
    /// The contents of the blob.
    pub kind: PartKind,
    /// The component's version: `v3.6.8`, `2.6.12-1+deb12u4`.
    pub version: String,
    /// SHA-256 of the compressed blob.
    pub digest: Digest,
    /// Bytes of the compressed blob.
    pub size: u64,
    /// Bytes of all files once unpacked.
    pub unpacked_size: u64,
    /// SHA-256 of the tar inside: the blob's `diff_id` as a layer of an image.
    pub diff_id: Digest,
    /// Bytes of the tar inside.
    pub tar_size: u64,
    /// For kind `image`: the upstream name, with its tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The programs in it, as paths from the part's root: `bin/kubelet`, `usr/sbin/haproxy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// Its source.
    pub source: PartSource,
}

/// The source of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum PartSource {
    /// Built by the `go` command from modules whose sums are committed in the catalogue.
    GoModules {
        /// The modules that contain the programs. Their dependencies are pinned by the catalogue's `go.sum`.
        modules: Vec<GoModule>,
        /// The compiler: `go1.26.8`.
        toolchain: String,
    },
    /// Unpacked from packages of the distribution on the building machine.
    Debian {
        /// The packages, sorted by name.
        packages: Vec<DebianPackage>,
    },
    /// Downloaded from the servers of its authors, or from a mirror of them.
    Published {
        /// The files that the programs are from.
        files: Vec<PublishedFile>,
    },
    /// Taken from a folder without changes.
    Directory,
    /// Composed of other parts of this bundle.
    Parts {
        /// Their names, lowest layer first.
        names: Vec<String>,
    },
}

/// A file that the authors of a component publish.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PublishedFile {
    /// Its address at its authors, also when a mirror served it.
    pub url: String,
    /// The SHA-256 that its authors publish.
    pub sha256: Digest,
}

/// A Go module at one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GoModule {
    /// Such as `k8s.io/kubernetes`.
    pub path: String,
    /// Such as `v1.36.3`.
    pub version: String,
    /// The `h1:` line of `go.sum`.
    pub sum: String,
}

/// A Debian package at one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DebianPackage {
    /// Such as `haproxy`.
    pub name: String,
    /// Such as `2.6.12-1+deb12u4`.
    pub version: String,
    /// SHA-256 of the `.deb` file, from the distribution's signed index.
    pub sha256: Digest,
}

/// An image in the layout, whose layers are blobs of parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Short and unique: `kube-apiserver`.
    pub name: String,
    /// The upstream name with its tag: `registry.k8s.io/kube-apiserver:v1.36.3`.
    pub reference: String,
    /// SHA-256 of the image's manifest in the layout.
    pub digest: Digest,
    /// Bytes of that manifest.
    pub size: u64,
}
