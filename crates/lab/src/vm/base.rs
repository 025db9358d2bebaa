//! The base of virtual machines: a Debian root file system with its own kernel, created once by mmdebstrap, cached under
//! the hash of its recipe.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{kernel, options::VmOptions, os::VmOs};
use crate::{
    Error, LabName, LabProgress, Places, Result,
    base::{self, BUILD_TIMEOUT, contained},
    state::make_dir,
};

/// Names in the folder of a base: the root file system, the kernel proper and its initial RAM disk.
const ROOT: &str = "root";
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const INITRD: &str = "initrd";

/// What every release has: an ordinary server, with AppArmor and its profiles.
const PACKAGES: &[&str] = &[
    "apparmor",
    "ca-certificates",
    "conntrack",
    "curl",
    "dbus",
    "ethtool",
    "initramfs-tools",
    "iproute2",
    "ipset",
    "iptables",
    "iputils-ping",
    "kmod",
    "libnss-systemd",
    "libpam-systemd",
    "linux-image-cloud-amd64",
    "netbase",
    "nftables",
    "openssh-server",
    "openssl",
    "procps",
    "python3-minimal",
    "socat",
    "sudo",
    "systemd",
    "systemd-sysv",
    "tcpdump",
    "udev",
];
/// The initial RAM disk, which is unpacked at every boot, holds the modules for a disk of QEMU and no others. It gets the program
/// that checks the disk because /etc/fstab exists.
const BEFORE_KERNEL: &str = r#"echo '/dev/vda / ext4 defaults 0 1' > "$1/etc/fstab"
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/lab"
printf '%s\n' virtio_pci virtio_blk ext4 > "$1/usr/share/initramfs-tools/modules.d/lab""#;
const CUSTOMIZE: &str = concat!(include_str!("base.sh"), include_str!("../users.sh"));

/// Returns the root file system for virtual machines of these options and builds it if it is not in the cache. Kernel and
/// initial RAM disk lie beside it.
pub(crate) fn ensure(
    places: &Places,
    lab: &LabName,
    vm: &VmOptions,
    progress: &dyn Fn(LabProgress),
) -> Result<PathBuf> {
    let name = format!("vm-{}-{}", vm.os(), recipe(vm));
    let folder = base::cached(places, &name, progress, |new| build(new, lab, vm, progress))?;
    Ok(folder.join(ROOT))
}

fn build(new: &Path, lab: &LabName, vm: &VmOptions, progress: &dyn Fn(LabProgress)) -> Result<()> {
    let (root, suite) = (new.join(ROOT), vm.os().suite());
    make_dir(new, 0o755)?;
    contained(lab)
        .args(["mmdebstrap", "--mode=root", "--variant=minbase"])
        .args([format!("--include={}", packages(vm).join(","))])
        .args(
            ["doc", "man", "locale", "info"]
                .map(|part| format!("--dpkgopt=path-exclude=/usr/share/{part}/*")),
        )
        .args([format!("--essential-hook={BEFORE_KERNEL}")])
        .args([suite])
        .args([&root])
        .args([base::mirror(suite)])
        .limit(BUILD_TIMEOUT)
        .run_with(|line| progress(LabProgress::BaseLine(line.to_owned())))?;
    contained(lab)
        .args(["chroot"])
        .args([&root])
        .args(["sh", "-s"])
        .args(vm.base_profiles().map(|(profile, _)| profile.name()))
        .input(CUSTOMIZE)
        .limit(BUILD_TIMEOUT)
        .run()?;
    let image = boot_file(&root, "vmlinuz-")?;
    let bytes = fs::read(&image).map_err(Error::file("read", image))?;
    let kernel = kernel::uncompressed(&bytes).unwrap_or(bytes);
    fs::write(new.join(KERNEL), kernel).map_err(Error::file("write", new.join(KERNEL)))?;
    let initrd = boot_file(&root, "initrd.img-")?;
    fs::copy(&initrd, new.join(INITRD)).map(drop).map_err(Error::file("copy", initrd))
}

/// The file in /boot of a fresh root file system, which has one kernel.
fn boot_file(root: &Path, prefix: &str) -> Result<PathBuf> {
    let boot = root.join("boot");
    let files = fs::read_dir(&boot).map_err(Error::file("list", &boot))?.flatten();
    let mut found = files
        .map(|file| file.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    let missing =
        || std::io::Error::new(std::io::ErrorKind::NotFound, "the package of the kernel did not write it");
    found.next().ok_or_else(|| Error::file("find", boot.join(format!("{prefix}*")))(missing()))
}

fn packages(vm: &VmOptions) -> Vec<&'static str> {
    let dns = if vm.os() == VmOs::Debian11 { "dnsutils" } else { "bind9-dnsutils" };
    let mut packages = [PACKAGES, &[dns]].concat();
    packages.extend(vm.base_profiles().flat_map(|(_, packages)| packages));
    packages
}

/// Hash of everything that the result depends on, except for the mirror.
fn recipe(vm: &VmOptions) -> String {
    let profiles: Vec<_> = vm.base_profiles().map(|(profile, _)| profile.name()).collect();
    let text = format!(
        "1\n{}\n{}\n{}\n{BEFORE_KERNEL}\n{CUSTOMIZE}",
        vm.os().suite(),
        profiles.join(","),
        packages(vm).join(",")
    );
    hex::encode(&Sha256::digest(text)[..6])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VmProfile;

    fn vm(os: VmOs, profiles: &[VmProfile]) -> VmOptions {
        VmOptions::new(os, profiles.iter().copied()).unwrap()
    }

    #[test]
    fn only_what_changes_the_root_file_system_needs_another_base() {
        let plain = recipe(&vm(VmOs::Debian12, &[]));
        assert_eq!(recipe(&vm(VmOs::Debian12, &[VmProfile::Nat])), plain);
        assert_ne!(recipe(&vm(VmOs::Debian12, &[VmProfile::Ufw])), plain);
        assert_ne!(recipe(&vm(VmOs::Debian13, &[])), plain);
        // Debian 11 has the stub resolver in another package, which is installed anyway; a unit is enabled.
        assert_ne!(recipe(&vm(VmOs::Debian11, &[VmProfile::Resolved])), recipe(&vm(VmOs::Debian11, &[])));
    }

    #[test]
    fn a_firewall_is_installed_only_where_its_profile_applies() {
        let has = |vm: &VmOptions, name: &str| packages(vm).contains(&name);
        let plain = vm(VmOs::Debian12, &[]);
        assert!(!has(&plain, "ufw") && !has(&plain, "firewalld") && !has(&plain, "systemd-resolved"));
        assert!(has(&vm(VmOs::Debian12, &[VmProfile::Ufw]), "ufw"));
    }
}
