//! Components, parts, programs and images of the catalogue. The `…File` types are the YAML; the others are resolved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::CatalogueError;
use super::files::CatalogueFiles;

/// A unit of the build, which results in one or more parts.
#[derive(Debug, Clone, Serialize)]
pub struct Component {
    /// Such as `kubernetes`.
    pub name: String,
    /// Such as `v1.36.3`; `debian` when the distribution decides the version.
    pub version: String,
    /// Its build.
    pub recipe: Recipe,
    /// What its authors publish; empty when the distribution is the only source.
    #[serde(skip)]
    pub published: Vec<Published>,
    /// The resulting parts.
    pub parts: Vec<PartRecipe>,
    /// Seconds of a cold build on two cores, measured. Only the estimate of the remaining time uses it.
    #[serde(skip)]
    pub expected_seconds: u32,
}

/// The build of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// By the `go` command.
    GoModules(GoRecipe),
    /// From Debian packages.
    Debian(DebianRecipe),
}

/// A file or an image that the authors of a component publish. `{arch}` stands for the architecture.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", untagged, deny_unknown_fields)]
pub enum Published {
    /// A program, or a tar archive with programs.
    File {
        /// Its address.
        url: String,
        /// The address of a document that contains its SHA-256: alone, in lines of `sha256sum`, or as the `digest` of an asset in a
        /// description of a release by GitHub.
        sums: String,
        /// The program, when the file is one.
        #[serde(default)]
        program: Option<String>,
    },
    /// An image with programs.
    Image {
        /// The address of its manifests in a registry.
        manifests: String,
    },
}

/// A build by the `go` command.
#[derive(Debug, Clone, Serialize)]
pub struct GoRecipe {
    /// The modules that contain the programs.
    pub modules: Vec<String>,
    /// Whether C code is compiled too.
    pub cgo: bool,
    /// Build tags, unless a program has its own.
    pub tags: Vec<String>,
    /// Linker flags, with the version filled in.
    pub ldflags: String,
    /// `go.mod`, `go.sum` and sources: name, content.
    pub files: Vec<(String, String)>,
    /// Requirements of the building machine besides `go`.
    #[serde(skip)]
    pub needs: Vec<Need>,
    /// For pinning: dependencies whose required version no proxy serves, and the version used instead.
    #[serde(skip)]
    pub replace: BTreeMap<String, String>,
    /// For pinning: the first module replaces others by its own `staging` folder, which is served as `v0.MINOR.PATCH`.
    #[serde(skip)]
    pub staging_replaced: bool,
}

/// A root file system from Debian packages.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DebianRecipe {
    /// The packages; their dependencies are included.
    pub packages: Vec<String>,
    /// Dependencies that are not included.
    #[serde(default, rename = "without")]
    pub excluded: Vec<String>,
    /// Folders and files that are not included.
    #[serde(default)]
    pub prune: Vec<String>,
    /// File names that are included even below `prune`.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Folders added.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Symbolic links added: path, target.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Files added: path, content.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A file or a program that the building machine must have.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// A program on PATH.
    #[serde(default)]
    pub program: Option<String>,
    /// A file; for headers the path without the architecture.
    #[serde(default)]
    pub file: Option<String>,
    /// The Debian package that contains it.
    pub package: String,
}

/// One part of a component.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecipe {
    /// Such as `kubelet`.
    pub name: String,
    /// The programs in it.
    pub programs: Vec<ProgramRecipe>,
}

/// One program.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRecipe {
    /// The file's name in `bin/`; in a root file system, its path.
    pub name: String,
    /// The Go package that contains its `main`.
    #[serde(default)]
    pub package: Option<String>,
    /// Build tags instead of the component's.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
}

/// An image that consists of parts.
#[derive(Debug, Clone, Serialize)]
pub struct ImageRecipe {
    /// Such as `kube-apiserver`.
    pub name: String,
    /// The upstream name with its tag.
    pub reference: String,
    /// The tag alone.
    pub tag: String,
    /// Names of parts, lowest layer first.
    pub layers: Vec<String>,
    /// Symbolic links at the upstream paths of the programs: path, target.
    pub paths: BTreeMap<String, String>,
    /// The program and its arguments.
    pub entrypoint: Vec<String>,
    /// The user that it runs as; root when absent.
    pub user: Option<String>,
    /// Whether every host imports it; then it is also a part.
    pub on_hosts: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ComponentFile {
    expected_seconds: u32,
    #[serde(default)]
    go_modules: Option<GoFile>,
    #[serde(default)]
    debian: Option<DebianRecipe>,
    #[serde(default)]
    published: Vec<Published>,
    parts: Vec<PartRecipe>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GoFile {
    modules: Vec<String>,
    #[serde(default)]
    cgo: bool,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    ldflags: String,
    #[serde(default)]
    needs: Vec<Need>,
    #[serde(default)]
    replace: BTreeMap<String, String>,
    #[serde(default)]
    staging_replaced: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ImageFile {
    reference: String,
    layers: Vec<String>,
    #[serde(default)]
    paths: BTreeMap<String, String>,
    entrypoint: Vec<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    on_hosts: bool,
}

impl ComponentFile {
    pub(super) fn resolve(
        &self,
        name: &str,
        version: &str,
        tag: Option<&str>,
        files: CatalogueFiles<'_>,
    ) -> Result<Component, CatalogueError> {
        let recipe = match (&self.go_modules, &self.debian) {
            (Some(go), None) => Recipe::GoModules(go.resolve(name, version, files)?),
            (None, Some(debian)) => Recipe::Debian(debian.clone()),
            _ => {
                let text = format!("{name} needs exactly one of goModules and debian");
                return Err(CatalogueError::Contradiction(text));
            }
        };
        let published =
            self.published.iter().flat_map(|one| self.resolve_published(one, version, tag)).collect();
        let (version, parts) = (version.to_owned(), self.parts.clone());
        Ok(Component {
            name: name.to_owned(),
            version,
            recipe,
            published,
            parts,
            expected_seconds: self.expected_seconds,
        })
    }

    /// Fills in the version; an address with `{program}` stands for one file per program.
    fn resolve_published(&self, published: &Published, version: &str, tag: Option<&str>) -> Vec<Published> {
        let number = version.trim_start_matches('v');
        let fill = |text: &str| {
            let text = text.replace("{version}", version).replace("{number}", number);
            text.replace("{tag}", tag.unwrap_or_default())
        };
        match published {
            Published::Image { manifests } => vec![Published::Image { manifests: fill(manifests) }],
            Published::File { url, sums, program } => {
                let file = |program: Option<String>| {
                    let url = fill(url).replace("{program}", program.as_deref().unwrap_or_default());
                    Published::File { sums: fill(sums).replace("{url}", &url), url, program }
                };
                if !url.contains("{program}") {
                    return vec![file(program.clone())];
                }
                let programs = self.parts.iter().flat_map(|part| &part.programs);
                programs.map(|program| file(Some(program.name.clone()))).collect()
            }
        }
    }
}

impl GoFile {
    fn resolve(
        &self,
        name: &str,
        version: &str,
        files: CatalogueFiles<'_>,
    ) -> Result<GoRecipe, CatalogueError> {
        let folder = format!("go/{name}/{version}/");
        let files = files.files_in(&folder);
        if !files.iter().any(|(name, _)| name == "go.mod") {
            return Err(CatalogueError::Missing(format!("{folder}go.mod")));
        }
        let mut numbers = version.trim_start_matches('v').split('.');
        let ldflags = self
            .ldflags
            .replace("{version}", version)
            .replace("{major}", numbers.next().unwrap_or_default())
            .replace("{minor}", numbers.next().unwrap_or_default());
        Ok(GoRecipe {
            modules: self.modules.clone(),
            cgo: self.cgo,
            tags: self.tags.clone(),
            ldflags,
            files,
            needs: self.needs.clone(),
            replace: self.replace.clone(),
            staging_replaced: self.staging_replaced,
        })
    }
}

impl ImageFile {
    pub(super) fn resolve(&self, name: &str, tag: &str) -> ImageRecipe {
        ImageRecipe {
            name: name.to_owned(),
            reference: format!("{}:{tag}", self.reference),
            tag: tag.to_owned(),
            layers: self.layers.clone(),
            paths: self.paths.clone(),
            entrypoint: self.entrypoint.clone(),
            user: self.user.clone(),
            on_hosts: self.on_hosts,
        }
    }
}
