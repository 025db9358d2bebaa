//! Assembles the layout from finished components: links blobs, composes images, and moves the layout to its place by one
//! rename.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use kubeon_api::Digest;

use super::error::{BuildError, at};
use super::options::BuildOptions;
use super::progress::{BuildState, Reporter};
use crate::cache::{self, Finished, Scratch};
use crate::catalogue::{CatalogueEntry, ImageRecipe};
use crate::image::{self, Layer};
use crate::pack::{self, TarContent, TarTree};
use crate::{Bundle, BundleManifest, Image, Part, PartKind, PartSource, digest, layout, manifest};

pub(super) fn assemble(
    entry: &CatalogueEntry,
    options: &BuildOptions,
    inputs: &Digest,
    components: &[Finished],
    reporter: &Reporter<'_>,
) -> Result<Bundle, BuildError> {
    reporter.report("bundle", 0, BuildState::Packing);
    let bundles = options.store.bundles();
    let scratch = Scratch::new(bundles, "bundle").map_err(at("create a folder in", bundles))?;
    let root = scratch.folder("layout").map_err(at("create a folder in", scratch.path()))?;
    let blobs = layout::blobs(&root);
    fs::create_dir_all(&blobs).map_err(at("create", &blobs))?;
    let mut parts = Vec::new();
    for component in components {
        for part in &component.parts {
            let source = component.blob(&part.digest);
            link(&source, &layout::blob(&root, &part.digest)).map_err(at("link", &source))?;
            parts.push(part.clone());
        }
    }
    let by_name: BTreeMap<String, Part> =
        parts.iter().map(|part| (part.name.clone(), part.clone())).collect();
    let mut images = Vec::new();
    for recipe in &entry.images {
        let image = compose(recipe, &by_name, options, &root).map_err(at("compose an image in", &root))?;
        if recipe.on_hosts {
            let part =
                image_part(recipe, &image, &root, scratch.path()).map_err(at("write an image to", &root))?;
            parts.push(part);
        }
        images.push(image);
    }
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    let manifest = BundleManifest {
        schema: manifest::SCHEMA,
        kubernetes: entry.kubernetes,
        arch: options.arch,
        created_from: options.from.name().to_owned(),
        inputs: inputs.clone(),
        parts,
        images,
    };
    write_layout(&root, &manifest).map_err(at("write", &root))?;
    let place = options.store.folder(entry.kubernetes, options.arch);
    cache::replace(&root, &place).map_err(at("move the bundle to", &place))?;
    let bundle = Bundle::open(&place)?;
    reporter.report("bundle", 0, BuildState::Done);
    Ok(bundle)
}

/// Makes a hard link, or a copy when the two are on different file systems.
fn link(source: &Path, target: &Path) -> io::Result<()> {
    if fs::hard_link(source, target).is_ok() || target.exists() {
        return Ok(());
    }
    fs::copy(source, target)?;
    File::open(target)?.sync_all()
}

fn compose(
    recipe: &ImageRecipe,
    parts: &BTreeMap<String, Part>,
    options: &BuildOptions,
    root: &Path,
) -> io::Result<Image> {
    let mut layers = Vec::new();
    for name in &recipe.layers {
        let missing = || io::Error::other(format!("the part {name} was not built"));
        layers.push(Layer::from(parts.get(name).ok_or_else(missing)?));
    }
    let packed = pack::pack(&image::path_layer(recipe), &layout::blobs(root))?;
    layers.push(Layer::from(&packed));
    let (config, manifest) = image::compose(recipe, &layers, options.arch)?;
    write_blob(root, &config)?;
    let digest = write_blob(root, &manifest)?;
    let (name, reference) = (recipe.name.clone(), recipe.reference.clone());
    Ok(Image { name, reference, digest, size: manifest.len() as u64 })
}

/// The image as a part: its archive, packed.
fn image_part(recipe: &ImageRecipe, image: &Image, root: &Path, scratch: &Path) -> io::Result<Part> {
    let path = scratch.join("image.tar");
    image::write_archive(root, image, io::BufWriter::new(File::create(&path)?))?.flush()?;
    let content = TarContent::File { path: path.clone(), mode: 0o644 };
    let packed = pack::pack(&TarTree::from([("image.tar".to_owned(), content)]), &layout::blobs(root))?;
    fs::remove_file(&path)?;
    let source = PartSource::Parts { names: recipe.layers.clone() };
    let mut part =
        packed.part(&format!("{}-image", recipe.name), PartKind::Image, &recipe.tag, Vec::new(), source);
    part.image = Some(recipe.reference.clone());
    Ok(part)
}

fn write_layout(root: &Path, manifest: &BundleManifest) -> io::Result<()> {
    let described = layout::describe(manifest)?;
    write_blob(root, &described.config_bytes)?;
    write_blob(root, &described.manifest_bytes)?;
    write_file(&root.join(layout::LAYOUT_FILE), layout::LAYOUT.as_bytes())?;
    write_file(&root.join(layout::INDEX_FILE), &described.index)?;
    File::open(layout::blobs(root))?.sync_all()
}

fn write_blob(root: &Path, bytes: &[u8]) -> io::Result<Digest> {
    let digest = digest::of_bytes(bytes)?;
    write_file(&layout::blob(root, &digest), bytes)?;
    Ok(digest)
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
