//! `dist`: builds the files that people download.
//!
//! ```text
//!   kubeon-node, every architecture ──┐ attached
//!   kubeon, one architecture ◄────────┘ ──► kubeon-linux-<arch>
//!     of it: completions, man pages, list of crates (SPDX)
//!   with --images: images, chart, manifests with the digests of the images, which are attached to kubeon, too
//!   of all files: SHA256SUMS ──► SHA256SUMS.sig
//! ```
//!
//! Two builds of one commit give the same bytes: paths are mapped, archives have no times, and the time of C compilers is that
//! of the commit.

mod archive;
mod command;
mod compiler;
mod manifests;
mod sbom;
mod sums;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use kubeon_bundle::Arch;

use compiler::Compiler;

/// The most bytes of a program that people download.
const SIZE_LIMIT: u64 = 40 << 20;

/// `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Dist {
    /// The folder of the files.
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
    /// The architectures.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "amd64,arm64")]
    arch: Vec<Arch>,
    /// Sign SHA256SUMS with this OpenSSH private key (ssh-keygen -Y, namespace kubeon-dist).
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Also the images of operator, gateway and runner, and the chart.
    #[arg(long)]
    images: bool,
    /// The cargo profile: `release` as published, or `dev`, which compiles faster.
    #[arg(long, default_value = "release", value_parser = ["release", "dev"])]
    profile: String,
    /// Take the programs that cargo built before, as they are. For tests: such programs contain paths of this machine.
    #[arg(long)]
    no_build: bool,
}

impl Dist {
    /// The folder of the programs for an architecture.
    fn programs(&self, compiler: &Compiler<'_>, arch: Arch) -> Result<PathBuf> {
        if self.no_build {
            Ok(compiler.built_before(arch))
        } else {
            compiler.build(arch, &["kubeon", "kubeon-node"])
        }
    }
}

/// Builds the files.
pub(crate) fn run(root: &Path, dist: &Dist) -> Result<()> {
    let root = &fs::canonicalize(root)?;
    if dist.out.exists() {
        let is_ours = dist.out.starts_with("target") || dist.out.join(sums::SUMS).is_file();
        ensure!(is_ours, "{} exists and is not the folder of a release: remove it first", dist.out.display());
        fs::remove_dir_all(&dist.out).with_context(|| format!("cannot empty {}", dist.out.display()))?;
    }
    fs::create_dir_all(&dist.out)?;
    let out = &fs::canonicalize(&dist.out)?;
    ensure!(dist.arch.contains(&Arch::native()), "--arch must name {}, this machine's own", Arch::native());
    let compiler = Compiler::new(root, &dist.profile)?;
    let folders = dist.arch.iter().map(|arch| dist.programs(&compiler, *arch)).collect::<Result<Vec<_>>>()?;
    let nodes: Vec<(String, PathBuf)> = dist
        .arch
        .iter()
        .zip(&folders)
        .map(|(arch, folder)| (format!("kubeon-node-{arch}"), folder.join("kubeon-node")))
        .collect();
    let nodes: Vec<(&str, &Path)> =
        nodes.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
    for (arch, folder) in dist.arch.iter().zip(&folders) {
        let program = out.join(format!("kubeon-linux-{arch}"));
        kubeon_attachment::attach(&folder.join("kubeon"), &nodes, &program)?;
        check_size(&program, &dist.profile)?;
    }
    archive::documents(&out.join(format!("kubeon-linux-{}", Arch::native())), out)?;
    sbom::write(root, &compiler, &dist.arch, out)?;
    fs::copy(root.join("scripts/install"), out.join("install.sh"))?;
    if dist.images {
        let packages = ["kubeon", "kubeon-node", "kubeon-runner", "kubeon-operator", "kubeon-gateway"];
        let programs = compiler.build(Arch::native(), &packages)?;
        let names = ["operator", "gateway", "runner"];
        let digests = crate::images::build(root, programs, &names, None, out)?;
        let digests: Vec<(&str, &str)> =
            names.into_iter().zip(&digests).map(|(name, digest)| (name, digest.as_str())).collect();
        archive::chart(root, &digests, out)?;
        let file = manifests::write(&digests, out)?;
        let attached: Vec<_> =
            nodes.iter().copied().chain([(kubeon_install::IMAGE_DIGESTS, file.path())]).collect();
        for arch in &dist.arch {
            let program = out.join(format!("kubeon-linux-{arch}"));
            kubeon_attachment::attach(&program, &attached, &program)?;
        }
    }
    sums::write(out)?;
    if let Some(key) = &dist.key {
        sums::sign(out, key)?;
    }
    crate::terminal::say(fs::read_to_string(out.join(sums::SUMS))?.trim_end());
    Ok(())
}

fn check_size(program: &Path, profile: &str) -> Result<()> {
    let size = fs::metadata(program)?.len();
    crate::terminal::say(&format!("{}  {:.1} MiB", program.display(), size as f64 / 1_048_576.0));
    let is_small = size <= SIZE_LIMIT || profile == "dev";
    ensure!(is_small, "{} is larger than {} MiB", program.display(), SIZE_LIMIT >> 20);
    Ok(())
}
