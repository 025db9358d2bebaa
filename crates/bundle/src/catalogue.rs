//! What is supported, as data: the files of `catalogue/`, read, resolved per Kubernetes version and checked.

mod recipe;

use std::collections::BTreeMap;

use kubeon_api::{Digest, Version};
use serde::Deserialize;

pub use recipe::{Component, DebianRecipe, GoRecipe, ImageRecipe, Need, PartRecipe, ProgramRecipe, Recipe};
use recipe::{ComponentFile, ImageFile};

use crate::{Arch, digest};

include!(concat!(env!("OUT_DIR"), "/catalogue_files.rs"));

/// Why the catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A YAML file does not have the expected shape.
    #[error("catalogue/{file} cannot be read: {source}")]
    Parse {
        /// Path inside `catalogue/`.
        file: String,
        /// What the parser says.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A file that another one refers to is missing.
    #[error("catalogue/{0} is missing")]
    Missing(String),
    /// The data contradict each other.
    #[error("catalogue: {0}")]
    Contradiction(String),
    /// The version is not in the catalogue.
    #[error("Kubernetes {version} is not in the catalogue; it holds {known}")]
    UnknownVersion {
        /// What was asked for.
        version: Version,
        /// What there is, as one text.
        known: String,
    },
}

/// Every Kubernetes version that can be built.
#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: BTreeMap<Version, Entry>,
}

/// Everything that belongs to one Kubernetes version.
#[derive(Debug, Clone)]
pub struct Entry {
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
    /// The catalogue that this program carries.
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
        let components: BTreeMap<String, ComponentFile> = parse(files, "components.yaml")?;
        let images: BTreeMap<String, ImageFile> = parse(files, "images.yaml")?;
        let mut entries = BTreeMap::new();
        for (path, _) in files.iter().filter(|(path, _)| path.starts_with("versions/")) {
            let file: VersionFile = parse(files, path)?;
            entries.insert(file.kubernetes, resolve(files, &components, &images, &file)?);
        }
        Ok(Self { entries })
    }

    /// The versions, oldest first.
    pub fn versions(&self) -> impl Iterator<Item = Version> {
        self.entries.keys().copied()
    }

    /// The entry of one version.
    ///
    /// # Errors
    /// A version that is not in the catalogue; the error lists those that are.
    pub fn entry(&self, version: Version) -> Result<&Entry, CatalogueError> {
        self.entries.get(&version).ok_or_else(|| CatalogueError::UnknownVersion {
            version,
            known: self.entries.keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        })
    }
}

impl Entry {
    /// Digest of everything that decides what a bundle of this entry holds. The compiler's and the packages'
    /// versions are found out while building and stand in the bundle's manifest instead.
    ///
    /// # Errors
    /// None in practice; hashing goes through `std::io`.
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

fn parse<T: for<'de> Deserialize<'de>>(files: &[(&str, &str)], path: &str) -> Result<T, CatalogueError> {
    let text = content(files, path).ok_or_else(|| CatalogueError::Missing(path.to_owned()))?;
    serde_saphyr::from_str(text)
        .map_err(|source| CatalogueError::Parse { file: path.to_owned(), source: Box::new(source) })
}

fn content<'a>(files: &[(&str, &'a str)], path: &str) -> Option<&'a str> {
    files.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

fn resolve(
    files: &[(&str, &str)],
    components: &BTreeMap<String, ComponentFile>,
    images: &BTreeMap<String, ImageFile>,
    version: &VersionFile,
) -> Result<Entry, CatalogueError> {
    let mut resolved = Vec::new();
    for (name, wanted) in &version.components {
        let file = components.get(name).ok_or_else(|| {
            CatalogueError::Contradiction(format!(
                "{} names the unknown component {name}",
                version.kubernetes
            ))
        })?;
        resolved.push(file.resolve(name, wanted, files)?);
    }
    resolved.sort_by(|a, b| b.expected_seconds.cmp(&a.expected_seconds).then_with(|| a.name.cmp(&b.name)));
    let mut recipes = Vec::new();
    for (name, file) in images {
        let tag = version.tags.get(name).ok_or_else(|| {
            CatalogueError::Contradiction(format!("{} has no tag for the image {name}", version.kubernetes))
        })?;
        recipes.push(file.resolve(name, tag));
    }
    let entry = Entry { kubernetes: version.kubernetes, components: resolved, images: recipes };
    check(&entry)?;
    Ok(entry)
}

/// Part names are unique, and an image's layers are parts.
fn check(entry: &Entry) -> Result<(), CatalogueError> {
    let mut names: Vec<&str> =
        entry.components.iter().flat_map(|c| c.parts.iter().map(|part| part.name.as_str())).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(CatalogueError::Contradiction(format!("two parts are called {}", pair[0])));
    }
    for image in &entry.images {
        if let Some(layer) = image.layers.iter().find(|layer| !names.contains(&layer.as_str())) {
            let text =
                format!("the image {} wants the part {layer}, which {} lacks", image.name, entry.kubernetes);
            return Err(CatalogueError::Contradiction(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
