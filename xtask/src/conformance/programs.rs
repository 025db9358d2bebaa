//! The programs of the conformance tests, compiled from their Go modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_api::Version;
use kubeon_bundle::BundleStore;
use kubeon_process::ProgramRun;
use sha2::{Digest as _, Sha256};

/// Time limit of one compilation: e2e.test has most packages of Kubernetes.
const COMPILE_LIMIT: Duration = Duration::from_secs(3600);
const QUERY_LIMIT: Duration = Duration::from_secs(60);

/// A folder of `conformance/` with a `go.mod`, and what is compiled from it.
struct Module {
    folder: &'static str,
    packages: &'static [&'static str],
    /// Packages whose tests are compiled, and the file names of the programs.
    tests: &'static [(&'static str, &'static str)],
}

/// In the folder of a Kubernetes version.
const MODULES: [Module; 2] = [
    Module {
        folder: "tests",
        packages: &[
            "github.com/onsi/ginkgo/v2/ginkgo",
            "k8s.io/kubernetes/test/images/agnhost",
            "k8s.io/kubernetes/test/images/nonewprivs",
        ],
        tests: &[("k8s.io/kubernetes/test/e2e", "e2e.test")],
    },
    Module { folder: "sample-apiserver", packages: &["k8s.io/sample-apiserver"], tests: &[] },
];

/// The compiled programs of one Kubernetes version.
pub(super) struct TestPrograms {
    folder: PathBuf,
    modules: PathBuf,
}

impl TestPrograms {
    /// Compiles the programs unless the cache has them for the same module files.
    pub(super) fn ensure(root: &Path, version: Version) -> Result<Self> {
        let modules = root.join("conformance").join(version.to_string());
        ensure!(
            modules.is_dir(),
            "there are no module files of the tests of {version}; conformance/ has {}",
            known(root)?.join(", ")
        );
        let cache =
            BundleStore::from_env().context("cannot find the cache folder")?.cache().join("conformance");
        fs::create_dir_all(&cache)?;
        let folder = cache.join(format!("programs-{version}-{}", &recipe(&modules)?[..12]));
        let programs = Self { folder, modules };
        if !programs.folder.is_dir() {
            programs.compile(version, &cache)?;
        }
        Ok(programs)
    }

    /// The folder of the programs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A program by its file name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// All images that any test uses, by their full names.
    pub(super) fn images(&self) -> Result<Vec<String>> {
        let mut list = ProgramRun::dying_with_parent(self.path("e2e.test"), QUERY_LIMIT);
        list.command().args(["--list-images"]);
        Ok(list.stdout()?.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// A file of the sources of Kubernetes.
    pub(super) fn source(&self, path: &str) -> Result<PathBuf> {
        let mut go = go("list", &self.modules.join(MODULES[0].folder), QUERY_LIMIT);
        go.command().args(["-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]);
        Ok(Path::new(go.stdout()?.trim()).join(path))
    }

    /// The folder appears by a rename, complete.
    fn compile(&self, version: Version, cache: &Path) -> Result<()> {
        let begin = Instant::now();
        crate::terminal::say(&format!(
            "compiling the tests of Kubernetes {version}; they are cached by their module files"
        ));
        let scratch = tempfile::Builder::new().prefix("programs-").tempdir_in(cache)?;
        for module in &MODULES {
            let folder = self.modules.join(module.folder);
            let ldflags = format!("-s -w -X k8s.io/component-base/version.gitVersion={version}");
            let flags = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false"];
            let mut build = go("build", &folder, COMPILE_LIMIT);
            build.command().args(flags).args(["-ldflags", &ldflags, "-o"]);
            build.command().arg(format!("{}/", scratch.path().display())).args(module.packages);
            build.stdout()?;
            for (package, name) in module.tests {
                let mut test = go("test", &folder, COMPILE_LIMIT);
                test.command().args(["-c", "-vet=off"]).args(flags).args(["-ldflags", &ldflags, "-o"]);
                test.command().arg(scratch.path().join(name)).arg(package);
                test.stdout()?;
            }
        }
        crate::terminal::say(&format!("compiled in {:.0} s", begin.elapsed().as_secs_f64()));
        fs::rename(scratch.keep(), &self.folder)?;
        Ok(())
    }
}

fn go(command: &str, folder: &Path, limit: Duration) -> ProgramRun {
    let mut go = ProgramRun::dying_with_parent("go", limit).without_noise("go: downloading ");
    go.command().arg(command).current_dir(folder);
    go.command().env("GOFLAGS", "").env("GOWORK", "off").env("CGO_ENABLED", "0");
    go
}

/// The versions whose module files are committed.
fn known(root: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(root.join("conformance"))?.collect::<Result<Vec<_>, _>>()?;
    let folders = entries.into_iter().filter(|entry| entry.path().is_dir());
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Hash of the module files.
fn recipe(modules: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for module in &MODULES {
        for file in ["go.mod", "go.sum"] {
            let path = modules.join(module.folder).join(file);
            hash.update(fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    Ok(hex::encode(hash.finalize()))
}
