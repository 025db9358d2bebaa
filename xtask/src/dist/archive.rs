//! Archives of the files that belong to a program, without times and owners.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

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

/// The chart, as helm packages it, with the digests of the images.
pub(super) fn chart(root: &Path, digests: &[(&str, &str)], out: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    must(Command::new("cp").arg("-R").arg(root.join("deploy/chart")).arg(scratch.path().join("kubeon")))?;
    let values = scratch.path().join("kubeon/values.yaml");
    fs::write(&values, pinned(&fs::read_to_string(&values)?, digests)?)?;
    let name = format!("kubeon-{}.tgz", env!("CARGO_PKG_VERSION"));
    pack(scratch.path(), &["kubeon"], &out.join(name))
}

/// The chart's values with the digests of its images.
fn pinned(values: &str, digests: &[(&str, &str)]) -> Result<String> {
    let mut lines: Vec<String> = values.lines().map(str::to_owned).collect();
    for (name, digest) in digests {
        let (repository, runner) =
            (format!("repository: kubeon/kubeon-{name}"), format!("- kubeon/kubeon-{name}:"));
        let at = lines.iter().position(|line| line.trim() == repository || line.starts_with(&runner));
        let at = at.with_context(|| format!("values.yaml of the chart does not name the image of {name}"))?;
        if lines[at].starts_with(&runner) {
            lines[at].push_str(&format!("@{digest}"));
            continue;
        }
        let after = lines[at..].iter_mut().find(|line| line.trim() == r#"digest: """#);
        let line = after
            .with_context(|| format!("values.yaml of the chart has no digest for the image of {name}"))?;
        *line = line.replace(r#""""#, digest);
    }
    Ok(lines.join("\n") + "\n")
}

/// Packs these entries of the folder.
pub(super) fn pack(folder: &Path, names: &[&str], archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u=rwX,go=rX", "--format=gnu", "--use-compress-program=gzip -n", "-cf"]).arg(archive);
    tar.arg("-C").arg(folder).args(names);
    must(&mut tar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_of_a_release_names_its_images_by_digest() {
        let values = include_str!("../../../deploy/chart/values.yaml");
        let digests = [("operator", "sha256:aa"), ("gateway", "sha256:bb"), ("runner", "sha256:cc")];
        let pinned = pinned(values, &digests).unwrap();
        let operator = "  repository: kubeon/kubeon-operator\n  tag: \"\"\n  digest: sha256:aa\n";
        let gateway = "    repository: kubeon/kubeon-gateway\n    tag: \"\"\n    digest: sha256:bb\n";
        let runner = concat!("- kubeon/kubeon-runner:v", env!("CARGO_PKG_VERSION"), "@sha256:cc\n");
        for part in [operator, gateway, runner] {
            assert!(pinned.contains(part), "{part} is not in\n{pinned}");
        }
        assert_eq!(pinned.lines().count(), values.lines().count());
        assert!(super::pinned("image: {}", &digests).is_err());
    }
}
