//! The lowest layer of the runner: Debian with bash, Python and ssh, and Ansible by the hashes in
//! `images/runner/requirements.txt`. Made once for a recipe; needs debootstrap, python3 with pip, and root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use kubeon_bundle::pack::{self, Packed, TarContent, TarTree};

use super::archive::{recall, remembered, sha256};

/// The release whose Python, 3.11, the wheels are for; whatever runs on the machine that builds.
const SUITE: &str = "bookworm";
pub(super) const PACKAGES: &str = "ca-certificates,openssh-client,python3";
/// Where a Job mounts what it is given: its root may be read-only.
pub(super) const FOLDERS: [&str; 4] = ["conf", "auth", "bundle", "state"];
/// Seconds that one program may take: a mirror may be slow, or silent for ever.
const LIMIT: &str = "1800";
/// Programs of Ansible and the modules that hold them.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("ansible", "adhoc"),
    ("ansible-config", "config"),
    ("ansible-inventory", "inventory"),
    ("ansible-playbook", "playbook"),
    ("ansible-vault", "vault"),
];

/// The layer, made if its recipe has none yet.
pub(super) fn layer(root: &Path, cache: &Path, layers: &Path) -> Result<Packed> {
    let requirements = root.join("images/runner/requirements.txt");
    let trim = fs::read_to_string(root.join("images/runner/root.sh"))?;
    let parts = ["1", SUITE, PACKAGES, std::env::consts::ARCH, &fs::read_to_string(&requirements)?, &trim];
    let recipe = sha256(parts.join("\n").as_bytes());
    let note = cache.join(format!("debian-{}.json", &recipe[..12]));
    let known = fs::read_to_string(&note).ok().and_then(|text| recall(&text));
    let kept = |layer: &Packed| cache.join(layer.digest.as_str());
    let layer = match known.filter(|layer| kept(layer).is_file()) {
        Some(layer) => layer,
        None => {
            let layer = make(cache, &requirements, &trim)?;
            fs::write(note, serde_json::to_string_pretty(&remembered(&layer))?)?;
            layer
        }
    };
    fs::hard_link(kept(&layer), layers.join(layer.digest.as_str()))?;
    Ok(layer)
}

fn make(cache: &Path, requirements: &Path, trim: &str) -> Result<Packed> {
    let scratch = tempfile::Builder::new().prefix("debian-").tempdir_in(cache)?;
    let folder = scratch.path().join("root");
    crate::say("making the runner's Debian, once for its recipe: debootstrap, then Ansible by hash");
    bootstrap(&folder)?;
    ansible(&folder, requirements)?;
    run(contained("chroot").arg(&folder).args(["sh", "-c", trim]))?;
    let mut tree = pack::tree(&folder)?;
    add(&mut tree);
    Ok(pack::pack(&tree, cache)?)
}

fn bootstrap(folder: &Path) -> Result<()> {
    let include = format!("--include={PACKAGES}");
    run(contained("debootstrap").args(["--variant=minbase", &include, SUITE]).arg(folder).arg(mirror()))
}

fn ansible(folder: &Path, requirements: &Path) -> Result<()> {
    let into: PathBuf = folder.join("usr/lib/python3/dist-packages");
    let mut pip = Command::new("timeout");
    pip.args(["--kill-after=10", LIMIT, "python3"]);
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--python-version", "3.11", "--disable-pip-version-check"]);
    for glibc in ["2014", "_2_17", "_2_28", "_2_34"] {
        pip.args(["--platform", &format!("manylinux{glibc}_{}", std::env::consts::ARCH)]);
    }
    run(pip.arg("--target").arg(into).arg("--requirement").arg(requirements))
}

fn add(tree: &mut TarTree) {
    let text = |text: String, mode| TarContent::Bytes { bytes: text.into_bytes(), mode };
    for (program, module) in PROGRAMS {
        let script = format!(
            "#!/usr/bin/python3\nimport sys\n\nfrom ansible.cli.{module} import main\n\nsys.exit(main())\n"
        );
        tree.insert(format!("usr/local/bin/{program}"), text(script, 0o755));
    }
    // Written by pip with the path of the Python that ran it.
    tree.retain(|path, _| !path.starts_with("usr/lib/python3/dist-packages/bin/"));
    tree.insert("tmp".to_owned(), TarContent::Directory { mode: 0o1777 });
    for name in FOLDERS {
        tree.insert(name.to_owned(), TarContent::Directory { mode: 0o755 });
    }
    pack::add_parents(tree);
}

/// The mirror that this machine's apt uses for the release, else Debian's own.
fn mirror() -> String {
    let asked = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            &format!("Codename: {SUITE}"),
        ])
        .output();
    let said = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mirror = said.lines().find(|line| line.trim_end_matches('/').ends_with("/debian"));
    mirror.unwrap_or("http://deb.debian.org/debian").to_owned()
}

/// A program with mounts and processes of its own that end with this one, however it ends.
fn contained(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--pid",
        "--mount-proc",
        "--fork",
        "--kill-child",
    ]);
    command.args(["--propagation=private", "timeout", "--kill-after=10", LIMIT, program]);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let last: Vec<&str> = said.lines().rev().take(15).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!("{command:?} failed ({})\n{}", output.status, last.join("\n"));
    }
    Ok(())
}
