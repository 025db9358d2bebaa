//! Parts from a folder of files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{BuildError, at};
use crate::cache::Finished;
use crate::catalogue::{CatalogueEntry, Component, PartRecipe, Recipe};
use crate::pack::{self, TarContent, TarTree};
use crate::{Arch, Part, PartKind, PartSource};

/// Packs the parts of an entry from a folder into `out`.
///
/// A program is at `NAME` or `bin/NAME`, a root file system at `PART/`.
pub(super) fn pack_directory(
    entry: &CatalogueEntry,
    folder: &Path,
    arch: Arch,
    out: &Path,
) -> Result<Finished, BuildError> {
    let mut missing = Vec::new();
    let mut trees = Vec::new();
    for component in &entry.components {
        for part in &component.parts {
            match find(component, part, folder, arch)? {
                Ok(tree) => trees.push((component, part, tree)),
                Err(names) => missing.extend(names),
            }
        }
    }
    if !missing.is_empty() {
        return Err(BuildError::MissingFiles { folder: folder.to_owned(), missing });
    }
    let mut parts = Vec::new();
    for (component, part, tree) in trees {
        parts.push(pack_part(component, part, &tree, out)?);
    }
    Ok(Finished { folder: out.to_owned(), parts })
}

fn pack_part(
    component: &Component,
    part: &PartRecipe,
    tree: &TarTree,
    out: &Path,
) -> Result<Part, BuildError> {
    let packed = pack::pack(tree, out).map_err(at("pack into", out))?;
    let is_go = matches!(component.recipe, Recipe::GoModules(_));
    let kind = match (is_go, part.programs.len()) {
        (false, _) => PartKind::Rootfs,
        (true, 1) => PartKind::Program,
        (true, _) => PartKind::Archive,
    };
    let path = |name: &String| if is_go { format!("bin/{name}") } else { name.clone() };
    let programs = part.programs.iter().map(|program| path(&program.name)).collect();
    Ok(packed.part(&part.name, kind, &component.version, programs, PartSource::Directory))
}

type Found = Result<TarTree, Vec<String>>;

/// The part's files, or the names of those that are missing.
fn find(component: &Component, part: &PartRecipe, folder: &Path, arch: Arch) -> Result<Found, BuildError> {
    if matches!(component.recipe, Recipe::Debian(_)) {
        let root = folder.join(&part.name);
        let has = |name: &str| root.join(name).symlink_metadata().is_ok();
        if !part.programs.iter().all(|program| has(&program.name)) {
            return Ok(Err(part
                .programs
                .iter()
                .map(|program| format!("{}/{}", part.name, program.name))
                .collect()));
        }
        return Ok(Ok(pack::tree(&root).map_err(at("read", &root))?));
    }
    let mut tree = TarTree::new();
    let mut missing = Vec::new();
    for program in &part.programs {
        let places: [PathBuf; 2] = [folder.join(&program.name), folder.join("bin").join(&program.name)];
        match places.into_iter().find(|place| place.is_file()) {
            None => missing.push(program.name.clone()),
            Some(path) => {
                check_elf(&path, arch, &program.name)?;
                tree.insert(format!("bin/{}", program.name), TarContent::File { path, mode: 0o755 });
            }
        }
    }
    pack::add_parents(&mut tree);
    Ok(if missing.is_empty() { Ok(tree) } else { Err(missing) })
}

/// Refuses a program of another architecture: otherwise it would fail only on the host.
pub(super) fn check_elf(path: &Path, arch: Arch, name: &str) -> Result<(), BuildError> {
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(20).read_to_end(&mut head)).map_err(at("read", path))?;
    let why = match head.as_slice() {
        [0x7f, b'E', b'L', b'F', .., low, high] if head.len() == 20 => {
            if u16::from_le_bytes([*low, *high]) == arch.elf_machine() {
                return Ok(());
            }
            format!("{} is a program for another architecture than {arch}", path.display())
        }
        _ => format!("{} is not a Linux program (ELF)", path.display()),
    };
    Err(BuildError::Unexpected { component: name.to_owned(), why })
}
