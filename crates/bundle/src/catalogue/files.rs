//! The files of `catalogue/`.

use serde::Deserialize;

use super::error::CatalogueError;

/// The files: path inside `catalogue/`, content.
#[derive(Debug, Clone, Copy)]
pub(super) struct CatalogueFiles<'a>(&'a [(&'a str, &'a str)]);

impl<'a> CatalogueFiles<'a> {
    pub(super) fn new(files: &'a [(&'a str, &'a str)]) -> Self {
        Self(files)
    }

    /// Parses a YAML file.
    pub(super) fn parse<T: for<'de> Deserialize<'de>>(&self, path: &str) -> Result<T, CatalogueError> {
        let text = self.0.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
        let text = text.ok_or_else(|| CatalogueError::Missing(path.to_owned()))?;
        serde_saphyr::from_str(text)
            .map_err(|source| CatalogueError::Parse { file: path.to_owned(), source: Box::new(source) })
    }

    /// The paths of the files in a folder, whose name ends with a slash.
    pub(super) fn paths_in(&self, folder: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|(path, _)| *path).filter(move |path| path.starts_with(folder))
    }

    /// Name and content of the files in a folder, whose name ends with a slash.
    pub(super) fn files_in(&self, folder: &str) -> Vec<(String, String)> {
        let file =
            |(path, text): &(&str, &str)| Some((path.strip_prefix(folder)?.to_owned(), (*text).to_owned()));
        self.0.iter().filter_map(file).collect()
    }
}
