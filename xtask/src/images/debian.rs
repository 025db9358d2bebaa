//! The lowest layer of the runner: Debian with bash, Python and ssh, and Ansible by the hashes in
//! `images/runner/requirements.txt`. Built once for each recipe; requires debootstrap, python3 with pip, and
//! root.

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

/// Returns the layer, and builds it if the cache has none for its recipe.
pub(super) fn layer(root: &Path, cache: &Path, layers: &Path) -> Result<Packed> {
    let requirements = root.join("images/runner/requirements.txt");
    let trim = fs::read_to_string(root.join("images/runner/root.sh"))?;
    let parts = ["1", SUITE, PACKAGES, std::env::consts::ARCH, &fs::read_to_string(&requirements)?, &trim];
    let recipe = sha256(parts.join("\n").as_bytes());
    let note = cache.join(format!("debian-{}.json", &recipe[..12]));
    let known = fs::read_to_string(&note).ok().and_then(|text| parse_description(&text));
    let cached = |layer: &Packed| cache.join(layer.digest.as_str());
    let layer = match known.filter(|layer| cached(layer).is_file()) {
        Some(layer) => layer,
        None => {
            let layer = build(cache, &requirements, &trim)?;
            fs::write(note, serde_json::to_string_pretty(&description(&layer))?)?;
            layer
        }
    };
    fs::hard_link(cached(&layer), layers.join(layer.digest.as_str()))?;
    Ok(layer)
}

fn build(cache: &Path, requirements: &Path, trim: &str) -> Result<Packed> {
    let scratch = tempfile::Builder::new().prefix("debian-").tempdir_in(cache)?;
    let folder = scratch.path().join("root");
    crate::terminal::say(
        "building the lowest layer of the runner image with debootstrap and pip; it is cached by recipe",
    );
    bootstrap(&folder)?;
    ansible(&folder, requirements)?;
    let mut chroot = contained("chroot");
    chroot.command().arg(&folder).args(["sh", "-c", trim]);
    chroot.stdout()?;
    let mut tree = pack::tree(&folder)?;
    add(&mut tree);
    Ok(pack::pack(&tree, cache)?)
}

fn bootstrap(folder: &Path) -> Result<()> {
    let include = format!("--include={PACKAGES}");
    let mut debootstrap = contained("debootstrap");
    debootstrap.command().args(["--variant=minbase", &include, SUITE]).arg(folder).arg(mirror());
    debootstrap.stdout()?;
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
