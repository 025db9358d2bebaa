//! Archives of the files that belong to a program, without times and owners.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::command::{must, output_of};

/// The shells and the names of their files, as their own folders expect them.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "kubeon"), ("zsh", "_kubeon"), ("fish", "kubeon.fish")];

/// Completions and man pages, which the program itself writes.
pub(super) fn documents(program: &Path, out: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let completions = scratch.path().join("completions");
    fs::create_dir(&completions)?;
    for (shell, name) in COMPLETIONS {
        let text = output_of(Command::new(program).args(["completion", shell]))?;
        fs::write(completions.join(name), text)?;
    }
    must(Command::new(program).arg("man-pages").arg(scratch.path().join("man")))?;
    pack(scratch.path(), &["completions"], &out.join("kubeon-completions.tar.gz"))?;
    pack(scratch.path(), &["man"], &out.join("kubeon-man.tar.gz"))
}

/// The chart, as helm packages it.
pub(super) fn chart(root: &Path, out: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    must(Command::new("cp").arg("-R").arg(root.join("deploy/chart")).arg(scratch.path().join("kubeon")))?;
    let name = format!("kubeon-{}.tgz", env!("CARGO_PKG_VERSION"));
    pack(scratch.path(), &["kubeon"], &out.join(name))
}

fn pack(folder: &Path, names: &[&str], archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u=rwX,go=rX", "--format=gnu", "--use-compress-program=gzip -n", "-cf"]).arg(archive);
    tar.arg("-C").arg(folder).args(names);
    must(&mut tar)
}
