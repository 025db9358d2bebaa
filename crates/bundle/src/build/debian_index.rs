//! Debian's packages over HTTPS, by Debian's signed index and without apt: on any distribution.
//!
//! ```text
//!   InRelease ──gpgv──► SHA-256 of Packages.xz ──► packages ──► dependencies of the recipe ──► .deb by SHA-256 ──► files
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use debversion::Version as DebianVersion;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use kubeon_api::Digest;
use kubeon_process::{ProgramRun, find_on_path};
use liblzma::read::XzDecoder;
use parking_lot::Mutex;

use super::component::ComponentBuild;
use super::error::{BuildError, at};
use super::progress::BuildState;
use super::published::{self, Server};
use crate::catalogue::DebianRecipe;
use crate::manifest::{DebianPackage, PublishedFile};

/// The keys of Debian's archive, from its package debian-archive-keyring.
const KEYRING: &[u8] = include_bytes!("../../keyrings/debian-archive-keyring.gpg");
/// The archives and their suites. A package is taken from the one with its newest version.
const SUITES: [(&str, &str); 2] = [
    ("https://deb.debian.org/debian", "bookworm"),
    ("https://deb.debian.org/debian-security", "bookworm-security"),
];
const GPGV_TIMEOUT: Duration = Duration::from_secs(60);

/// The packages of the suites, by name.
pub(super) struct DebianIndex(BTreeMap<String, IndexedPackage>);

#[derive(Debug, Clone)]
struct IndexedPackage {
    version: String,
    /// The names before the first alternative of each dependency.
    depends: Vec<Vec<String>>,
    provides: Vec<String>,
    file: PublishedFile,
}

/// A package to download.
#[derive(Debug, Clone)]
pub(super) struct WantedPackage {
    pub(super) package: DebianPackage,
    file: PublishedFile,
}

impl DebianIndex {
    /// Downloads the indices of the architecture and checks their signatures.
    pub(super) fn fetch(
        task: &ComponentBuild<'_>,
        server: &Server,
        scratch: &Path,
    ) -> Result<Self, BuildError> {
        if find_on_path("gpgv").is_none() {
            let component = task.component.name.clone();
            return Err(BuildError::MissingTool { component, tool: "gpgv".into(), package: "gpgv".into() });
        }
        let mut all = BTreeMap::new();
        for (archive, suite) in SUITES {
            let release = format!("{archive}/dists/{suite}/InRelease");
            let signed = server.document(&release, "*/*").map_err(published::failed(task))?;
            let release = verify(task, &signed, scratch)?;
            if !server.is_mirror() {
                check_validity(task, &release, suite, Timestamp::now())?;
            }
            let name = format!("main/binary-{}/Packages.xz", task.arch);
            let sha256 = listed_digest(&release, &name)
                .ok_or_else(|| task.unexpected(format!("{archive} {suite} lists no {name}")))?;
            let url = format!("{archive}/dists/{suite}/main/binary-{}/by-hash/SHA256/{sha256}", task.arch);
            let file = PublishedFile { url, sha256 };
            let path = server.download(&file, &|_, _| {}).map_err(published::failed(task))?;
            let text = unpacked(&path).map_err(at("unpack", &path))?;
            fs::remove_file(&path).map_err(at("remove", &path))?;
            add_packages(&mut all, &text, archive);
        }
        Ok(Self(all))
    }

    /// The recipe's packages and their dependencies.
    pub(super) fn resolve(
        &self,
        task: &ComponentBuild<'_>,
        recipe: &DebianRecipe,
    ) -> Result<Vec<WantedPackage>, BuildError> {
        let (mut pending, mut names) = (recipe.packages.clone(), BTreeSet::new());
        while let Some(name) = pending.pop() {
            if recipe.excluded.contains(&name) || names.contains(&name) {
                continue;
            }
            let package = self.0.get(&name);
            let package = package.ok_or_else(|| task.unexpected(format!("Debian has no package {name}")))?;
            for alternatives in &package.depends {
                let chosen = self.choose(alternatives, &names, recipe);
                pending.push(chosen.ok_or_else(|| {
                    task.unexpected(format!("Debian has none of the packages {}", alternatives.join(", ")))
                })?);
            }
            names.insert(name);
        }
        let wanted = |name: &String| {
            let found = self.0.get(name)?;
            let sha256 = found.file.sha256.clone();
            let package = DebianPackage { name: name.clone(), version: found.version.clone(), sha256 };
            Some(WantedPackage { package, file: found.file.clone() })
        };
        Ok(names.iter().filter_map(wanted).collect())
    }

    /// The first alternative that is chosen already, is excluded, exists, or is provided by another package.
    fn choose(
        &self,
        alternatives: &[String],
        names: &BTreeSet<String>,
        recipe: &DebianRecipe,
    ) -> Option<String> {
        let is_settled = |name: &&String| names.contains(*name) || recipe.excluded.contains(name);
        let exists = |name: &&String| self.0.contains_key(*name);
        let found = alternatives.iter().find(is_settled).or_else(|| alternatives.iter().find(exists));
        let provider = |name: &String| {
            self.0
                .iter()
                .find(|(_, package)| package.provides.contains(name))
                .map(|(provider, _)| provider.clone())
        };
        found.cloned().or_else(|| alternatives.iter().find_map(provider))
    }
}

/// The text of a signed document, if a key of Debian's archive signed it.
fn verify(task: &ComponentBuild<'_>, signed: &[u8], scratch: &Path) -> Result<String, BuildError> {
    let [keyring, document, text] = ["keyring.gpg", "InRelease", "Release"].map(|name| scratch.join(name));
    fs::write(&keyring, KEYRING).map_err(at("write", &keyring))?;
    fs::write(&document, signed).map_err(at("write", &document))?;
    let mut gpgv = ProgramRun::dying_with_parent("gpgv", GPGV_TIMEOUT);
    gpgv.command().arg("--keyring").arg(&keyring).arg("--output").arg(&text).arg(&document);
    let checked = gpgv.stdout();
    let release = checked.map_err(|source| task.failed("verify the signature of Debian's index", source));
    release
        .and_then(|_| fs::read_to_string(&text).map_err(at("read", &text)))
        .inspect(|_| drop(fs::remove_file(&text)))
}

/// Refuses an index that is signed and too old: a server in place of that of Debian could hide newer packages. Suites that
/// change seldom set no limit.
fn check_validity(
    task: &ComponentBuild<'_>,
    release: &str,
    suite: &str,
    now: Timestamp,
) -> Result<(), BuildError> {
    let Some(text) = release.lines().find_map(|line| line.strip_prefix("Valid-Until: ")) else {
        return Ok(());
    };
    let end =
        DateTime::strptime("%a, %d %b %Y %H:%M:%S UTC", text).and_then(|end| end.to_zoned(TimeZone::UTC));
    match end {
        Ok(end) if now <= end.timestamp() => Ok(()),
        Ok(_) => Err(task.unexpected(format!(
            "Debian's index of {suite} was valid until {text}: the server is out of date, or the clock of this machine is wrong"
        ))),
        Err(error) => Err(task.unexpected(format!("Debian's index of {suite} has an unknown end, {text}: {error}"))),
    }
}

/// The digest of a file in the section `SHA256:` of a Release file.
fn listed_digest(release: &str, name: &str) -> Option<Digest> {
    let section = release.split_once("\nSHA256:\n")?.1;
    let lines = section.lines().take_while(|line| line.starts_with(' '));
    let mut fields = lines.map(str::split_whitespace);
    fields.find_map(|mut words| {
        let digest = words.next()?;
        (words.nth(1) == Some(name)).then(|| digest.parse().ok())?
    })
}

fn unpacked(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    XzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Adds the packages of an index, unless a newer version is known.
fn add_packages(all: &mut BTreeMap<String, IndexedPackage>, index: &str, archive: &str) {
    for stanza in index.split("\n\n") {
        let Some((name, package)) = package(stanza, archive) else { continue };
        let is_newer = |known: &IndexedPackage| {
            let version = |text: &str| text.parse::<DebianVersion>().ok();
            version(&package.version) > version(&known.version)
        };
        if all.get(&name).is_none_or(is_newer) {
            all.insert(name, package);
        }
    }
}

fn package(stanza: &str, archive: &str) -> Option<(String, IndexedPackage)> {
    let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let depends =
        [field("Pre-Depends"), field("Depends")].into_iter().flatten().flat_map(|text| text.split(','));
    let depends = depends.map(|group| group.split('|').map(bare_name).collect()).collect();
    let provides = field("Provides").map(|text| text.split(',').map(bare_name).collect()).unwrap_or_default();
    let url = format!("{archive}/{}", field("Filename")?);
    let file = PublishedFile { url, sha256: field("SHA256")?.parse().ok()? };
    let version = field("Version")?.to_owned();
    Some((field("Package")?.to_owned(), IndexedPackage { version, depends, provides, file }))
}

/// `libc6 (>= 2.34)` and `perl:any` are `libc6` and `perl`.
fn bare_name(text: &str) -> String {
    let name = text.trim().split([' ', '(']).next().unwrap_or_default();
    name.split(':').next().unwrap_or_default().to_owned()
}

/// Components that are built at the same time need the same packages: without it, one would remove or continue a file that
/// the other reads.
static PACKAGE_FILES: Mutex<()> = Mutex::new(());

/// Downloads the packages and unpacks them below `root`.
pub(super) fn unpack(
    task: &ComponentBuild<'_>,
    wanted: &[WantedPackage],
    server: &Server,
    root: &Path,
) -> Result<(), BuildError> {
    for (done, wanted_package) in wanted.iter().enumerate() {
        task.report(BuildState::Building { done, total: wanted.len() });
        let _files = PACKAGE_FILES.lock();
        let path = server.download(&wanted_package.file, &|_, _| {}).map_err(published::failed(task))?;
        unpack_package(&path, root).map_err(at("unpack", &path))?;
        fs::remove_file(&path).map_err(at("remove", &path))?;
    }
    Ok(())
}

/// Unpacks the files of a package: the member `data.tar` of an ar archive. No script of the package runs.
fn unpack_package(path: &Path, root: &Path) -> std::io::Result<()> {
    let mut archive = ar::Archive::new(File::open(path)?);
    while let Some(member) = archive.next_entry() {
        let member = member?;
        let name = String::from_utf8_lossy(member.header().identifier()).into_owned();
        let files: Box<dyn std::io::Read + '_> = match name.as_str() {
            "data.tar.xz" => Box::new(XzDecoder::new(member)),
            "data.tar.zst" => Box::new(zstd::Decoder::new(member)?),
            "data.tar.gz" => Box::new(flate2::read::GzDecoder::new(member)),
            "data.tar" => Box::new(member),
            _ => continue,
        };
        let mut files = tar::Archive::new(files);
        files.set_preserve_permissions(true);
        return files.unpack(root);
    }
    Err(std::io::Error::other("it is not a Debian package"))
}

#[cfg(test)]
mod tests;
