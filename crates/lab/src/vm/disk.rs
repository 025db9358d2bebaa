//! Disk of a virtual machine: an ext4 image of the base and the host's own files, created without a mount on the machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    network::Nic,
    network_files::{self, HostFile},
    options::VmOptions,
    profile::VmProfile,
};
use crate::{
    Error, LabName, Result,
    base::contained,
    disk::{DiskTemplate, UPPER, create, write_identity},
    state::make_dir,
};

/// The image in a host's folder. It is sparse: it takes the room of what is written.
pub(crate) const IMAGE: &str = "disk.raw";
const SIZE: &str = "12G";
/// Time limit for an image.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Arguments: the base, the host's files, an empty folder, the image. The overlay exists in a mount namespace that ends with
/// the shell. The kernels of old releases do not know the two features.
const MAKE: &str = r#"mount -t overlay overlay -o "lowerdir=$2:$1" "$3"
truncate -s "$5" "$4"
exec mkfs.ext4 -q -F -O ^orphan_file,^metadata_csum_seed -E lazy_itable_init=1,root_owner=0:0 -d "$3" "$4""#;

/// Creates the disk of a host unless it exists. `dir` appears by a rename, complete.
pub(crate) fn ensure(
    dir: &Path,
    base: &Path,
    host: &str,
    vm: &VmOptions,
    nics: &[Nic],
    template: &DiskTemplate,
) -> Result<()> {
    let Some(first) = nics.first() else { return Ok(()) };
    create(dir, |new| {
        let (upper, empty) = (new.join(UPPER), new.join("root"));
        make_dir(&upper, 0o755)?;
        make_dir(&empty, 0o755)?;
        write_identity(&upper, host, first.address.addr(), template)?;
        write_resolver(&upper, vm, nics)?;
        for file in network_files::files(vm, nics).into_iter().chain(seed(vm, host)) {
            write_file(&upper, &file)?;
        }
        make_image(&template.lab, base, &upper, &empty, &new.join(IMAGE))
    })
}

fn make_image(lab: &LabName, base: &Path, upper: &Path, empty: &Path, image: &Path) -> Result<()> {
    contained(lab)
        .args(["sh", "-euc", MAKE, "sh"])
        .args([base, upper, empty, image])
        .args([SIZE])
        .limit(TIMEOUT)
        .run()
        .map(drop)
}

fn write_resolver(upper: &Path, vm: &VmOptions, nics: &[Nic]) -> Result<()> {
    let path = upper.join("etc/resolv.conf");
    if vm.has(VmProfile::Resolved) {
        let stub = "../run/systemd/resolve/stub-resolv.conf";
        return std::os::unix::fs::symlink(stub, &path).map_err(Error::file("make", path));
    }
    let servers = nics.iter().filter_map(|nic| nic.gateway).map(|server| format!("nameserver {server}\n"));
    fs::write(&path, servers.collect::<String>()).map_err(Error::file("write", path))
}

/// The data source of cloud-init.
fn seed(vm: &VmOptions, host: &str) -> Vec<HostFile> {
    if !vm.has(VmProfile::CloudInit) {
        return Vec::new();
    }
    let file = |name: &str, content: String| HostFile {
        path: format!("var/lib/cloud/seed/nocloud/{name}"),
        content,
        mode: 0o644,
    };
    let meta = format!("instance-id: {host}\nlocal-hostname: {host}\n");
    vec![file("meta-data", meta), file("user-data", "#cloud-config\n{}\n".to_owned())]
}

fn write_file(upper: &Path, file: &HostFile) -> Result<()> {
    let path = upper.join(&file.path);
    make_parents(upper, &file.path)?;
    fs::write(&path, &file.content).map_err(Error::file("write", &path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))
        .map_err(Error::file("set the mode of", path))
}

/// Creates the folders above a file, each with the mode that it has on a Debian: on the disk it hides the base's.
fn make_parents(upper: &Path, file: &str) -> Result<()> {
    let mut folder = PathBuf::from(upper);
    for part in Path::new(file).parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        if !folder.exists() {
            make_dir(&folder, 0o755)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VmOs;

    #[test]
    fn the_stub_resolver_is_named_only_where_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        let resolver = folder.path().join("etc/resolv.conf");
        let nic = Nic {
            port: "h1".into(),
            bridge: "br0",
            mac: "02:00:00:00:00:0b".into(),
            address: "172.30.0.11/24".parse().unwrap(),
            gateway: Some("172.30.0.1".parse().unwrap()),
        };
        let options =
            |profiles: &[VmProfile]| VmOptions::new(VmOs::Debian12, profiles.iter().copied()).unwrap();
        write_resolver(folder.path(), &options(&[]), std::slice::from_ref(&nic)).unwrap();
        assert_eq!(fs::read_to_string(&resolver).unwrap(), "nameserver 172.30.0.1\n");
        fs::remove_file(&resolver).unwrap();
        write_resolver(folder.path(), &options(&[VmProfile::Resolved]), &[nic]).unwrap();
        assert!(fs::read_link(&resolver).unwrap().ends_with("stub-resolv.conf"));
    }

    #[test]
    fn only_cloud_init_gets_a_seed() {
        let plain = VmOptions::default();
        assert!(seed(&plain, "h1").is_empty());
        let cloud = VmOptions::new(VmOs::Debian12, [VmProfile::CloudInit]).unwrap();
        let files = seed(&cloud, "h1");
        assert_eq!(files[0].content, "instance-id: h1\nlocal-hostname: h1\n");
    }
}
