//! Disk of a host: the difference to the base (`upper`), its own `/var`, its name, keys and passwords.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
};

use rustix::fs::statfs;

use crate::{
    Error, Result,
    state::{make_dir, write},
    tool::Tool,
};

/// The contents that all disks of a lab share.
pub(crate) struct DiskTemplate {
    pub lab: crate::LabName,
    /// A line for authorized_keys.
    pub public_key: String,
    /// Content of /etc/shadow.
    pub shadow: Vec<u8>,
    pub shadow_group: u32,
}

/// Folder of the hosts' disks in the lab's folder.
pub(crate) const DISKS: &str = "hosts";
/// Files with the key and the password of the lab, and with a host's key.
pub(crate) const KEY: &str = "id_ed25519";
pub(crate) const PASSWORD: &str = "password";
/// The files of a host's disk that its base lacks, in the host's folder.
pub(crate) const UPPER: &str = "upper";
pub(crate) const HOST_KEY: &str = "etc/ssh/ssh_host_ed25519_key";
/// Users that can log in with the lab's password.
const USERS: [&str; 3] = ["root", "admin", "operator"];

/// Creates the lab's key pair and password unless they exist, and reads the contents that go onto every disk.
pub(crate) fn template(lab: &crate::LabName, dir: &Path, base: &Path) -> Result<DiskTemplate> {
    let key = dir.join(KEY);
    if !key.exists() {
        make_key(lab, &key, &format!("lab-{lab}"))?;
    }
    let password = dir.join(PASSWORD);
    if !password.exists() {
        write(&password, format!("{}\n", random_hex(10)?).as_bytes(), 0o600)?;
    }
    let public = key.with_extension("pub");
    let public_key = fs::read_to_string(&public).map_err(Error::file("read", public))?;
    let text = fs::read_to_string(&password).map_err(Error::file("read", password))?;
    let hash = Tool::of_lab(lab, "chroot")
        .args([base])
        .args(["openssl", "passwd", "-6", "-stdin"])
        .input(text)
        .run()?;
    let path = base.join("etc/shadow");
    let shadow = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let shadow_group = fs::metadata(&path).map_err(Error::file("read", &path))?.gid();
    let shadow = with_password(&shadow, hash.trim()).into_bytes();
    Ok(DiskTemplate { lab: lab.clone(), public_key, shadow, shadow_group })
}

/// Creates the disk of a host unless it exists.
pub(crate) fn ensure(
    dir: &Path,
    base: &Path,
    host: &str,
    address: std::net::Ipv4Addr,
    template: &DiskTemplate,
) -> Result<()> {
    create(dir, |new| {
        for (part, mode) in [("work", 0o700), ("root", 0o755), (UPPER, 0o755), ("var", 0o755)] {
            make_dir(&new.join(part), mode)?;
        }
        Tool::of_lab(&template.lab, "cp")
            .args(["-a", "--reflink=auto", "-T"])
            .args([&base.join("var"), &new.join("var")])
            .run()?;
        let upper = new.join(UPPER);
        write_identity(&upper, host, address, template)?;
        let resolv = "# A host without a connection to other networks: no name server.\noptions attempts:1 timeout:1\n";
        write_plain(&upper.join("etc/resolv.conf"), resolv.as_bytes(), 0o644)
    })
}

/// Creates the folder of a host unless it exists, with what `fill` puts into it. `dir` appears by a rename, complete.
pub(crate) fn create(dir: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let new = dir.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).map_err(Error::file("remove", &new))?;
    }
    make_dir(&new, 0o700)?;
    fill(&new)?;
    fs::rename(&new, dir).map_err(Error::file("rename", new))
}

/// Writes the files that make a host this host: its names, keys and passwords. `upper` hides files of the base.
pub(crate) fn write_identity(
    upper: &Path,
    host: &str,
    address: std::net::Ipv4Addr,
    template: &DiskTemplate,
) -> Result<()> {
    for part in ["etc", "etc/ssh"] {
        make_dir(&upper.join(part), 0o755)?;
    }
    let hosts = format!("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{address} {host}\n");
    let plain = |name: &str, content: &[u8], mode| write_plain(&upper.join("etc").join(name), content, mode);
    plain("hostname", format!("{host}\n").as_bytes(), 0o644)?;
    plain("hosts", hosts.as_bytes(), 0o644)?;
    plain("machine-id", format!("{}\n", random_hex(16)?).as_bytes(), 0o444)?;
    plain("ssh/lab_authorized_keys", template.public_key.as_bytes(), 0o644)?;
    plain("shadow", &template.shadow, 0o640)?;
    let shadow = upper.join("etc/shadow");
    chown(&shadow, None, Some(template.shadow_group)).map_err(Error::file("change the group of", shadow))?;
    make_key(&template.lab, &upper.join(HOST_KEY), host)
}

/// Checks that an overlay file system can use this folder.
pub(crate) fn check_place(path: &Path, variable: &'static str) -> Result<()> {
    let unfit = |reason| Err(Error::UnfitPlace { path: path.to_owned(), reason, variable });
    const OVERLAYFS: u64 = 0x794c_7630;
    let kind = statfs(path).map_err(|errno| Error::file("inspect", path)(errno.into()))?.f_type;
    if u64::try_from(kind).is_ok_and(|kind| kind == OVERLAYFS) {
        return unfit("is on an overlay file system, which cannot hold the disks of hosts");
    }
    if path.to_string_lossy().contains([',', ':', '\\', '"', ' ', '\n']) {
        return unfit("has a character in its path that mount options cannot contain");
    }
    Ok(())
}

/// Creates a key pair. The public key appears first, so that a private key always has one.
fn make_key(lab: &crate::LabName, path: &Path, comment: &str) -> Result<()> {
    let new = path.with_extension("new");
    let public = new.with_extension("new.pub");
    for file in [&new, &public] {
        if file.exists() {
            fs::remove_file(file).map_err(Error::file("remove", file))?;
        }
    }
    Tool::of_lab(lab, "ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
        .args([&new])
        .run()?;
    fs::rename(&public, path.with_extension("pub")).map_err(Error::file("rename", public))?;
    fs::rename(&new, path).map_err(Error::file("rename", new))
}

/// Unlike [`write`] it does not sync: the folder around the file appears later, by a rename.
fn write_plain(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    fs::write(path, content).map_err(Error::file("write", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::file("set the mode of", path))
}

fn with_password(shadow: &str, hash: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<_> = line.split(':').collect();
        if fields.len() > 1 && USERS.contains(&fields[0]) {
            fields[1] = hash;
        }
        fields.join(":") + "\n"
    };
    shadow.lines().map(line).collect()
}

fn random_hex(bytes: usize) -> Result<String> {
    use std::io::Read as _;
    let path = Path::new("/dev/urandom");
    let mut buffer = vec![0; bytes];
    let mut file = fs::File::open(path).map_err(Error::file("open", path))?;
    file.read_exact(&mut buffer).map_err(Error::file("read", path))?;
    Ok(hex::encode(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_the_password_of_the_lab_users_only() {
        let shadow = "root:*:1:0:99999:7:::\ndaemon:*:1:0:99999:7:::\noperator:!:1:0:99999:7:::\n";
        let expected = "root:$6$x:1:0:99999:7:::\ndaemon:*:1:0:99999:7:::\noperator:$6$x:1:0:99999:7:::\n";
        assert_eq!(with_password(shadow, "$6$x"), expected);
    }

    #[test]
    fn refuses_a_path_that_would_change_the_mount_options() {
        let dir = tempfile::Builder::new().prefix("a,b").tempdir().unwrap();
        assert!(matches!(check_place(dir.path(), "X"), Err(Error::UnfitPlace { .. })));
    }
}
