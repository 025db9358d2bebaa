//! Parts out of programs.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::component::ComponentBuild;
use super::error::{BuildError, at};
use crate::catalogue::{PartRecipe, ProgramRecipe};
use crate::pack::{self, TarContent, TarTree};
use crate::{Part, PartKind, PartSource};

/// Packs the parts of a component with one thread per core. `file` is the file of a program.
pub(super) fn pack_all(
    task: &ComponentBuild<'_>,
    out: &Path,
    source: &PartSource,
    file: &(dyn Fn(&ProgramRecipe) -> PathBuf + Sync),
) -> Result<Vec<Part>, BuildError> {
    let parts = &task.component.parts;
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<Part>, BuildError> {
        let mut packed = Vec::new();
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            packed.push(pack_one(task, part, out, source, file)?);
        }
        Ok(packed)
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut all = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(parts.len())).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            all.extend(worker.join().map_err(|_| BuildError::ThreadDied)??);
        }
        Ok::<(), BuildError>(())
    })?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn pack_one(
    task: &ComponentBuild<'_>,
    recipe: &PartRecipe,
    out: &Path,
    source: &PartSource,
    file: &(dyn Fn(&ProgramRecipe) -> PathBuf + Sync),
) -> Result<Part, BuildError> {
    let mut tree = TarTree::new();
    for program in &recipe.programs {
        let content = TarContent::File { path: file(program), mode: 0o755 };
        tree.insert(format!("bin/{}", program.name), content);
    }
    pack::add_parents(&mut tree);
    let packed = pack::pack(&tree, out).map_err(at("pack into", out))?;
    let kind = if recipe.programs.len() == 1 { PartKind::Program } else { PartKind::Archive };
    let programs = recipe.programs.iter().map(|program| format!("bin/{}", program.name)).collect();
    Ok(packed.part(&recipe.name, kind, &task.component.version, programs, source.clone()))
}
