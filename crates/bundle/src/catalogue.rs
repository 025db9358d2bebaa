//! The supported versions, as data: the files of `catalogue/`, read, resolved per Kubernetes version and checked.

mod error;
mod files;
mod recipe;
mod releases;

use std::collections::BTreeMap;

use jiff::civil::Date;
use kubeon_api::{Digest, Version};
use serde::Deserialize;

pub use error::CatalogueError;
use files::CatalogueFiles;
pub use recipe::{
    Component, DebianRecipe, GoRecipe, ImageRecipe, Need, PartRecipe, ProgramRecipe, Published, Recipe,
};
use recipe::{ComponentFile, ImageFile};
use releases::Releases;
pub use releases::{Channel, NotAChannel};

use crate::{Arch, digest};

include!(concat!(env!("OUT_DIR"), "/catalogue_files.rs"));

/// Every Kubernetes version that can be built.
#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: BTreeMap<Version, CatalogueEntry>,
    releases: Releases,
}

/// Everything that belongs to one Kubernetes version.
#[derive(Debug, Clone)]
pub struct CatalogueEntry {
    /// The version.
    pub kubernetes: Version,
    /// Its components, slowest build first.
    pub components: Vec<Component>,
    /// Its images, sorted by name.
    pub images: Vec<ImageRecipe>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionFile {
    kubernetes: Version,
    components: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

impl Catalogue {
    /// The catalogue that is embedded in this program.
    ///
    /// # Errors
    /// Only when the program was built from contradicting data; the crate's tests exclude that.
    pub fn embedded() -> Result<Self, CatalogueError> {
        Self::from_files(FILES)
    }

    /// A catalogue from files given as (path inside `catalogue/`, content).
    ///
    /// # Errors
    /// A file that does not parse, is missing, or contradicts another one.
    pub fn from_files(files: &[(&str, &str)]) -> Result<Self, CatalogueError> {
        let files = CatalogueFiles::new(files);
        let components: BTreeMap<String, ComponentFile> = files.parse("components.yaml")?;
        let images: BTreeMap<String, ImageFile> = files.parse("images.yaml")?;
        let mut entries = BTreeMap::new();
        for path in files.paths_in("versions/") {
            let file: VersionFile = files.parse(path)?;
            entries.insert(file.kubernetes, resolve(files, &components, &images, &file)?);
        }
        let releases: Releases = files.parse("releases.yaml")?;
        releases.check(&entries.keys().copied().collect::<Vec<_>>())?;
        Ok(Self { entries, releases })
    }

    /// The version that a channel names.
    #[must_use]
    pub fn channel(&self, channel: Channel) -> Option<Version> {
        self.releases.channel(channel)
    }

    /// The last day on which Kubernetes publishes fixes for the minor version; `None` for a version that is not in the
    /// catalogue.
    #[must_use]
    pub fn end_of_life(&self, version: Version) -> Option<Date> {
        self.releases.end_of_life(version)
    }

    /// The versions, oldest first.
    pub fn versions(&self) -> impl Iterator<Item = Version> {
        self.entries.keys().copied()
    }

    /// The entry of one version.
    ///
    /// # Errors
    /// The version is not in the catalogue; the error lists the known versions.
    pub fn entry(&self, version: Version) -> Result<&CatalogueEntry, CatalogueError> {
        self.entries.get(&version).ok_or_else(|| CatalogueError::UnknownVersion {
            version,
            known: self.entries.keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        })
    }
}

impl CatalogueEntry {
    /// Digest of everything that decides the contents of a bundle of this entry. The versions of the compiler and the
    /// packages are known only after the build; the bundle's manifest has them.
    ///
    /// # Errors
    /// None in practice: hashing uses `std::io`.
    pub fn inputs(&self, arch: Arch, from: &str) -> std::io::Result<Digest> {
        let formats = (crate::pack::FORMAT, crate::image::FORMAT);
        digest::of_bytes(&serde_json::to_vec(&(formats, arch, from, &self.components, &self.images))?)
    }

    /// The component of that name.
    #[must_use]
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }
}

fn resolve(
    files: CatalogueFiles<'_>,
    components: &BTreeMap<String, ComponentFile>,
    images: &BTreeMap<String, ImageFile>,
    version: &VersionFile,
) -> Result<CatalogueEntry, CatalogueError> {
    let mut resolved = Vec::new();
    for (name, wanted) in &version.components {
        let file = components.get(name).ok_or_else(|| {
            CatalogueError::Contradiction(format!(
                "{} names the unknown component {name}",
                version.kubernetes
            ))
        })?;
        let tag = version.tags.get(name).map(String::as_str);
        resolved.push(file.resolve(name, wanted, tag, files)?);
    }
    resolved.sort_by(|a, b| b.expected_seconds.cmp(&a.expected_seconds).then_with(|| a.name.cmp(&b.name)));
    let mut recipes = Vec::new();
    for (name, file) in images {
        let tag = version.tags.get(name).ok_or_else(|| {
            CatalogueError::Contradiction(format!("{} has no tag for the image {name}", version.kubernetes))
        })?;
        recipes.push(file.resolve(name, tag));
    }
    let entry = CatalogueEntry { kubernetes: version.kubernetes, components: resolved, images: recipes };
    check(&entry)?;
    Ok(entry)
}

/// Part names are unique, and an image's layers are parts.
fn check(entry: &CatalogueEntry) -> Result<(), CatalogueError> {
    let mut names: Vec<&str> =
        entry.components.iter().flat_map(|c| c.parts.iter().map(|part| part.name.as_str())).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(CatalogueError::Contradiction(format!("two parts have the name {}", pair[0])));
    }
    for image in &entry.images {
        if let Some(layer) = image.layers.iter().find(|layer| !names.contains(&layer.as_str())) {
            let text = format!(
                "the image {} needs the part {layer}, which {} does not have",
                image.name, entry.kubernetes
            );
            return Err(CatalogueError::Contradiction(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
