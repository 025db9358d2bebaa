//! The command line of a virtual machine.

use std::{fs, path::Path};

use super::{
    base::{INITRD, KERNEL},
    disk::IMAGE,
    network::Nic,
};

/// Memory of a virtual machine in MiB. The machine gives it page by page, when the guest first uses it.
pub(crate) const MEMORY_MIB: u64 = 3072;
/// Processors of a virtual machine.
const CPUS: u32 = 2;
/// The program, in Debian's package qemu-system-x86.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Without `mitigations=off` an emulated kernel takes part of its time to protect itself from hardware that is not there.
/// `nokaslr`: an uncompressed kernel cannot move itself. `tsc=reliable`: otherwise every reading of the time, of which programs of
/// Go need many, is a request to an emulated clock. `panic=1`: when a kernel changes its own code, an emulated processor may rarely
/// still run the old one; the kernel panics then, and boots again after a second.
const KERNEL_ARGUMENTS: &str =
    "root=/dev/vda ro console=ttyS0 loglevel=4 mitigations=off nokaslr tsc=reliable panic=1";

/// What is left out here halves the cost of page faults in emulation, and of signatures and hashes in programs of Go, which use
/// the widest registers that they find. Without `avx2=off` the kernel of Debian 11 uses registers that it did not enable, and panics.
const EMULATED_CPU: &str = "max,la57=off,erms=off,fsrm=off,avx=off,avx2=off";

/// A thread for each processor. With one for all of them no kernel runs old code, but the programs of a master take twice as long,
/// and its controller manager loses its lease again and again.
const EMULATION: &str = "tcg,thread=multi,tb-size=1024";

/// The program and arguments that run a host. `base` is the root file system, beside which the kernel lies; `dir` the
/// host's folder, where `console` collects what the host writes to its serial port.
pub(crate) fn command(
    host: &str,
    base: &Path,
    dir: &Path,
    console: &Path,
    nics: &[Nic],
    kvm: bool,
) -> Vec<String> {
    let mut line: Vec<String> = vec![PROGRAM.into()];
    let mut add = |option: &str, value: String| line.extend([option.to_owned(), value]);
    let path = |path: &Path| path.display().to_string();
    add("-name", host.into());
    if kvm {
        add("-accel", "kvm".into());
    }
    add("-accel", EMULATION.into());
    add("-cpu", if kvm { "max".into() } else { EMULATED_CPU.into() });
    add("-machine", "q35".into());
    add("-m", MEMORY_MIB.to_string());
    add("-smp", CPUS.to_string());
    add("-display", "none".into());
    add("-kernel", path(&base.with_file_name(KERNEL)));
    add("-initrd", path(&base.with_file_name(INITRD)));
    add("-append", KERNEL_ARGUMENTS.into());
    // The file survives the death of this process in the machine's page cache; syncing to the machine's disk adds nothing.
    add("-drive", format!("file={},format=raw,if=virtio,cache=unsafe,discard=unmap", path(&dir.join(IMAGE))));
    for (i, nic) in nics.iter().enumerate() {
        add("-netdev", format!("tap,id=n{i},ifname={},script=no,downscript=no", nic.port));
        add("-device", format!("virtio-net-pci,netdev=n{i},mac={},romfile=", nic.mac));
    }
    add("-device", "virtio-rng-pci".into());
    add("-chardev", format!("file,id=console,path={},append=on", path(console)));
    add("-serial", "chardev:console".into());
    line.extend(["-nodefaults".to_owned(), "-no-user-config".to_owned()]);
    line
}

/// Whether the machine's processor and kernel run virtual machines. /dev/kvm alone says little: inside some virtual
/// machines it opens, but no guest kernel boots.
pub(crate) fn kvm_works() -> bool {
    let has_extension = |text: String| has_virtualization(&text);
    fs::read_to_string("/proc/cpuinfo").is_ok_and(has_extension)
        && fs::File::options().read(true).write(true).open("/dev/kvm").is_ok()
}

fn has_virtualization(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kvm: bool) -> String {
        let nic = |port: &str, mac: &str| Nic {
            port: port.into(),
            bridge: "br0",
            mac: mac.into(),
            address: "172.30.0.11/24".parse().unwrap(),
            gateway: None,
        };
        let nics = [nic("h1", "02:00:00:00:00:0b"), nic("h1.2", "06:00:00:00:00:0b")];
        let (base, dir) = (Path::new("/cache/vm-x/root"), Path::new("/labs/a/hosts/h1"));
        command("h1", base, dir, Path::new("/labs/a/hosts/h1/console.log"), &nics, kvm).join(" ")
    }

    #[test]
    fn kernel_and_initrd_lie_beside_the_root_file_system() {
        let line = line(false);
        assert!(line.starts_with("qemu-system-x86_64 -name h1 -accel tcg,"), "{line}");
        assert!(line.contains("-kernel /cache/vm-x/kernel -initrd /cache/vm-x/initrd"), "{line}");
        assert!(line.contains("file=/labs/a/hosts/h1/disk.raw,format=raw"), "{line}");
        assert!(line.contains("path=/labs/a/hosts/h1/console.log,append=on"), "{line}");
    }

    #[test]
    fn every_card_is_plugged_into_its_port() {
        let line = line(false);
        for part in [
            "ifname=h1,",
            "netdev=n0,mac=02:00:00:00:00:0b",
            "ifname=h1.2,",
            "netdev=n1,mac=06:00:00:00:00:0b",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn emulation_stays_the_second_choice_where_the_kernel_virtualizes() {
        assert!(line(true).contains("-accel kvm -accel tcg,"), "{}", line(true));
        assert!(!line(false).contains("kvm"));
    }

    #[test]
    fn a_processor_without_the_extension_emulates() {
        assert!(has_virtualization("processor : 0\nflags\t\t: fpu vmx sse\n"));
        assert!(!has_virtualization("processor : 0\nflags\t\t: fpu sse\nvmx flags : x\n"));
        assert!(!has_virtualization(""));
    }
}
