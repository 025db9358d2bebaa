//! Settings and limits of the machine that may cause failures later.

use std::fs;

use crate::{HostKind, vm::qemu::MEMORY_MIB};

/// What the machine may run out of with so many hosts, and the way out.
pub(crate) fn note(kind: &HostKind, hosts: u8) -> Option<String> {
    match kind {
        HostKind::Namespaces => {
            inotify(&fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").ok()?, hosts)
        }
        HostKind::Vm(_) => memory(&fs::read_to_string("/proc/meminfo").ok()?, hosts),
    }
}

/// All hosts share the machine's limit of inotify instances. With a kubelet and its container runtime a host uses
/// about 12; programs that get none fail with "too many open files".
fn inotify(limit: &str, hosts: u8) -> Option<String> {
    let (limit, needed) = (limit.trim().parse::<u32>().ok()?, 12 * u32::from(hosts));
    (limit < needed).then(|| {
        format!("fs.inotify.max_user_instances is {limit}, {hosts} nodes may need {needed}: sysctl -w fs.inotify.max_user_instances=1024")
    })
}

/// A virtual machine keeps the memory that its guest has once used.
fn memory(meminfo: &str, hosts: u8) -> Option<String> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available = line.split_whitespace().next()?.parse::<u64>().ok()? / 1024;
    let needed = MEMORY_MIB * u64::from(hosts);
    (available < needed).then(|| {
        format!("{hosts} virtual machines may use {needed} MiB of memory, {available} MiB are available: use fewer hosts")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_nothing_where_there_is_enough() {
        assert_eq!(inotify("128\n", 5), None);
        assert!(inotify("128\n", 20).unwrap().contains("20 nodes may need 240"));
        let meminfo = "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB\n";
        assert_eq!(memory(meminfo, 2), None);
        assert!(memory(meminfo, 3).unwrap().contains("may use 9216 MiB of memory, 8192 MiB are available"));
    }
}
