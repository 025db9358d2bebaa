//! Checks of the machine: system, kernel, processors, memory, disk, clock.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_api::{Arch, Digest};
use kubeon_wire::Cgroup;

use super::modules;
use super::rule::{CheckRule, Subject, Verdict, rule};
use crate::desired::prepare::{NET_TOOLS, images, parts};
use crate::input::{Artifacts, PartInfo};
use crate::proxy_mode::{kernel_version, missing_tool, obstacle};

/// Disk space that must stay free in addition to the parts, for images, logs and etcd.
const SPARE_BYTES: u64 = 1 << 30;
/// The kubelet's default for `imageGCHighThresholdPercent`.
const IMAGES_DELETED_ABOVE_PERCENT: u64 = 85;
/// With a larger clock offset, certificates look expired or not yet valid, and leases are lost.
const CLOCK_LIMIT_SECONDS: i64 = 120;
/// With a larger clock offset, the user should set up time synchronization.
const CLOCK_WARNING_SECONDS: i64 = 5;
const LOW_MEMORY_BYTES: u64 = 1_500 << 20;
const FEW_INODES: u64 = 50_000;
const MASTER_CPUS: u32 = 2;

/// Checks of the machine itself.
pub(super) const MACHINE: &[CheckRule] = &[
    rule("system", system),
    rule("kernel", kernel),
    rule("sudo", sudo),
    rule("cgroup", cgroup),
    rule("selinux", selinux),
    rule("cpu", cpu),
    rule("memory", memory),
    rule("disk", disk),
    rule("inodes", inodes),
    rule("swap", swap),
    rule("clock", clock),
];

/// Checks of the kernel and of the programs that the network needs.
pub(super) const NETWORK: &[CheckRule] = &[
    rule("modules", modules::modules),
    rule("nftables", nftables),
    rule("tools", tools),
    rule("parameters", parameters),
];

/// The system is Linux with systemd, on the architecture of the bundle.
fn system(subject: &Subject<'_>) -> Verdict {
    let facts = subject.facts;
    let init = if facts.has_systemd { "systemd" } else { "no systemd" };
    let found = [facts.system.as_str(), &facts.architecture, &facts.os, init];
    let found = found.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let bundle = subject.intent.artifacts_for(&facts.architecture).arch;
    let wanted = format!("Linux, {}, systemd", bundle.map_or("x86_64 or aarch64", Arch::machine));
    if facts.system != "Linux" {
        return Verdict::good(found, wanted).error(Some(format!("runs {}, not Linux", facts.system)));
    }
    let mut wrong = Vec::new();
    match (bundle, facts.architecture.parse::<Arch>()) {
        (Some(arch), here) if here != Ok(arch) => wrong.push(format!(
            "is {}; the bundle of {} is for {}",
            facts.architecture,
            subject.intent.spec.version,
            arch.machine()
        )),
        (None, Err(_)) => wrong.push(format!("is {}, which no bundle supports", facts.architecture)),
        _ => {}
    }
    if !facts.has_systemd {
        wrong.push("does not use systemd as its init system".to_owned());
    }
    Verdict::good(found, wanted).error((!wrong.is_empty()).then(|| wrong.join("; ")))
}

/// The kernel is 3.10 or newer. The contract fixes the text of the error.
fn kernel(subject: &Subject<'_>) -> Verdict {
    let release = &subject.facts.kernel;
    let verdict = Verdict::good(release.clone(), "3.10 or newer");
    let Some((major, minor)) = kernel_version(release) else { return verdict };
    let message = match (major, minor) {
        (0..3, _) => Some("kernel version is minor < 3.0"),
        (3, 0..10) => Some("kernel version is minor < 3.10"),
        _ => None,
    };
    let old = (major, minor) < (4, 19);
    let old =
        old.then(|| format!("kernel {release} is older than 4.19, the oldest that Kubernetes is tested on"));
    verdict.error(message.map(str::to_owned)).warning(old)
}

/// The login user is root or may become root.
fn sudo(subject: &Subject<'_>) -> Verdict {
    let message = (!subject.facts.is_root)
        .then(|| "the login user is not root and cannot become root with sudo".to_owned());
    let found = if subject.facts.is_root { "root" } else { "not root" };
    Verdict::good(found, "root").error(message)
}

/// cgroup v1 works, but Kubernetes is removing its support.
fn cgroup(subject: &Subject<'_>) -> Verdict {
    let (found, old) = match subject.facts.cgroup {
        Cgroup::V2 => ("v2", false),
        Cgroup::V1 => ("v1", true),
    };
    let message =
        old.then(|| "uses cgroup v1, which works, but Kubernetes is removing its support".to_owned());
    Verdict::good(found, "v2").warning(message)
}

/// SELinux is not enforcing. Enforcing SELinux prevents systemd from starting programs in `/var/lib`; support
/// for it is not implemented.
fn selinux(subject: &Subject<'_>) -> Verdict {
    let found = match subject.facts.selinux_enforces {
        Some(true) => "enforcing",
        Some(false) => "permissive",
        None => "off",
    };
    let message = (subject.facts.selinux_enforces == Some(true)).then(|| {
        "its SELinux is enforcing, which is not supported yet: systemd could not start the programs of the cluster; set it \
         to permissive: setenforce 0, and SELINUX=permissive in /etc/selinux/config"
            .to_owned()
    });
    Verdict::good(found, "permissive or off").error(message)
}

/// The host has enough processors.
fn cpu(subject: &Subject<'_>) -> Verdict {
    let (cpus, wanted) = (subject.facts.cpus, if subject.role.is_master() { MASTER_CPUS } else { 1 });
    let message =
        (cpus > 0 && cpus < wanted).then(|| format!("has only {cpus} CPU; a master should have {wanted}"));
    Verdict::good(cpus.to_string(), wanted.to_string()).warning(message)
}

/// The host has enough memory.
fn memory(subject: &Subject<'_>) -> Verdict {
    let bytes = subject.facts.memory_bytes;
    let message = (bytes < LOW_MEMORY_BYTES).then(|| format!("has only {} MiB of memory", bytes >> 20));
    Verdict::good(mib(bytes), mib(LOW_MEMORY_BYTES)).warning(message)
}

/// The disk has enough space for the missing parts, and [`SPARE_BYTES`] more. Afterwards it is not so full that the kubelet
/// deletes images.
fn disk(subject: &Subject<'_>) -> Verdict {
    let (free, total) = (subject.facts.disk_free_bytes, subject.facts.disk_total_bytes);
    let missing = missing_bytes(subject);
    let needed = missing + SPARE_BYTES;
    let message = (free < needed)
        .then(|| format!("has {} MiB free for /var/lib/kubeon, {} MiB needed", free >> 20, needed >> 20));
    let full = total.saturating_sub(free.saturating_sub(missing)).saturating_mul(100).checked_div(total);
    let nearly_full = full.filter(|percent| *percent > IMAGES_DELETED_ABOVE_PERCENT).map(|percent| {
        format!(
            "its disk will be {percent} % full; above {IMAGES_DELETED_ABOVE_PERCENT} % the kubelet deletes images that no \
             container uses, and without internet they do not come back"
        )
    });
    Verdict::good(mib(free), mib(needed)).error(message).warning(nearly_full)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The unpacked size of the parts that the host lacks, of this version and of those that follow. Parts of earlier versions stay on
/// the host, so their space is not free. A version whose bundle is not here is as large as the largest of the others.
fn missing_bytes(subject: &Subject<'_>) -> u64 {
    let (intent, machine) = (subject.intent, subject.facts.architecture.as_str());
    let missing = |artifacts| -> BTreeMap<&Digest, u64> {
        let parts = needed_parts(subject, artifacts);
        let parts = parts.filter(|part| !subject.facts.parts.contains(&part.digest));
        parts.map(|part| (&part.digest, part.unpacked_size)).collect()
    };
    let versions = std::iter::once(intent.artifacts_for(machine)).chain(intent.later_artifacts_for(machine));
    let versions: Vec<_> = versions.map(missing).collect();
    let largest = versions.iter().map(|sizes| sizes.values().sum::<u64>()).max().unwrap_or_default();
    // Several versions may have the same part.
    let all: BTreeMap<&Digest, u64> = versions.into_iter().flatten().collect();
    all.values().sum::<u64>() + largest * u64::from(intent.unseen_versions)
}

fn needed_parts<'a>(
    subject: &'a Subject<'_>,
    artifacts: &'a Artifacts,
) -> impl Iterator<Item = &'a PartInfo> {
    let mode = subject.intent.spec.settings.deploy_mode;
    let programs = parts(&subject.role, mode).filter_map(move |name| artifacts.parts.get(name));
    let tools = missing_tool(subject.facts, subject.intent.spec.settings.proxy_mode)
        .and(artifacts.parts.get(NET_TOOLS));
    let images = images(&subject.role, mode).filter_map(move |role| artifacts.images.get(role));
    programs.chain(tools).chain(images.map(|image| &image.part))
}

/// The file system has enough free inodes.
fn inodes(subject: &Subject<'_>) -> Verdict {
    let Some(free) = subject.facts.inodes_free else { return Verdict::good("no limit", "enough") };
    let message = (free < FEW_INODES).then(|| format!("has only {free} inodes free for /var/lib/kubeon"));
    Verdict::good(free.to_string(), FEW_INODES.to_string()).warning(message)
}

/// The host has no swap. Preparing the host turns it off.
fn swap(subject: &Subject<'_>) -> Verdict {
    let bytes = subject.facts.swap_bytes;
    let message = (bytes > 0).then(|| format!("has {} MiB of swap, which will be turned off", bytes >> 20));
    Verdict::good(mib(bytes), "none").warning(message)
}

/// The clock of the host agrees with the clock of the control machine.
fn clock(subject: &Subject<'_>) -> Verdict {
    let offset = subject.facts.clock_offset_seconds;
    let remedy = "set the time (chrony, timesyncd)";
    let far = (offset.abs() > CLOCK_LIMIT_SECONDS)
        .then(|| format!("its clock is off by {}; {remedy}", span(offset)));
    let near = (offset.abs() > CLOCK_WARNING_SECONDS)
        .then(|| format!("its clock is off by {}; {remedy}", span(offset)));
    let found = if offset == 0 { "correct".to_owned() } else { format!("off by {}", span(offset)) };
    Verdict::good(found, format!("off by {CLOCK_LIMIT_SECONDS} s at most")).error(far).warning(near)
}

fn span(seconds: i64) -> String {
    let (size, way) = (seconds.unsigned_abs(), if seconds > 0 { "ahead" } else { "behind" });
    if size >= 3600 {
        format!("{} h {} min, {way}", size / 3600, size % 3600 / 60)
    } else {
        format!("{size} s, {way}")
    }
}

/// The kernel supports nftables, which kube-proxy and flannel prefer.
fn nftables(subject: &Subject<'_>) -> Verdict {
    let facts = subject.facts;
    let found = match (&facts.nft_version, facts.has_nftables) {
        (_, false) => "no nftables".to_owned(),
        (Some(version), true) => format!("kernel {}, nft {version}", facts.kernel),
        (None, true) => format!("kernel {}", facts.kernel),
    };
    let wanted = subject.intent.spec.settings.proxy_mode == ProxyMode::Nftables;
    let message = obstacle(facts)
        .filter(|_| wanted)
        .map(|why| format!("{why}: kube-proxy and flannel use iptables here"));
    Verdict::good(found, "nftables in kernel 5.13 or newer").warning(message)
}

/// The host has the programs that kube-proxy and flannel call.
fn tools(subject: &Subject<'_>) -> Verdict {
    let wanted = "nft 1.0.1 or newer, or iptables if the host uses it";
    let Some(tool) = missing_tool(subject.facts, subject.intent.spec.settings.proxy_mode) else {
        return Verdict::good("available", wanted);
    };
    let package = if tool.name == "nft" { "nftables" } else { tool.name };
    let more = match (subject.facts.package_manager.as_deref(), tool.old) {
        (Some(manager), None) => {
            format!("if you install it ({manager}, package {package}), they use it instead")
        }
        (Some(_), Some(_)) => format!("with a newer package {package} they use the one of the host"),
        (None, _) => "the host has no package manager either, so only newer bundles update it".to_owned(),
    };
    let message = format!("{}: kube-proxy and flannel use the one of the bundle; {more}", tool.lack());
    Verdict::good(tool.old.map_or("missing", |_| "too old"), wanted).warning(Some(message))
}

/// IP forwarding is on or can be turned on. The pod network requires it.
fn parameters(subject: &Subject<'_>) -> Verdict {
    const FORWARD: &str = "net.ipv4.ip_forward";
    let facts = subject.facts;
    let forwards = facts.parameters.get(FORWARD).map(String::as_str);
    let message = (forwards == Some("0") && facts.can_set_parameters == Some(false))
        .then(|| format!("{FORWARD} is 0 and cannot be set: pods could not reach other hosts"));
    let found = forwards.map(|value| format!("{FORWARD} = {value}")).unwrap_or_default();
    Verdict::good(found, format!("{FORWARD} = 1, or may be set")).error(message)
}
