//! Hosts with a kernel of their own: virtual machines of QEMU.
//!
//! Only disk and boot differ from a host in namespaces. The same switch, addresses, keys and users serve both, and the
//! process of a virtual machine lives in the host's cgroup, so `kill`, `cut` and `down` need to know nothing of it.

pub(crate) mod base;
pub(crate) mod disk;
pub(crate) mod dns;
mod kernel;
pub(crate) mod network;
mod network_files;
pub(crate) mod options;
pub(crate) mod os;
pub(crate) mod profile;
pub(crate) mod programs;
pub(crate) mod qemu;
pub(crate) mod routing;
