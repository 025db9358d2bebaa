//! The lab's state file: the choices that cannot be read back from the kernel.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use ipnet::Ipv4Net;
use kubeon_atomic_file::write_atomically;
use serde::{Deserialize, Serialize};

use crate::{Error, HostKind, Result};

const FILE: &str = "lab.json";

/// State of a lab. It is saved before the first effect that depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabState {
    /// Layout of this file and of the folder around it.
    pub version: u32,
    pub subnet: Ipv4Net,
    /// Base root file system of every host of this lab. It never changes: the hosts' disks are differences to it.
    pub base: PathBuf,
    /// Hosts are h1 to hN.
    pub hosts: u8,
    /// What all hosts are. The state of an older kubeon lacks it: its hosts are namespaces.
    #[serde(default, skip_serializing_if = "HostKind::is_namespaces")]
    pub kind: HostKind,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl LabState {
    pub(crate) const VERSION: u32 = 1;

    /// The state in a lab's folder; `None` if the file does not exist.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", path)(error)),
        };
        // Read the version first: other versions may have other fields.
        let damaged = |source| Error::Damaged { path: path.clone(), source };
        let Version { version } = serde_json::from_slice(&text).map_err(damaged)?;
        if version != Self::VERSION {
            return Err(Error::Version { path, version });
        }
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Replaces the state file atomically.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| Error::Damaged { path: path.clone(), source })?;
        write(&path, &text, 0o600)
    }
}

/// Creates a folder and its parents; only the folder itself gets the mode.
pub(crate) fn make_dir(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::file("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::file("set the mode of", path))
}

/// Replaces a file atomically, with this mode.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    write_atomically(path, content, mode).map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VmOptions, VmOs, VmProfile};

    fn state() -> LabState {
        LabState {
            version: 1,
            subnet: "172.30.0.0/24".parse().unwrap(),
            base: "/base".into(),
            hosts: 3,
            kind: HostKind::Namespaces,
        }
    }

    #[test]
    fn a_state_without_a_kind_has_namespaces_and_looks_as_before() {
        let old = r#"{"version":1,"subnet":"172.30.0.0/24","base":"/base","hosts":3}"#;
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), old).unwrap();
        assert_eq!(LabState::load(dir.path()).unwrap(), Some(state()));
        assert_eq!(serde_json::to_string(&state()).unwrap(), old);
    }

    #[test]
    fn keeps_os_and_profiles_of_virtual_machines() {
        let vm = VmOptions::new(VmOs::Debian11, [VmProfile::TwoNics, VmProfile::Ufw]).unwrap();
        let state = LabState { kind: HostKind::Vm(vm), ..state() };
        let text = serde_json::to_string(&state).unwrap();
        assert!(
            text.ends_with(r#""kind":{"vm":{"os":"debian-11","profiles":["ufw","two-nics"]}}}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<LabState>(&text).unwrap(), state);
    }

    #[test]
    fn survives_a_round_trip_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LabState::load(dir.path()).unwrap(), None);
        state().save(dir.path()).unwrap();
        assert_eq!(LabState::load(dir.path()).unwrap(), Some(state()));
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn refuses_an_incomplete_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), r#"{"version":1,"#).unwrap();
        assert!(matches!(LabState::load(dir.path()), Err(Error::Damaged { .. })));
    }

    #[test]
    fn refuses_the_file_of_another_version() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), r#"{"version":2,"new":1}"#).unwrap();
        assert!(matches!(LabState::load(dir.path()), Err(Error::Version { version: 2, .. })));
    }

    #[test]
    fn replacing_leaves_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        state().save(dir.path()).unwrap();
        LabState { hosts: 5, ..state() }.save(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(LabState::load(dir.path()).unwrap().unwrap().hosts, 5);
    }
}
