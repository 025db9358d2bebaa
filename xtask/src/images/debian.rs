//! Layers of Debian packages, built once for each recipe; requires debootstrap and root. The lowest layer of the runner is
//! one: Debian with bash, Python and ssh, and, with python3 and pip, Ansible by the hashes in
//! `images/runner/requirements.txt`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use kubeon_bundle::pack::{self, Packed, TarContent, TarTree};
use kubeon_process::ProgramRun;

use super::archive::{description, parse_description, sha256};

/// The release with Python 3.11, for which the wheels are built; it does not depend on this machine.
const SUITE: &str = "bookworm";
pub(super) const PACKAGES: &str = "ca-certificates,openssh-client,python3";
/// Mount points of a Job, whose root file system may be read-only.
pub(super) const FOLDERS: [&str; 4] = ["conf", "auth", "bundle", "state"];
/// Time limit of one program: a mirror may be slow or not answer.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(1800);
/// Time limit for reading apt's mirror.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Programs of Ansible and their Python modules.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("ansible", "adhoc"),
    ("ansible-config", "config"),
    ("ansible-inventory", "inventory"),
    ("ansible-playbook", "playbook"),
    ("ansible-vault", "vault"),
];

/// Returns the layer of the runner, and builds it if the cache has none for its recipe.
pub(super) fn layer(root: &Path, cache: &Path, layers: &Path) -> Result<Packed> {
    let requirements = root.join("images/runner/requirements.txt");
    let trim = fs::read_to_string(root.join("images/runner/root.sh"))?;
    let parts = ["1", SUITE, PACKAGES, std::env::consts::ARCH, &fs::read_to_string(&requirements)?, &trim];
    cached(cache, layers, &parts, |folder| {
        crate::terminal::say(
            "building the lowest layer of the runner image with debootstrap and pip; it is cached by recipe",
        );
        bootstrap(folder, PACKAGES)?;
        ansible(folder, &requirements)?;
        inside(folder, &["sh", "-c", &trim])?;
        let mut tree = pack::tree(folder)?;
        add(&mut tree);
        Ok(tree)
    })
}

/// Returns a layer that depends only on the texts in `recipe`; the cache keeps it. `build` gets an empty folder and returns the
/// files of the layer. The layer also appears in the folder `layers`, named by its digest.
pub(crate) fn cached(
    cache: &Path,
    layers: &Path,
    recipe: &[&str],
    build: impl FnOnce(&Path) -> Result<TarTree>,
) -> Result<Packed> {
    let recipe = sha256(recipe.join("\n").as_bytes());
    let note = cache.join(format!("debian-{}.json", &recipe[..12]));
    let known = fs::read_to_string(&note).ok().and_then(|text| parse_description(&text));
    let stored = |layer: &Packed| cache.join(layer.digest.as_str());
    let layer = match known.filter(|layer| stored(layer).is_file()) {
        Some(layer) => layer,
        None => {
            let scratch = tempfile::Builder::new().prefix("debian-").tempdir_in(cache)?;
            let layer = pack::pack(&build(&scratch.path().join("root"))?, cache)?;
            fs::write(note, serde_json::to_string_pretty(&description(&layer))?)?;
            layer
        }
    };
    fs::hard_link(stored(&layer), layers.join(layer.digest.as_str()))?;
    Ok(layer)
}

/// Unpacks Debian with these packages (separated by commas) into a folder.
pub(crate) fn bootstrap(folder: &Path, packages: &str) -> Result<()> {
    let include = format!("--include={packages}");
    let mut debootstrap = contained("debootstrap");
    debootstrap.command().args(["--variant=minbase", &include, SUITE]).arg(folder).arg(mirror());
    debootstrap.stdout()?;
    Ok(())
}

/// Runs a program of the unpacked Debian in it.
pub(crate) fn inside(folder: &Path, command: &[&str]) -> Result<()> {
    let mut chroot = contained("chroot");
    chroot.command().arg(folder).args(command);
    chroot.stdout()?;
    Ok(())
}

fn ansible(folder: &Path, requirements: &Path) -> Result<()> {
    let target: PathBuf = folder.join("usr/lib/python3/dist-packages");
    let mut run = ProgramRun::dying_with_parent("python3", PROGRAM_TIMEOUT);
    let pip = run.command();
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--python-version", "3.11", "--disable-pip-version-check"]);
    for glibc in ["2014", "_2_17", "_2_28", "_2_34"] {
        pip.args(["--platform", &format!("manylinux{glibc}_{}", std::env::consts::ARCH)]);
    }
    pip.arg("--target").arg(target).arg("--requirement").arg(requirements);
    run.stdout()?;
    Ok(())
}

fn add(tree: &mut TarTree) {
    let text = |text: String, mode| TarContent::Bytes { bytes: text.into_bytes(), mode };
    for (program, module) in PROGRAMS {
        let script = format!(
            "#!/usr/bin/python3\nimport sys\n\nfrom ansible.cli.{module} import main\n\nsys.exit(main())\n"
        );
        tree.insert(format!("usr/local/bin/{program}"), text(script, 0o755));
    }
    // These scripts contain the path of the Python that runs pip.
    tree.retain(|path, _| !path.starts_with("usr/lib/python3/dist-packages/bin/"));
    tree.insert("tmp".to_owned(), TarContent::Directory { mode: 0o1777 });
    for name in FOLDERS {
        tree.insert(name.to_owned(), TarContent::Directory { mode: 0o755 });
    }
    pack::add_parents(tree);
}

/// The mirror that this machine's apt uses for the release, or Debian's own.
fn mirror() -> String {
    let mut apt = ProgramRun::new("apt-get", QUERY_TIMEOUT);
    apt.command().args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    apt.command().arg(format!("Codename: {SUITE}"));
    let targets = apt.stdout().unwrap_or_default();
    let mirror = targets.lines().find(|line| line.trim_end_matches('/').ends_with("/debian"));
    mirror.unwrap_or("http://deb.debian.org/debian").to_owned()
}

/// A program in its own mount and process namespaces. The kernel ends it with this process, even after
/// SIGKILL.
fn contained(program: &str) -> ProgramRun {
    let mut run = ProgramRun::new("setpriv", PROGRAM_TIMEOUT);
    run.command().args([
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--pid",
        "--mount-proc",
        "--fork",
        "--kill-child",
    ]);
    run.command().args(["--propagation=private", program]);
    run
}
