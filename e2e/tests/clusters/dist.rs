//! What a stranger downloads: one file, verified, installed alone in an empty folder, makes a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{Answer, folder, must, run};
use kubeon_e2e::published::OfficialServers;
use serde_json::Value;

/// The file that is installed on this machine.
const PROGRAM: &str = "kubeon-linux-amd64";
/// The folders of the system's programs, without those of cargo, Go and this test.
const SYSTEM_PATH: (&str, &str) = ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");

#[test]
fn one_downloaded_file_makes_a_cluster() -> Result<()> {
    let lab = TestLab::up("e2e-dist", 2)?;
    let release = Release::build(&lab)?;
    release.is_complete()?;
    release.refuses_what_is_not_published(&lab)?;
    let kubeon = Alone { program: release.install(&lab)?, lab: &lab };
    runs_alone(&lab, &kubeon.program)?;
    let servers = official_servers(&lab)?;
    let begin = Instant::now();
    kubeon.takes_the_official_releases(&servers)?;
    kubeon.makes_a_cluster()?;
    print_time("from the downloaded file to a running pod", begin);
    kubeon.refuses_a_lying_server(&servers)
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn print_time(what: &str, begin: Instant) {
    eprintln!("  {what}: {:.0} s", begin.elapsed().as_secs_f64());
}

/// The servers of the official releases, with the programs of the bundle that this machine built.
fn official_servers(lab: &TestLab) -> Result<OfficialServers> {
    let listed: Value = serde_json::from_str(&lab.must(&["bundle", "ls", "-o", "json"])?)?;
    let bundle = listed.as_array().context("no list")?.iter().find(|bundle| bundle["version"] == VERSION);
    let folder = bundle.and_then(|bundle| bundle["folder"].as_str()).context("the bundle is not built")?;
    OfficialServers::of_bundle(Path::new(folder), &lab.file("official"))
}

/// The published files, and who signed them.
struct Release {
    files: PathBuf,
    signers: PathBuf,
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Release {
    fn build(lab: &TestLab) -> Result<Self> {
        let (files, key, signers) = (lab.file("release"), lab.file("release-key"), lab.file("signers"));
        must("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", text(&key)], &[])?;
        let public = fs::read_to_string(key.with_extension("pub"))?;
        fs::write(&signers, format!("release@kubeon {public}"))?;
        // The same steps as for a release; only the programs are those that the tests compiled.
        let options =
            ["--profile", "dev", "--no-build", "--arch", "amd64", "--out", text(&files), "--key", text(&key)];
        must(folder().join("xtask"), &[&["dist"], &options[..]].concat(), &[])?;
        Ok(Self { files, signers })
    }

    fn is_complete(&self) -> Result<()> {
        let sums = fs::read_to_string(self.files.join("SHA256SUMS"))?;
        for name in
            [PROGRAM, "kubeon-completions.tar.gz", "kubeon-man.tar.gz", "kubeon.spdx.json", "install.sh"]
        {
            ensure!(sums.contains(&format!("  {name}\n")), "{name} is missing in\n{sums}");
        }
        let checked = Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(&self.files)
            .output()?;
        ensure!(checked.status.success(), "{checked:?}");
        let pages = must("tar", &["-tzf", text(&self.files.join("kubeon-man.tar.gz"))], &[])?;
        ensure!(pages.contains("man/kubeon.1\n") && pages.contains("man/kubeon-create.1\n"), "{pages}");
        let bill: Value = serde_json::from_str(&fs::read_to_string(self.files.join("kubeon.spdx.json"))?)?;
        let packages = bill["packages"].as_array().context("no packages")?;
        for name in ["kubeon", "russh", "tokio"] {
            ensure!(
                packages.iter().any(|package| package["name"] == name),
                "{name} is missing in the bill of materials"
            );
        }
        Ok(())
    }

    /// Runs the installer as a person does, with the files of a folder.
    fn installer(&self, files: &Path, signers: &Path, target: &Path) -> Result<Answer> {
        let url = format!("file://{}", files.display());
        let environment = [("KUBEON_URL", url.as_str()), ("KUBEON_SIGNERS", text(signers))];
        run(files.join("install.sh"), &[text(target)], &environment)
    }

    fn install(&self, lab: &TestLab) -> Result<PathBuf> {
        let target = lab.file("alone");
        let installed = self.installer(&self.files, &self.signers, &target)?;
        ensure!(installed.code == 0, "{installed:?}");
        ensure!(names_in(&target)? == ["kubeon"], "{:?}", names_in(&target)?);
        Ok(target.join("kubeon"))
    }

    /// A changed program, a changed list and a strange signer: nothing is installed.
    fn refuses_what_is_not_published(&self, lab: &TestLab) -> Result<()> {
        let (changed, target) = (lab.file("changed"), lab.file("nothing"));
        let copy = || -> Result<()> {
            must("rm", &["-rf", text(&changed)], &[])?;
            must("cp", &["-R", text(&self.files), text(&changed)], &[]).map(drop)
        };
        copy()?;
        append(&changed.join(PROGRAM), b"x")?;
        self.refused(&changed, &self.signers, &target, "instead of")?;
        copy()?;
        append(&changed.join("SHA256SUMS"), b"\n")?;
        self.refused(&changed, &self.signers, &target, "signature")?;
        let strangers = lab.file("strangers");
        must("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", text(&lab.file("other"))], &[])?;
        fs::write(&strangers, format!("other {}", fs::read_to_string(lab.file("other.pub"))?))?;
        self.refused(&self.files, &strangers, &target, "signed by none")?;
        fs::remove_file(changed.join("SHA256SUMS.sig"))?;
        self.refused(&changed, &self.signers, &target, "cannot download")
    }

    fn refused(&self, files: &Path, signers: &Path, target: &Path, why: &str) -> Result<()> {
        let answer = self.installer(files, signers, target)?;
        ensure!(answer.code == 1 && answer.err.contains(why), "{why:?} is expected in {answer:?}");
        ensure!(!target.exists(), "{} exists", target.display());
        Ok(())
    }
}

fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let content = fs::read(path)?;
    Ok(fs::write(path, [&content, bytes].concat())?)
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Commands that need nothing beside the file, in an empty home.
fn runs_alone(lab: &TestLab, kubeon: &Path) -> Result<()> {
    let home = lab.file("empty-home");
    fs::create_dir(&home)?;
    let environment = [("HOME", text(&home)), SYSTEM_PATH];
    for arguments in [&["version"][..], &["view", "support"], &["completion", "bash"], &["ls"], &["--help"]] {
        must(kubeon, arguments, &environment)?;
    }
    let version: Value = serde_json::from_str(&must(kubeon, &["version", "-o", "json"], &environment)?)?;
    ensure!(
        version["attached"]["kubeon-node-amd64"].as_str().is_some_and(|digest| digest.len() == 64),
        "{version}"
    );
    Ok(())
}

/// The installed program, without anything of the workspace.
struct Alone<'a> {
    program: PathBuf,
    lab: &'a TestLab,
}

impl Alone<'_> {
    /// Runs it with an empty cache. The servers of the official releases are trusted.
    fn run(&self, arguments: &[&str]) -> Result<Answer> {
        let own = self.lab.environment();
        let (cache, trusted) = (self.lab.file("empty-cache"), self.lab.file("official/cert.pem"));
        let mut environment: Vec<(&str, &str)> =
            own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.extend([("KUBEON_CACHE", text(&cache)), ("SSL_CERT_FILE", text(&trusted)), SYSTEM_PATH]);
        run(&self.program, arguments, &environment)
    }

    fn must(&self, arguments: &[&str]) -> Result<String> {
        let answer = self.run(arguments)?;
        ensure!(answer.code == 0, "{arguments:?}: {answer:?}");
        Ok(answer.out)
    }

    fn takes_the_official_releases(&self, servers: &OfficialServers) -> Result<()> {
        let begin = Instant::now();
        self.must(&["bundle", "build", VERSION, "--from", &servers.address()])?;
        print_time("bundle of the official releases", begin);
        let bundle: Value = serde_json::from_str(&self.must(&["bundle", "inspect", VERSION, "-o", "json"])?)?;
        ensure!(
            bundle.to_string().contains("https://dl.k8s.io/release/"),
            "the authors' addresses are recorded: {bundle}"
        );
        self.must(&["bundle", "verify", VERSION]).map(drop)
    }

    /// The hosts get the node program that is in the file; a pod runs.
    fn makes_a_cluster(&self) -> Result<()> {
        let lab = self.lab;
        self.must(&lab.create(lab.name(), 1))?;
        let version: Value = serde_json::from_str(&self.must(&["version", "-o", "json"])?)?;
        let wanted = version["attached"]["kubeon-node-amd64"].as_str().context("no node program")?;
        for host in ["h1", "h2"] {
            let current = lab.on(host, "readlink /var/lib/kubeon/node/current")?;
            ensure!(current.trim() == format!("kubeon-node-{wanted}"), "{host} runs {current}");
        }
        self.must(&["use", lab.name()])?;
        lab.load_client(lab.name())?;
        lab.apply(lab.name(), &kubeon_e2e::image::pod("first", None))?;
        lab.kubectl(lab.name(), &["wait", "pod/first", "--for=condition=Ready", "--timeout=60s"])?;
        let plan = self.run(&["plan", lab.name()])?;
        ensure!(plan.code == 0 && (plan.out.clone() + &plan.err).contains("nothing to do"), "{plan:?}");
        self.must(&["destroy", lab.name(), "--yes"]).map(drop)
    }

    /// A file that is not the published one: the error names it and both digests, and the existing bundle stays.
    fn refuses_a_lying_server(&self, servers: &OfficialServers) -> Result<()> {
        let address = format!("dl.k8s.io/release/{VERSION}/bin/linux/amd64/kubelet");
        append(&servers.file(&address), b"x")?;
        must("rm", &["-rf", text(&self.lab.file("empty-cache/components"))], &[])?;
        let answer = self.run(&["bundle", "build", VERSION, "--from", &servers.address(), "--refresh"])?;
        ensure!(answer.code == 1, "{answer:?}");
        for wanted in ["kubelet has the SHA-256", "is published", "--from"] {
            ensure!(answer.err.contains(wanted), "{wanted:?} is missing in\n{}", answer.err);
        }
        self.must(&["bundle", "verify", VERSION])?;
        let left = fs::read_dir(self.lab.file("empty-cache/downloads"))?.count();
        ensure!(left == 0, "{left} downloads stay");
        Ok(())
    }
}

/// The published files themselves: both architectures run, are small, and a build elsewhere has the same digests.
#[test]
#[ignore = "half an hour: compiles release programs four times"]
fn soak_two_builds_of_a_release_have_the_same_digests() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (folder.path().join("first"), folder.path().join("another-path"));
    let (sums, again) = (release_of_a_clone(&first)?, release_of_a_clone(&second)?);
    ensure!(sums == again, "two builds differ:\n{sums}\n{again}");
    let arm64 = first.join("target/dist/kubeon-linux-arm64");
    let version = must("qemu-aarch64-static", &[text(&arm64), "version", "-o", "json"], &[])?;
    let version: Value = serde_json::from_str(&version)?;
    ensure!(version["architecture"] == "aarch64", "{version}");
    for arch in ["amd64", "arm64"] {
        ensure!(version["attached"][format!("kubeon-node-{arch}")].is_string(), "{version}");
    }
    ensure!(version["commit"].as_str().is_some_and(|commit| commit.len() == 40), "{version}");
    Ok(())
}

/// Builds the release of the newest commit in a clone of its own; returns `SHA256SUMS`.
fn release_of_a_clone(clone: &Path) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    must("git", &["clone", "--quiet", text(&root), text(clone)], &[])?;
    let built = Command::new("cargo").args(["xtask", "dist"]).current_dir(clone).status()?;
    ensure!(built.success(), "cargo xtask dist failed");
    Ok(fs::read_to_string(clone.join("target/dist/SHA256SUMS"))?)
}
