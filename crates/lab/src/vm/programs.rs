//! The programs and devices of the machine that virtual machines need.

use std::path::Path;

use super::{options::VmOptions, profile::VmProfile, qemu};
use crate::{Error, Result, tool};

/// Programs and the Debian packages that hold them.
const NEEDED: [(&str, &str); 4] = [
    (qemu::PROGRAM, "qemu-system-x86"),
    ("dnsmasq", "dnsmasq-base"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mmdebstrap", "mmdebstrap"),
];
const TUN: &str = "/dev/net/tun";

/// Fails with all missing packages before anything is created.
pub(crate) fn check(vm: &VmOptions) -> Result<()> {
    let mut needed = NEEDED.to_vec();
    if vm.has(VmProfile::Nat) {
        needed.push(("nft", "nftables"));
    }
    tool::check(&needed)?;
    if Path::new(TUN).exists() { Ok(()) } else { Err(Error::NoDevice { device: TUN, module: "tun" }) }
}
