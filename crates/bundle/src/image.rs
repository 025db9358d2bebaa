//! Images composed of parts: their config and manifest in the layout, and the archive that a host imports.

mod archive;
mod load;

use std::io;

use kubeon_api::Digest;
use serde::{Deserialize, Serialize};

pub(crate) use archive::write_archive;
pub use load::{
    ArchiveFormat, ArchivedImage, ImageArchive, ImageContent, LoadError, full_name, load_archive,
};

use crate::catalogue::ImageRecipe;
use crate::layout::{self, Descriptor, Manifest};
use crate::pack::{self, Packed, TarContent, TarTree};
use crate::{Arch, Part, digest};

/// The same search path as in the upstream images.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Version of the format. It changes when the same recipe gives other images or archives.
pub(crate) const FORMAT: u32 = 2;

/// A blob that is used as a layer of an image.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) diff_id: Digest,
}

impl From<&Part> for Layer {
    fn from(part: &Part) -> Self {
        Self { digest: part.digest.clone(), size: part.size, diff_id: part.diff_id.clone() }
    }
}

impl From<&Packed> for Layer {
    fn from(packed: &Packed) -> Self {
        Self { digest: packed.digest.clone(), size: packed.size, diff_id: packed.diff_id.clone() }
    }
}

/// An image's config, with the field names of OCI.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    architecture: Arch,
    os: String,
    config: Process,
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Process {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    env: Vec<String>,
    entrypoint: Vec<String>,
    working_dir: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    pub(crate) diff_ids: Vec<String>,
}

/// The topmost layer: links at the upstream paths of the programs, and the few files that programs expect.
pub(crate) fn path_layer(recipe: &ImageRecipe) -> TarTree {
    let mut tree = TarTree::new();
    for (path, target) in &recipe.paths {
        tree.insert(path.clone(), TarContent::Link(target.clone()));
    }
    let file = |text: &str| TarContent::Bytes { bytes: text.into(), mode: 0o644 };
    tree.insert(
        "etc/passwd".into(),
        file("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"),
    );
    tree.insert("etc/group".into(), file("root:x:0:\nnobody:x:65534:\n"));
    tree.insert("tmp".into(), TarContent::Directory { mode: 0o1777 });
    pack::add_parents(&mut tree);
    tree
}

/// The config and the manifest of an image, as bytes.
pub(crate) fn compose(recipe: &ImageRecipe, layers: &[Layer], arch: Arch) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let diff_ids = layers.iter().map(|layer| format!("sha256:{}", layer.diff_id)).collect();
    let config = serde_json::to_vec(&Config {
        architecture: arch,
        os: "linux".to_owned(),
        config: Process {
            user: recipe.user.clone(),
            env: vec![PATH.to_owned()],
            entrypoint: recipe.entrypoint.clone(),
            working_dir: "/".to_owned(),
        },
        rootfs: RootFs { kind: "layers".to_owned(), diff_ids },
    })?;
    let described = layers
        .iter()
        .map(|layer| Descriptor::new(layout::LAYER_ZSTD, layer.digest.clone(), layer.size))
        .collect();
    let descriptor = Descriptor::new(layout::CONFIG, digest::of_bytes(&config)?, config.len() as u64);
    let manifest = serde_json::to_vec(&Manifest::new(descriptor, described))?;
    Ok((config, manifest))
}
