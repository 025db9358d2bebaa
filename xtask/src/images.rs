//! `images`: builds the images of the operator, of the gateway, of the Jobs' runner and of a bundle as OCI archives, without
//! a container builder.
//!
//! ```text
//!   static programs     ─┐
//!   playbooks ───────────┼──► layers (tar + zstd, reproducible) ──► OUT/<name>.tar
//!   Debian, by recipe ───┘    Debian is cached by recipe
//! ```
//!
//! `kubeon image load OUT/<name>.tar CLUSTER` and `ctr images import` load them. `images/*/Dockerfile` build
//! the same images with a container builder; a test compares them.

pub(crate) mod archive;
pub(crate) mod debian;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use kubeon_api::Version;
use kubeon_bundle::pack::{self, Packed, TarContent, TarTree};
use kubeon_bundle::{Arch, BundleStore};

use archive::{ImageProcess, OciImage};

/// The folder of cargo's build results, by profile.
const TARGET: &str = "target/x86_64-unknown-linux-gnu";
/// The user and group of the processes in the images.
const NONROOT: &str = "65532:65532";

/// The programs of kubeon in an image, and its process.
struct Recipe {
    /// The paths of kubeon's programs in the image.
    programs: &'static [&'static str],
    process: ImageProcess,
}

static OPERATOR: Recipe = Recipe {
    programs: &["/kubeon-operator"],
    process: ImageProcess {
        user: NONROOT,
        environment: &["PATH=/"],
        entrypoint: &["/kubeon-operator"],
        command: &[],
        folder: "/",
    },
};
static GATEWAY: Recipe = Recipe {
    programs: &["/kubeon-gateway"],
    process: ImageProcess {
        user: NONROOT,
        environment: &["PATH=/"],
        entrypoint: &["/kubeon-gateway"],
        command: &[],
        folder: "/",
    },
};
static RUNNER: Recipe = Recipe {
    programs: &["/usr/local/bin/kubeon", "/usr/local/bin/kubeon-node", "/usr/local/bin/kubeon-runner"],
    process: ImageProcess {
        user: NONROOT,
        environment: &[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/tmp",
            "LANG=C.UTF-8",
            "ANSIBLE_CONFIG=/kubespray/ansible.cfg",
            "ANSIBLE_HOME=/tmp/.ansible",
            "ANSIBLE_REMOTE_USER=root",
        ],
        entrypoint: &["/usr/local/bin/kubeon-runner"],
        command: &[],
        folder: "/kubespray",
    },
};
static BUNDLE: Recipe = Recipe {
    programs: &["/kubeon-runner"],
    process: ImageProcess {
        user: NONROOT,
        environment: &["PATH=/"],
        entrypoint: &["/kubeon-runner", "copy", "/bundle", "/target"],
        command: &[],
        folder: "/",
    },
};

/// `cargo xtask images`.
#[derive(Args)]
pub(crate) struct Images {
    /// The folder of the archives.
    #[arg(long, value_name = "DIR", default_value = "target/images")]
    out: PathBuf,
    /// The images to build: operator, gateway, runner, bundle.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "operator,gateway,runner,bundle"
    )]
    only: Vec<String>,
    /// The Kubernetes version of the bundle; the bundle must exist.
    #[arg(long, value_name = "VERSION", default_value = "v1.36.3")]
    version: Version,
    /// The cargo profile: `release` as published, or `dev`, which compiles faster.
    #[arg(long, default_value = "release", value_parser = ["release", "dev"])]
    profile: String,
    /// Do not build the programs first.
    #[arg(long)]
    no_build: bool,
    /// The folder of the programs, which are not built [default: cargo's folder of the profile].
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Builds the images.
pub(crate) fn run(root: &Path, images: &Images) -> Result<()> {
    let known = ["operator", "gateway", "runner", "bundle"];
    if let Some(unknown) = images.only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("{unknown} is not an image; images are {}", known.join(", "));
    }
    if !images.no_build && images.programs.is_none() {
        programs(root, &images.profile)?;
    }
    let folder = if images.profile == "dev" { "debug" } else { &images.profile };
    let programs = images.programs.clone().unwrap_or_else(|| root.join(TARGET).join(folder));
    let names: Vec<&str> = images.only.iter().map(String::as_str).collect();
    build(root, programs, &names, Some(images.version), &images.out).map(drop)
}

/// Builds the named images of the programs in a folder; `bundle` is the version of that image. Returns their digests, such as
/// `sha256:…`, in the order of the names.
pub(crate) fn build(
    root: &Path,
    programs: PathBuf,
    names: &[&str],
    bundle: Option<Version>,
    out: &Path,
) -> Result<Vec<String>> {
    let store = BundleStore::from_env().context("cannot find the cache folder")?;
    let cache = store.cache().join("images");
    fs::create_dir_all(&cache)?;
    fs::create_dir_all(out)?;
    let layers = tempfile::Builder::new().prefix("layers-").tempdir_in(&cache)?;
    let factory = Factory { root, programs, cache, layers: layers.path() };
    let mut digests = Vec::new();
    for &name in names {
        let begin = Instant::now();
        let image = match name {
            "operator" => factory.program_image(kubeon_install::OPERATOR_IMAGE, &OPERATOR)?,
            "gateway" => factory.program_image(kubeon_install::GATEWAY_IMAGE, &GATEWAY)?,
            "runner" => factory.runner()?,
            _ => factory.bundle(&store, bundle.context("the image of a bundle needs its version")?)?,
        };
        let file = out.join(format!("kubeon-{name}.tar"));
        let digest = archive::write(std::slice::from_ref(&image), factory.layers, &file)?.concat();
        crate::terminal::say(&format!(
            "{}  sha256:{digest}  {:.1} MiB  {:.1} s  {}",
            file.display(),
            fs::metadata(&file)?.len() as f64 / 1_048_576.0,
            begin.elapsed().as_secs_f64(),
            image.names.join(" ")
        ));
        digests.push(format!("sha256:{digest}"));
    }
    Ok(digests)
}

fn programs(root: &Path, profile: &str) -> Result<()> {
    let packages = ["kubeon", "kubeon-node", "kubeon-runner", "kubeon-operator", "kubeon-gateway"];
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--profile", profile, "--bins"]).current_dir(root);
    packages.iter().for_each(|package| {
        cargo.args(["-p", package]);
    });
    if !cargo.status()?.success() {
        bail!("cargo failed to build the programs");
    }
    Ok(())
}

struct Factory<'a> {
    root: &'a Path,
    /// The folder of kubeon's programs.
    programs: PathBuf,
    /// The cache of layers that take long to build, by recipe.
    cache: PathBuf,
    /// The folder of the layers of this run.
    layers: &'a Path,
}

impl Factory<'_> {
    fn layer(&self, mut tree: TarTree) -> Result<Packed> {
        pack::add_parents(&mut tree);
        Ok(pack::pack(&tree, self.layers)?)
    }

    fn program(&self, name: &str) -> Result<TarContent> {
        let path = self.programs.join(name);
        if !path.is_file() {
            bail!("{} is missing: build it first", path.display());
        }
        Ok(TarContent::File { path, mode: 0o755 })
    }

    /// The files of kubeon's programs in an image.
    fn own(&self, recipe: &Recipe) -> Result<TarTree> {
        let entry = |&path: &&'static str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            Ok((path.trim_start_matches('/').to_owned(), self.program(name)?))
        };
        recipe.programs.iter().map(entry).collect()
    }

    /// The files that a static program may need: accounts, certificates, a folder for temporary files.
    fn bare() -> Result<TarTree> {
        let file = |bytes: Vec<u8>| TarContent::Bytes { bytes, mode: 0o644 };
        let certificates = "/etc/ssl/certs/ca-certificates.crt";
        let bundle =
            fs::read(certificates).with_context(|| format!("{certificates}: install ca-certificates"))?;
        Ok(TarTree::from([
            (
                "etc/passwd".to_owned(),
                file(
                    b"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
                        .into(),
                ),
            ),
            ("etc/group".to_owned(), file(b"root:x:0:\nnonroot:x:65532:\n".into())),
            ("etc/ssl/certs/ca-certificates.crt".to_owned(), file(bundle)),
            ("tmp".to_owned(), TarContent::Directory { mode: 0o1777 }),
        ]))
    }

    /// An image with one static program.
    fn program_image(&self, name: &str, recipe: &'static Recipe) -> Result<OciImage> {
        Ok(OciImage {
            names: vec![format!("docker.io/{name}")],
            layers: vec![self.layer(Self::bare()?)?, self.layer(self.own(recipe)?)?],
            process: &recipe.process,
        })
    }

    fn runner(&self) -> Result<OciImage> {
        let base = debian::layer(self.root, &self.cache, self.layers)?;
        let mut playbooks = TarTree::new();
        for (path, content) in pack::tree(&self.root.join("playbooks"))? {
            if !path.split('/').any(|name| name == "__pycache__" || name == ".ansible") {
                playbooks.insert(format!("kubespray/{path}"), content);
            }
        }
        Ok(OciImage {
            names: vec![format!("docker.io/{}", kubeon_install::RUNNER_IMAGE)],
            layers: vec![base, self.layer(playbooks)?, self.layer(self.own(&RUNNER)?)?],
            process: &RUNNER.process,
        })
    }

    fn bundle(&self, store: &BundleStore, version: Version) -> Result<OciImage> {
        let bundle = store.find(version, Arch::native())?;
        bundle.verify()?;
        let files = pack::tree(bundle.root())?.into_iter();
        let files = files.map(|(path, content)| (format!("bundle/{path}"), content)).collect();
        let mut copier = self.own(&BUNDLE)?;
        copier.insert("tmp".to_owned(), TarContent::Directory { mode: 0o1777 });
        Ok(OciImage {
            names: vec![format!(
                "docker.io/{}",
                kubeon_install::BUNDLE_IMAGE.replace("{version}", &version.to_string())
            )],
            layers: vec![self.layer(files)?, self.layer(copier)?],
            process: &BUNDLE.process,
        })
    }
}

#[cfg(test)]
mod tests;
