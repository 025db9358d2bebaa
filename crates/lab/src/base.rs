//! The base root file system: built once by debootstrap, cached under the hash of its recipe, shared read-only by
//! all hosts of all labs. It contains no program of Kubernetes. nft, iptables and conntrack come from the distribution, as on
//! most hosts. A bundle provides them on hosts that lack them; tests remove them from a host to check this.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use crate::{
    Error, LabName, LabProgress, Places, Result,
    state::make_dir,
    tool::{self, Tool},
};

const PACKAGES: &str = "systemd,systemd-sysv,dbus,openssh-server,iproute2,iptables,nftables,ipset,conntrack,ethtool,\
    socat,ca-certificates,procps,kmod,curl,python3-minimal,sudo,iputils-ping";
const CUSTOMIZE: &str = concat!(include_str!("base.sh"), include_str!("users.sh"), include_str!("pam.sh"));
/// Time limit for a build, and for the wait until another command has built it.
pub(crate) const BUILD_TIMEOUT: Duration = Duration::from_secs(20 * 60);
const MIRROR: &str = "http://deb.debian.org/debian";

/// Returns the path of the base root file system and builds it if it is not in the cache.
pub(crate) fn ensure(places: &Places, lab: &LabName, progress: &dyn Fn(LabProgress)) -> Result<PathBuf> {
    let suite = suite(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    cached(places, &format!("base-{}", recipe(&suite)), progress, |new| {
        tool::check(&[("debootstrap", "debootstrap"), ("chroot", "coreutils")])?;
        build(new, lab, &suite, progress)
    })
}

/// Returns the folder of this name in the cache and calls `build` with an absent path for it if it is not there. Of several
/// commands only one builds; the others wait.
pub(crate) fn cached(
    places: &Places,
    name: &str,
    progress: &dyn Fn(LabProgress),
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let path = places.cache.join(name);
    if path.exists() {
        progress(LabProgress::BaseFound);
        return Ok(path);
    }
    make_dir(&places.cache, 0o755)?;
    progress(LabProgress::BaseMissing);
    let _lock = lock(&path.with_extension("lock"))?;
    if !path.exists() {
        let begin = Instant::now();
        let new = path.with_extension("building");
        // A killed build leaves a folder, but no processes.
        remove(&new)?;
        build(&new)?;
        fs::rename(&new, &path).map_err(Error::file("rename", new))?;
        progress(LabProgress::BaseBuilt(begin.elapsed()));
    }
    Ok(path)
}

fn build(new: &Path, lab: &LabName, suite: &str, progress: &dyn Fn(LabProgress)) -> Result<()> {
    let mirror = mirror(suite);
    let include = format!("--include={PACKAGES}");
    contained(lab)
        // Without this flag debootstrap checks no signature when the archive's keys are missing.
        .args(["debootstrap", "--force-check-gpg", "--variant=minbase", &include, suite])
        .args([new])
        .args([&mirror])
        .limit(BUILD_TIMEOUT)
        .run_with(|line| progress(LabProgress::BaseLine(line.to_owned())))?;
    contained(lab).args(["chroot"]).args([new]).args(["sh", "-s"]).input(CUSTOMIZE).run().map(drop)
}

/// A program in its own mount and process namespaces. The kernel ends it with this process, even by SIGKILL.
pub(crate) fn contained(lab: &LabName) -> Tool {
    Tool::of_lab(lab, "setpriv").args([
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--pid",
        "--mount-proc",
        "--fork",
        "--kill-child",
        "--propagation=private",
    ])
}

fn remove(path: &Path) -> Result<()> {
    for attempt in 0.. {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            // A program of the killed build may still write a file.
            Err(error) if attempt >= 20 => return Err(Error::file("remove", path)(error)),
            Err(_) => thread::sleep(Duration::from_millis(100)),
            Ok(()) => break,
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).map_err(Error::file("create", path))?;
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(Error::file("lock", path)(source)),
            Err(TryLockError::WouldBlock) if begin.elapsed() >= BUILD_TIMEOUT => {
                return Err(Error::Busy { what: path.display().to_string(), waited: begin.elapsed() });
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Hash of everything that the result depends on. The mirror is not part of it: every mirror has the same packages.
fn recipe(suite: &str) -> String {
    let text = format!("1\n{suite}\n{}\n{PACKAGES}\n{CUSTOMIZE}", std::env::consts::ARCH);
    hex::encode(&Sha256::digest(text)[..6])
}

/// Debian release of the hosts: the release of the machine, or bookworm when the machine does not run Debian.
fn suite(os_release: &str) -> String {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_matches('"').to_owned())
    };
    value("ID=")
        .filter(|id| id == "debian")
        .and_then(|_| value("VERSION_CODENAME="))
        .unwrap_or_else(|| "bookworm".to_owned())
}

/// The mirror that this machine's apt uses for the suite or, if it uses none, for its own; else Debian's.
pub(crate) fn mirror(suite: &str) -> String {
    let dir = Path::new("/etc/apt/sources.list.d");
    let mut files: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.push("/etc/apt/sources.list".into());
    let texts: Vec<_> = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let own = self::suite(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    let found =
        [suite, &own].into_iter().find_map(|suite| texts.iter().find_map(|text| find_mirror(text, suite)));
    found.unwrap_or_else(|| MIRROR.to_owned())
}

fn find_mirror(sources: &str, suite: &str) -> Option<String> {
    let debian = |uri: &str| uri.starts_with("http") && uri.trim_end_matches('/').ends_with("/debian");
    let one_line = sources.lines().filter(|line| line.starts_with("deb ")).find_map(|line| {
        let mut words = line.split_whitespace().skip(1).skip_while(|word| !word.contains("://"));
        let uri = words.next().filter(|uri| debian(uri))?;
        (words.next() == Some(suite)).then(|| uri.to_owned())
    });
    one_line.or_else(|| {
        sources.split("\n\n").find_map(|stanza| {
            let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name));
            let uri = field("URIs:")?.split_whitespace().find(|uri| debian(uri))?;
            field("Suites:")?.split_whitespace().any(|s| s == suite).then(|| uri.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_release_from_debian_only() {
        assert_eq!(suite("ID=debian\nVERSION_CODENAME=trixie\n"), "trixie");
        assert_eq!(suite("ID=ubuntu\nVERSION_CODENAME=noble\n"), "bookworm");
        assert_eq!(suite(""), "bookworm");
    }

    #[test]
    fn finds_the_mirror_in_both_formats_of_apt() {
        let stanzas = "Types: deb\nURIs: http://m.example/debian-security\nSuites: bookworm-security\n\n\
            Types: deb\n# note\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\n";
        assert_eq!(find_mirror(stanzas, "bookworm").as_deref(), Some("http://m.example/debian"));
        assert_eq!(find_mirror(stanzas, "trixie"), None);
        let line = "# deb http://no.example/debian bookworm main\ndeb [arch=amd64] https://m.example/debian/ bookworm main\n";
        assert_eq!(find_mirror(line, "bookworm").as_deref(), Some("https://m.example/debian/"));
        assert_eq!(find_mirror("deb https://packages.example/apt bookworm main\n", "bookworm"), None);
    }

    #[test]
    fn each_release_has_its_own_base() {
        assert_ne!(recipe("bookworm"), recipe("trixie"));
    }
}
