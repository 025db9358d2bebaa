//! Components unpacked from packages of the distribution: a root file system with its own libraries, which runs on any
//! host. Nothing is installed on this machine and no package's script runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_process::{ProgramRun, find_on_path};

use super::component::ComponentBuild;
use super::error::{BuildError, at};
use super::progress::BuildState;
use crate::cache::Scratch;
use crate::catalogue::DebianRecipe;
use crate::manifest::DebianPackage;
use crate::pack::{self, TarContent, TarTree};
use crate::{Arch, Part, PartKind, PartSource, digest};

/// Time limit for reading package lists and libraries.
const QUERY_TIMEOUT: Duration = Duration::from_secs(120);
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(900);
const UNPACK_TIMEOUT: Duration = Duration::from_secs(300);

/// Options that make apt resolve for an empty machine and not write this machine's caches.
const EMPTY_MACHINE: [&str; 6] = [
    "-oDir::State::status=/dev/null",
    "-oDir::Cache::pkgcache=",
    "-oDir::Cache::srcpkgcache=",
    "-oDebug::NoLocking=1",
    "-oAPT::Install-Recommends=0",
    "-oAPT::Install-Suggests=0",
];

/// Options that make apt resolve for a machine of the architecture. The package lists of this machine must contain it.
fn of_arch(arch: Arch) -> [String; 2] {
    [format!("-oAPT::Architecture={arch}"), format!("-oAPT::Architectures::={arch}")]
}

/// The program that runs programs of another architecture on this machine.
fn emulator(arch: Arch) -> Option<&'static str> {
    match arch {
        Arch::Amd64 if arch != Arch::native() => Some("qemu-x86_64-static"),
        Arch::Arm64 if arch != Arch::native() => Some("qemu-aarch64-static"),
        Arch::Amd64 | Arch::Arm64 => None,
    }
}

/// Checks that this machine can ask the loader of another architecture for libraries.
pub(super) fn require_emulator(task: &ComponentBuild<'_>) -> Result<(), BuildError> {
    match emulator(task.arch).filter(|tool| find_on_path(tool).is_none()) {
        None => Ok(()),
        Some(tool) => Err(BuildError::MissingTool {
            component: task.component.name.clone(),
            tool: tool.to_owned(),
            package: "qemu-user-static".to_owned(),
        }),
    }
}

/// The recipe's packages and their dependencies, with the versions and digests of the distribution's signed index.
pub(super) fn resolve(
    task: &ComponentBuild<'_>,
    recipe: &DebianRecipe,
) -> Result<Vec<DebianPackage>, BuildError> {
    for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
        if find_on_path(tool).is_none() {
            return Err(BuildError::NotDebian { component: task.component.name.clone(), tool });
        }
    }
    require_emulator(task)?;
    let uris = print_uris(task.arch, &recipe.packages)
        .stdout()
        .map_err(|source| task.failed("resolve the packages", source))?;
    let mut exact: Vec<String> = uris
        .lines()
        .filter_map(package_of)
        .filter(|(name, _)| !recipe.excluded.contains(name))
        .map(joined)
        .collect();
    exact.sort();
    let mut cache = ProgramRun::dying_with_parent("apt-cache", QUERY_TIMEOUT);
    cache.command().args(["show", "--no-all-versions"]).args(&EMPTY_MACHINE[..3]);
    cache.command().args(of_arch(task.arch)).args(&exact);
    let stanzas = cache.stdout().map_err(|source| task.failed("read the packages' digests", source))?;
    let mut packages = Vec::new();
    for exact in &exact {
        let found = stanzas.split("\n\n").find_map(|stanza| package(stanza, exact));
        packages.push(found.ok_or_else(|| task.unexpected(format!("the index has no SHA-256 for {exact}")))?);
    }
    packages.sort();
    Ok(packages)
}

/// The command that prints the packages to download, with their dependencies, as if nothing were installed.
fn print_uris(arch: Arch, packages: &[String]) -> ProgramRun {
    let mut apt = ProgramRun::dying_with_parent("apt-get", QUERY_TIMEOUT);
    apt.command().args(["install", "--print-uris", "-qq", "-y"]).args(EMPTY_MACHINE).args(of_arch(arch));
    apt.command().args(packages);
    apt
}

/// `'http://…/zlib1g_1%3a1.2.13_amd64.deb' zlib1g_1%3a1.2.13_amd64.deb 86684 MD5Sum:…` is (`zlib1g`, `1:1.2.13`).
fn package_of(line: &str) -> Option<(String, String)> {
    let file = line.split_whitespace().nth(1)?;
    let mut fields = file.strip_suffix(".deb")?.split('_');
    Some((fields.next()?.to_owned(), fields.next()?.replace("%3a", ":")))
}

fn joined((name, version): (String, String)) -> String {
    format!("{name}={version}")
}

fn package(stanza: &str, exact: &str) -> Option<DebianPackage> {
    let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let (name, version) = (field("Package")?, field("Version")?);
    if format!("{name}={version}") != exact {
        return None;
    }
    Some(DebianPackage {
        name: name.to_owned(),
        version: version.to_owned(),
        sha256: field("SHA256")?.parse().ok()?,
    })
}

/// Downloads, checks, unpacks and packs.
pub(super) fn make(
    task: &ComponentBuild<'_>,
    recipe: &DebianRecipe,
    packages: Vec<DebianPackage>,
    scratch: &Scratch,
    out: &Path,
) -> Result<Vec<Part>, BuildError> {
    task.report(BuildState::Fetching);
    let files = download(task, &packages, scratch)?;
    let root = scratch.folder("root").map_err(at("create a folder in", scratch.path()))?;
    for (done, file) in files.iter().enumerate() {
        task.report(BuildState::Building { done, total: files.len() });
        let mut dpkg = ProgramRun::dying_with_parent("dpkg-deb", UNPACK_TIMEOUT);
        dpkg.command().arg("-x").arg(file).arg(&root);
        dpkg.stdout().map_err(|source| task.failed("unpack a package", source))?;
    }
    pack_root(task, recipe, &packages, &root, out)
}

/// Packs the unpacked packages.
pub(super) fn pack_root(
    task: &ComponentBuild<'_>,
    recipe: &DebianRecipe,
    packages: &[DebianPackage],
    root: &Path,
    out: &Path,
) -> Result<Vec<Part>, BuildError> {
    task.report(BuildState::Packing);
    let mut tree = pack::tree(root).map_err(at("read", root))?;
    prune(&mut tree, recipe);
    add(&mut tree, recipe);
    let lead = recipe.packages.first().and_then(|lead| packages.iter().find(|package| package.name == *lead));
    let version = lead.map_or_else(|| task.component.version.clone(), |package| package.version.clone());
    let mut parts = Vec::new();
    for part in &task.component.parts {
        let programs: Vec<String> = part.programs.iter().map(|program| program.name.clone()).collect();
        for program in &programs {
            check_program(task, root, &tree, program)?;
        }
        let source = PartSource::Debian { packages: packages.to_vec() };
        let packed = pack::pack(&tree, out).map_err(at("pack into", out))?;
        parts.push(packed.part(&part.name, PartKind::Rootfs, &version, programs, source));
    }
    Ok(parts)
}

fn download(
    task: &ComponentBuild<'_>,
    packages: &[DebianPackage],
    scratch: &Scratch,
) -> Result<Vec<PathBuf>, BuildError> {
    let folder = scratch.folder("packages").map_err(at("create a folder in", scratch.path()))?;
    let mut apt = ProgramRun::dying_with_parent("apt-get", DOWNLOAD_TIMEOUT);
    // apt's own unprivileged user cannot write into a folder with mode 0700.
    apt.command()
        .args(["download", "-qq", "-oAPT::Sandbox::User=root", "-oAcquire::Retries=3"])
        .args(&EMPTY_MACHINE[1..4])
        .args(of_arch(task.arch));
    apt.command().args(packages.iter().map(|p| format!("{}={}", p.name, p.version))).current_dir(&folder);
    apt.stdout().map_err(|source| task.failed("download the packages", source))?;
    let mut by_digest = std::collections::BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(at("read", &folder))? {
        let path = entry.map_err(at("read", &folder))?.path();
        by_digest.insert(digest::of_file(&path).map_err(at("read", &path))?.0, path);
    }
    let file = |package: &DebianPackage| {
        let text =
            || format!("the downloaded {} {} does not have its SHA-256", package.name, package.version);
        by_digest.get(&package.sha256).cloned().ok_or_else(|| task.unexpected(text()))
    };
    packages.iter().map(file).collect()
}

/// Removes the entries that the recipe excludes, and the folders that become empty.
fn prune(tree: &mut TarTree, recipe: &DebianRecipe) {
    let is_below = |path: &str, top: &str| {
        path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    tree.retain(|path, content| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let included =
            matches!(content, TarContent::Directory { .. }) || recipe.keep.iter().any(|keep| keep == name);
        included || !recipe.prune.iter().any(|top| is_below(path, top))
    });
    let full: std::collections::BTreeSet<String> = tree
        .iter()
        .filter(|(_, content)| !matches!(content, TarContent::Directory { .. }))
        .flat_map(|(path, _)| {
            path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect::<Vec<_>>()
        })
        .collect();
    tree.retain(|path, content| !matches!(content, TarContent::Directory { .. }) || full.contains(path));
}

fn add(tree: &mut TarTree, recipe: &DebianRecipe) {
    for path in &recipe.directories {
        // Every user may write to /tmp.
        let mode = if path == "tmp" { 0o1777 } else { 0o755 };
        tree.insert(path.clone(), TarContent::Directory { mode });
    }
    for (path, target) in &recipe.links {
        tree.insert(path.clone(), TarContent::Link(target.clone()));
    }
    for (path, text) in &recipe.files {
        tree.insert(path.clone(), TarContent::Bytes { bytes: text.clone().into_bytes(), mode: 0o644 });
    }
    pack::add_parents(tree);
}

/// Checks that the program exists and that its loader finds every library inside the root file system.
fn check_program(
    task: &ComponentBuild<'_>,
    root: &Path,
    tree: &TarTree,
    program: &str,
) -> Result<(), BuildError> {
    let mut path = program.to_owned();
    if let Some(TarContent::Link(target)) = tree.get(program) {
        let folder = program.rsplit_once('/').map_or("", |(folder, _)| folder);
        // Links of packages are absolute (alternatives), links of recipes are relative.
        path = target.strip_prefix('/').map_or_else(|| format!("{folder}/{target}"), str::to_owned);
    }
    if !matches!(tree.get(&path), Some(TarContent::File { .. })) {
        return Err(task.unexpected(format!("{program} is not in the packages")));
    }
    let triplet = task.arch.triplet();
    let folders =
        [format!("lib/{triplet}"), format!("usr/lib/{triplet}")].map(|f| root.join(f).display().to_string());
    let loader = root.join(task.arch.loader());
    let emulator = emulator(task.arch);
    let mut list = ProgramRun::dying_with_parent(emulator.map_or(loader.as_path(), Path::new), QUERY_TIMEOUT);
    list.command()
        .args(emulator.map(|_| &loader))
        .args(["--inhibit-cache", "--library-path", &folders.join(":"), "--list"])
        .arg(root.join(&path));
    let libraries = list.stdout().map_err(|source| task.failed("list a program's libraries", source))?;
    let outside = |line: &&str| {
        line.contains("not found") || (line.contains("=>") && !line.contains(&root.display().to_string()))
    };
    match libraries.lines().find(outside) {
        None => Ok(()),
        Some(line) => Err(task.unexpected(format!("{program} lacks a library: {}", line.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_output_of_apt() {
        let line = "'http://deb.debian.org/d/zlib1g_1.2_amd64.deb' zlib1g_1%3a1.2.13.dfsg-1_amd64.deb 86684 MD5Sum:ec";
        assert_eq!(package_of(line).unwrap(), ("zlib1g".into(), "1:1.2.13.dfsg-1".into()));
        assert_eq!(package_of("Reading package lists"), None);
        let sum = "9".repeat(64);
        let stanza = format!("Package: zlib1g\nVersion: 1:1.2\nDescription-md5: x\nSHA256: {sum}");
        assert_eq!(package(&stanza, "zlib1g=1:1.2").unwrap().sha256.as_str(), sum);
        assert_eq!(package(&stanza, "zlib1g=1:1.3"), None);
    }

    #[test]
    fn packages_that_are_installed_are_listed_too() {
        let uris = print_uris(Arch::native(), &["libc6".to_owned()]).stdout().unwrap();
        let names: Vec<String> = uris.lines().filter_map(package_of).map(|(name, _)| name).collect();
        assert!(names.contains(&"libc6".to_owned()), "{uris}");
    }

    #[test]
    fn prunes_folders_but_keeps_licences() {
        let file = || TarContent::Bytes { bytes: Vec::new(), mode: 0o644 };
        let mut tree = TarTree::new();
        for path in ["usr/share/doc/a/copyright", "usr/share/doc/a/README", "usr/share/docx", "etc/init.d/a"]
        {
            tree.insert(path.to_owned(), file());
        }
        pack::add_parents(&mut tree);
        let recipe = DebianRecipe {
            packages: vec![],
            excluded: vec![],
            prune: vec!["usr/share/doc".into(), "etc/init.d".into()],
            keep: vec!["copyright".into()],
            directories: vec!["proc".into()],
            links: Default::default(),
            files: Default::default(),
        };
        prune(&mut tree, &recipe);
        add(&mut tree, &recipe);
        let left: Vec<&str> = tree.keys().map(String::as_str).collect();
        let wanted = [
            "proc",
            "usr",
            "usr/share",
            "usr/share/doc",
            "usr/share/doc/a",
            "usr/share/doc/a/copyright",
            "usr/share/docx",
        ];
        assert_eq!(left, wanted);
    }
}
