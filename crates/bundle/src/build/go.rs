//! Components built by the ordinary `go` command from committed `go.mod` and `go.sum` files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use kubeon_process::{ProgramError, ProgramRun, find_on_path};

use super::component::ComponentBuild;
use super::error::{BuildError, at};
use super::parts;
use super::progress::BuildState;
use crate::cache::Scratch;
use crate::catalogue::{CatalogueEntry, GoRecipe, Need, ProgramRecipe, Recipe};
use crate::manifest::GoModule;
use crate::{Arch, Part, PartSource};

const COMPILE_LIMIT: Duration = Duration::from_secs(3600);
const FETCH_LIMIT: Duration = Duration::from_secs(1800);
/// Pauses between attempts to download: a module proxy may fail for a moment.
const FETCH_PAUSES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(8), Duration::ZERO];

/// The compiler that a component's `go.mod` selects.
pub(super) struct Toolchain {
    pub(super) version: String,
    modules: PathBuf,
}

/// Checks the tools that any component of the entry needs, before the first build starts.
pub(super) fn check_tools(entry: &CatalogueEntry, arch: Arch) -> Result<(), BuildError> {
    for component in &entry.components {
        let Recipe::GoModules(recipe) = &component.recipe else { continue };
        let program = |program: &str, package: &str| {
            let (program, package) = (Some(program.to_owned()), package.to_owned());
            Need { program, file: None, package }
        };
        let mut needs = vec![program("go", "golang-go")];
        if recipe.cgo {
            needs.extend(c_compiler(arch));
        }
        needs.extend(recipe.needs.iter().map(|need| need.on(arch)));
        if let Some(need) = needs.into_iter().find(|need| !is_met(need)) {
            let tool = match need.program.or(need.file).unwrap_or_default() {
                go if go == "go" => format!("Go {} or later", oldest_go(entry)),
                other => other,
            };
            return Err(BuildError::MissingTool {
                component: component.name.clone(),
                tool,
                package: need.package,
            });
        }
    }
    Ok(())
}

/// What compiles C for the architecture.
fn c_compiler(arch: Arch) -> [Need; 2] {
    let (gcc, file, [compiler, library]) = if arch == Arch::native() {
        ("gcc".to_owned(), "/usr/include/stdio.h".to_owned(), ["gcc".to_owned(), "libc6-dev".to_owned()])
    } else {
        let packages = [format!("gcc-{}", arch.triplet()), format!("libc6-dev-{arch}-cross")];
        (format!("{}-gcc", arch.triplet()), format!("/usr/{}/include/stdio.h", arch.triplet()), packages)
    };
    [
        Need { program: Some(gcc), file: None, package: compiler },
        Need { program: None, file: Some(file), package: library },
    ]
}

impl Need {
    /// The same for programs of the architecture: libraries differ.
    fn on(&self, arch: Arch) -> Self {
        let file = self.file.as_ref().map(|file| file.replace("{triplet}", arch.triplet()));
        let is_library = self.file.as_ref().is_some_and(|file| file.contains("{triplet}"));
        let foreign = is_library && arch != Arch::native();
        let package = if foreign { format!("{}:{arch}", self.package) } else { self.package.clone() };
        Self { program: self.program.clone(), file, package }
    }
}

/// The oldest Go version that can build all components: the newest `go` line of their `go.mod` files.
fn oldest_go(entry: &CatalogueEntry) -> String {
    let mut versions: Vec<Vec<u32>> = Vec::new();
    for component in &entry.components {
        let Recipe::GoModules(recipe) = &component.recipe else { continue };
        let lines =
            recipe.files.iter().filter(|(name, _)| name == "go.mod").flat_map(|(_, text)| text.lines());
        let version = lines.filter_map(|line| line.strip_prefix("go "));
        versions
            .extend(version.map(|text| text.split('.').filter_map(|number| number.parse().ok()).collect()));
    }
    let newest = versions.into_iter().max().unwrap_or_default();
    newest.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
}

fn is_met(need: &Need) -> bool {
    let program = need.program.as_deref().is_none_or(|program| find_on_path(program).is_some());
    let file = need.file.as_deref().is_none_or(|file| {
        // Debian has some headers in a folder named after the architecture.
        let multiarch =
            file.replacen("/usr/include/", &format!("/usr/include/{}/", Arch::native().triplet()), 1);
        Path::new(file).is_file() || Path::new(&multiarch).is_file()
    });
    program && file
}

/// Writes the component's module files and reads the version of the compiler that they select.
pub(super) fn prepare(
    task: &ComponentBuild<'_>,
    recipe: &GoRecipe,
    scratch: &Scratch,
) -> Result<Toolchain, BuildError> {
    let modules = scratch.folder("modules").map_err(at("create a folder in", scratch.path()))?;
    for (name, text) in &recipe.files {
        let path = modules.join(name);
        fs::write(&path, text).map_err(at("write", &path))?;
    }
    let mut go = ProgramRun::dying_with_parent("go", Duration::from_secs(300));
    go.command().args(["env", "GOVERSION"]).current_dir(&modules).env("GOWORK", "off");
    let version = go.stdout().map_err(|source| task.failed("ask go for its version", source))?;
    Ok(Toolchain { version: version.trim().to_owned(), modules })
}

/// Fetches, compiles and packs.
pub(super) fn make(
    task: &ComponentBuild<'_>,
    recipe: &GoRecipe,
    toolchain: &Toolchain,
    scratch: &Scratch,
    out: &Path,
) -> Result<Vec<Part>, BuildError> {
    task.report(BuildState::Fetching);
    let packages = fetch_all(task, recipe, toolchain, scratch)?;
    let groups = groups(task, recipe);
    let bin = scratch.folder("bin").map_err(at("create a folder in", scratch.path()))?;
    let mut compiled = BTreeSet::new();
    for (tags, programs) in &groups {
        let mut go = go_command(task, recipe, scratch, toolchain, COMPILE_LIMIT);
        go.command().args(["build", "-v"]).args(flags(tags)).arg("-trimpath");
        // The linker drops the debugging tables, so the compiler need not write them.
        go.command().arg("-gcflags=all=-dwarf=false");
        go.command().arg("-ldflags").arg(ldflags(recipe)).arg("-o").arg(format!("{}/", bin.display()));
        go.command().args(programs.iter().filter_map(|program| program.package.as_deref()));
        go.stderr_lines(|line| {
            let is_package = packages.contains(line);
            if is_package && compiled.insert(line.to_owned()) {
                let (done, total) = (compiled.len(), packages.len());
                task.report(if done < total {
                    BuildState::Building { done, total }
                } else {
                    BuildState::Linking
                });
            }
            is_package
        })
        .map_err(|source| task.failed("compile", source))?;
    }
    task.report(BuildState::Packing);
    let source = source(task, recipe, toolchain)?;
    let file = |program: &ProgramRecipe| {
        bin.join(executable_name(program.package.as_deref().unwrap_or(&program.name)))
    };
    parts::pack_all(task, out, &source, &file)
}

/// The programs that are compiled with the same tags.
fn groups<'a>(
    task: &ComponentBuild<'a>,
    recipe: &'a GoRecipe,
) -> BTreeMap<&'a [String], Vec<&'a ProgramRecipe>> {
    let mut groups: BTreeMap<&[String], Vec<&ProgramRecipe>> = BTreeMap::new();
    for program in task.component.parts.iter().flat_map(|part| &part.programs) {
        let tags = program.tags.as_deref().unwrap_or(&recipe.tags);
        groups.entry(tags).or_default().push(program);
    }
    groups
}

/// Downloads the component's modules and returns the packages that will be compiled.
pub(super) fn fetch_all(
    task: &ComponentBuild<'_>,
    recipe: &GoRecipe,
    toolchain: &Toolchain,
    scratch: &Scratch,
) -> Result<BTreeSet<String>, BuildError> {
    let mut packages = BTreeSet::new();
    for (tags, programs) in groups(task, recipe) {
        packages.extend(fetch(task, recipe, toolchain, scratch, tags, &programs)?);
    }
    Ok(packages)
}

/// Downloads the modules of programs with the same tags.
fn fetch(
    task: &ComponentBuild<'_>,
    recipe: &GoRecipe,
    toolchain: &Toolchain,
    scratch: &Scratch,
    tags: &[String],
    programs: &[&ProgramRecipe],
) -> Result<Vec<String>, BuildError> {
    let mut pauses = FETCH_PAUSES.iter();
    loop {
        let mut go = go_command(task, recipe, scratch, toolchain, FETCH_LIMIT);
        go.command().args(["list", "-deps"]).args(flags(tags));
        go.command().args(programs.iter().filter_map(|program| program.package.as_deref()));
        let error = match go.stdout() {
            // `unsafe` is built into the compiler and is not compiled.
            Ok(list) => {
                return Ok(list.lines().filter(|line| *line != "unsafe").map(str::to_owned).collect());
            }
            Err(error) => error,
        };
        match pauses.next() {
            Some(pause) if is_temporary(&error) && !pause.is_zero() => {
                tracing::warn!(component = task.component.name, %error, "fetching again in {} s", pause.as_secs());
                thread::sleep(*pause);
            }
            _ => return Err(task.failed("fetch the modules", error)),
        }
    }
}

/// Texts of errors that another attempt does not correct.
const PERMANENT_ERRORS: [&str; 5] =
    ["checksum mismatch", "SECURITY ERROR", "missing go.sum entry", "requires go >=", "GOPROXY=off"];

/// Whether another attempt may succeed. Another attempt does not correct a wrong checksum.
fn is_temporary(error: &ProgramError) -> bool {
    let ProgramError::Failed { stderr_tail, .. } = error else { return false };
    !PERMANENT_ERRORS.iter().any(|word| stderr_tail.contains(word))
}

/// `go` with the run's compile cache and the user's module cache, which is small and shared.
fn go_command(
    task: &ComponentBuild<'_>,
    recipe: &GoRecipe,
    scratch: &Scratch,
    toolchain: &Toolchain,
    limit: Duration,
) -> ProgramRun {
    let mut go = ProgramRun::dying_with_parent("go", limit).without_noise("go: downloading ");
    go.command()
        .current_dir(&toolchain.modules)
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("GOOS", "linux")
        .env("GOARCH", task.arch.name())
        .env("CGO_ENABLED", if recipe.cgo { "1" } else { "0" })
        .env("GOCACHE", task.compiled)
        // Garbage collection takes a third of the compiler's time, though most packages need little memory.
        .env("GOGC", "off")
        .env("GOMEMLIMIT", memory_for_a_compiler().to_string())
        .env("TMPDIR", scratch.path());
    if recipe.cgo && task.arch != Arch::native() {
        let triplet = task.arch.triplet();
        go.command()
            .env("CC", format!("{triplet}-gcc"))
            .env("PKG_CONFIG_LIBDIR", format!("/usr/lib/{triplet}/pkgconfig"));
    }
    go
}

/// Bytes after which a compiler starts to collect garbage: half of the memory divided by the number of cores, since one
/// compiler runs per core.
fn memory_for_a_compiler() -> u64 {
    let memory = rustix::system::sysinfo();
    let cores = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    memory.totalram * u64::from(memory.mem_unit) / 2 / cores
}

fn flags(tags: &[String]) -> [String; 3] {
    ["-mod=readonly".to_owned(), "-buildvcs=false".to_owned(), format!("-tags={}", tags.join(","))]
}

fn ldflags(recipe: &GoRecipe) -> String {
    let fixed = if recipe.cgo { "-s -w -extldflags=-static" } else { "-s -w" };
    format!("{fixed} {}", recipe.ldflags).trim().to_owned()
}

/// The file name that `go build` gives a package: its last element that is not a major version.
pub(super) fn executable_name(package: &str) -> &str {
    let is_major = |e: &&str| {
        e.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    package.rsplit('/').find(|element| !is_major(element)).unwrap_or(package)
}

fn source(
    task: &ComponentBuild<'_>,
    recipe: &GoRecipe,
    toolchain: &Toolchain,
) -> Result<PartSource, BuildError> {
    let sums = recipe.files.iter().find(|(name, _)| name == "go.sum").map_or("", |(_, text)| text.as_str());
    let modules = recipe.modules.iter().map(|path| {
        let (path, version) = (path.clone(), task.component.version.clone());
        let sum = sums.lines().find_map(|line| line.strip_prefix(&format!("{path} {version} ")));
        let sum = sum.map(str::to_owned).ok_or_else(|| BuildError::Unexpected {
            component: task.component.name.clone(),
            why: format!("the committed go.sum has no line for {path} {version}"),
        })?;
        Ok(GoModule { path, version, sum })
    });
    Ok(PartSource::GoModules {
        modules: modules.collect::<Result<_, BuildError>>()?,
        toolchain: toolchain.version.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_programs_as_go_does() {
        assert_eq!(executable_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(executable_name("github.com/containerd/containerd/v2/cmd/ctr"), "ctr");
        assert_eq!(executable_name("github.com/opencontainers/runc"), "runc");
        assert_eq!(executable_name("example.org/volume"), "volume");
    }

    #[test]
    fn finds_the_oldest_compiler_for_all_components() {
        let catalogue = crate::Catalogue::embedded().unwrap();
        let entry = catalogue.entry("v1.36.3".parse().unwrap()).unwrap();
        assert_eq!(oldest_go(entry), "1.26.6");
    }

    #[test]
    fn fetches_again_only_after_temporary_failures() {
        let failed = |stderr: &str| ProgramError::Failed {
            program: "go".into(),
            status: "1".into(),
            stderr_tail: stderr.into(),
        };
        assert!(is_temporary(&failed("dial tcp: i/o timeout")));
        assert!(!is_temporary(&failed("verifying x: checksum mismatch")));
    }
}
