//! Modules: archives of users with an `install.sh` that runs as root on nodes of a cluster.
//!
//! ```text
//!   UNIT.tar ──copy──► /opt/kubeon/modules/UNIT.tar ──unpack──► install.sh VERSION RUNTIME ──► UNIT.service is enabled
//!                                                         └───► /opt/kubeon/modules/UNIT/uninstall.sh
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use kubeon_api::{LabelValue, Version};

use crate::environment::EngineEnvironment;
use crate::error::EngineError;

/// The folder of modules on a node. Its parts belong to their owners, so that `destroy` does not remove it.
const FOLDER: &str = "/opt/kubeon/modules";
/// The container runtime of every node, which an installer gets as its second argument.
const RUNTIME: &str = "containerd";
/// What other systems call modules and every bundle carries.
const PARTS_OF_A_BUNDLE: [&str; 5] = ["containerd", "cni", "kubelet", "pause", "images"];
const INSTALLER: &str = "install.sh";

/// Unpacks the archive of the module `$1` beside its folder and runs its installer with the version `$2` and the runtime `$3`.
const INSTALL: &str = r#"set -eu; folder=/opt/kubeon/modules/$1
work=$(mktemp -d "$folder.XXXXXX"); trap 'rm -rf "$work"' EXIT; trap 'exit 1' HUP INT TERM
tar -x -f "$folder.tar" -C "$work"
(cd "$work" && bash "$work/install.sh" "$2" "$3")
mkdir -p "$folder"
[ ! -f "$work/uninstall.sh" ] || install -m 0755 "$work/uninstall.sh" "$folder/uninstall.sh"
[ ! -f "$work/$1.service" ] || systemctl enable --now "$1.service""#;

/// Runs the uninstaller of the module `$1`, if it has one, and removes the files of its installation.
const UNINSTALL: &str = r#"set -eu; folder=/opt/kubeon/modules/$1
[ -e "$folder" ] || [ -e "$folder.tar" ] || { echo "$1 is not installed"; exit 0; }
if [ -f "$folder/uninstall.sh" ]; then bash "$folder/uninstall.sh"; else echo "$1 has no uninstall.sh"; fi
rm -rf "$folder" "$folder.tar"
rmdir /opt/kubeon/modules /opt/kubeon 2>/dev/null || :"#;

/// The name of a module, which is also that of its unit and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleName(LabelValue);

/// An archive with an installer on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeModule {
    /// The name of the module.
    pub name: ModuleName,
    /// The archive.
    pub archive: PathBuf,
    /// Whether it carries a unit `NAME.service`, which is enabled.
    pub has_unit: bool,
}

impl std::fmt::Display for ModuleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_str().fmt(f)
    }
}

impl ModuleName {
    /// Reads a name: letters, digits, `-`, `_` and `.`, at most 63.
    ///
    /// # Errors
    /// Refuses any other text, and the names of parts that every bundle carries.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        if PARTS_OF_A_BUNDLE.contains(&text) {
            let error =
                EngineError::refused(format!("{text} is a part of every bundle: kubeon installs it itself"));
            return Err(error);
        }
        let name: LabelValue = text.parse().map_err(|error| {
            EngineError::refused(format!("{text:?} is not the name of a module: {error}"))
        })?;
        if name.as_str().is_empty() {
            Err(EngineError::refused("the module has no name"))
        } else {
            Ok(Self(name))
        }
    }

    /// The path of the archive on a node.
    #[must_use]
    pub fn archive_on_node(&self) -> String {
        format!("{FOLDER}/{self}.tar")
    }

    /// The command that installs the module on a node which has its archive.
    #[must_use]
    pub fn install(&self, version: Version) -> String {
        self.line(INSTALL, &[&version.to_string(), RUNTIME])
    }

    /// The command that removes the module from a node.
    #[must_use]
    pub fn uninstall(&self) -> String {
        self.line(UNINSTALL, &[])
    }

    fn line(&self, script: &str, arguments: &[&str]) -> String {
        let words = [&["sh", "-c", script, "kubeon", self.0.as_str()], arguments].concat();
        // Only a NUL byte cannot be quoted, and no word contains one.
        shlex::try_join(words).unwrap_or_default()
    }
}

impl NodeModule {
    /// Opens the archive of a path, or of a name: `dist/NAME.tar` in the state folder.
    ///
    /// # Errors
    /// Refuses an archive that is missing, cannot be read, has no `install.sh`, or has a path that leaves its folder.
    pub fn open(environment: &EngineEnvironment, text: &str) -> Result<Self, EngineError> {
        let path = Path::new(text);
        let (name, archive) = match path.extension() {
            Some(extension) if extension == "tar" => {
                (path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default(), path.to_owned())
            }
            _ => {
                let folder = environment.state_folder.as_deref().unwrap_or(Path::new("."));
                (text, folder.join("dist").join(format!("{text}.tar")))
            }
        };
        let name = ModuleName::parse(name)?;
        let files = files(&archive)?;
        if !files.contains(Path::new(INSTALLER)) {
            return Err(EngineError::refused(format!("{} has no {INSTALLER}", archive.display())));
        }
        let has_unit = files.contains(Path::new(&format!("{name}.service")));
        Ok(Self { name, archive, has_unit })
    }
}

/// The paths in an archive.
fn files(archive: &Path) -> Result<BTreeSet<PathBuf>, EngineError> {
    let unreadable = |error: std::io::Error| {
        EngineError::refused(format!("cannot read the module {}", archive.display()))
            .row("cause", error.to_string())
    };
    let mut tar = tar::Archive::new(File::open(archive).map_err(unreadable)?);
    let mut files = BTreeSet::new();
    for entry in tar.entries().map_err(unreadable)? {
        let path = entry.and_then(|entry| Ok(entry.path()?.into_owned())).map_err(unreadable)?;
        if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            let title =
                format!("{} contains {}, which is outside of its folder", archive.display(), path.display());
            return Err(EngineError::refused(title));
        }
        files.insert(path.components().filter(|part| *part != Component::CurDir).collect());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(folder: &Path, name: &str, paths: &[&str]) -> String {
        let path = folder.join(name);
        let mut tar = tar::Builder::new(File::create(&path).unwrap());
        for inner in paths {
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            // `append_data` refuses a path that leaves the folder.
            header.as_gnu_mut().unwrap().name[..inner.len()].copy_from_slice(inner.as_bytes());
            header.set_cksum();
            tar.append(&header, std::io::empty()).unwrap();
        }
        tar.finish().unwrap();
        path.display().to_string()
    }

    fn open(text: &str) -> Result<NodeModule, String> {
        NodeModule::open(&EngineEnvironment::default(), text).map_err(|error| error.title)
    }

    #[test]
    fn an_archive_with_an_installer_is_a_module() {
        let folder = tempfile::tempdir().unwrap();
        let with_unit =
            archive(folder.path(), "agent.tar", &["./install.sh", "./agent.service", "bin/agent"]);
        let module = open(&with_unit).unwrap();
        assert!(module.has_unit && module.name.to_string() == "agent", "{module:?}");
        assert!(!open(&archive(folder.path(), "plain.tar", &["install.sh"])).unwrap().has_unit);
        let environment =
            EngineEnvironment { state_folder: Some(folder.path().to_owned()), ..Default::default() };
        std::fs::create_dir(folder.path().join("dist")).unwrap();
        archive(folder.path(), "dist/tool.tar", &["install.sh"]);
        assert_eq!(
            NodeModule::open(&environment, "tool").unwrap().archive,
            folder.path().join("dist/tool.tar")
        );
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name: &str, paths: &[&str]| open(&archive(folder.path(), name, paths)).unwrap_err();
        assert!(refused("empty.tar", &["readme"]).ends_with("has no install.sh"));
        assert!(refused("up.tar", &["install.sh", "../etc/passwd"]).contains("outside of its folder"));
        assert!(refused("root.tar", &["install.sh", "/etc/passwd"]).contains("outside of its folder"));
        assert!(open("/nowhere/x.tar").unwrap_err().contains("cannot read the module /nowhere/x.tar"));
        for (text, why) in [
            ("containerd", "part of every bundle"),
            ("a b", "not the name"),
            ("$(id)", "not the name"),
            ("", "no name"),
        ] {
            assert!(open(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn a_script_gets_the_name_the_version_and_the_runtime_as_arguments() {
        let name = ModuleName::parse("agent").unwrap();
        let words = shlex::split(&name.install("v1.36.3".parse().unwrap())).unwrap();
        assert_eq!(words[3..], ["kubeon", "agent", "v1.36.3", "containerd"]);
    }
}
