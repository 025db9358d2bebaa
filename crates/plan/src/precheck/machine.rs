//! What the machine is and has.

use kubeon_api::Arch;
use kubeon_wire::Cgroup;

use super::rule::{CheckRule, Subject, Verdict, rule};
use crate::desired::prepare::{NET_TOOLS, NODE_IMAGES, parts};
use crate::proxy_mode::missing_tool;

/// Room that must stay free beyond the parts: images, logs, etcd.
const SPARE_BYTES: u64 = 1 << 30;
/// More than this and certificates look expired or not yet valid, and leases flap.
const CLOCK_LIMIT_SECONDS: i64 = 120;
/// More than this and somebody should set up time synchronisation.
const CLOCK_WARNING_SECONDS: i64 = 5;
const LOW_MEMORY_BYTES: u64 = 1_500 << 20;
const FEW_INODES: u64 = 50_000;
const MASTER_CPUS: u32 = 2;
/// Modules without which no pod runs.
const NEEDED_MODULES: [&str; 1] = ["overlay"];
/// Modules without which something works less well.
const USEFUL_MODULES: [&str; 2] = ["br_netfilter", "nf_tables"];

/// What the machine is and has.
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

/// What the kernel and the programs do for the network.
pub(super) const NETWORK: &[CheckRule] = &[
    rule("modules", modules),
    rule("nftables", nftables),
    rule("tools", tools),
    rule("parameters", parameters),
];

/// Linux on the architecture of the bundle, run by systemd.
fn system(it: &Subject<'_>) -> Verdict {
    let facts = it.facts;
    let init = if facts.has_systemd { "systemd" } else { "no systemd" };
    let found = [facts.system.as_str(), &facts.architecture, &facts.os, init];
    let found = found.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let bundle = it.intent.artifacts.arch;
    let wanted = format!("Linux, {}, systemd", bundle.map_or("x86_64 or aarch64", Arch::machine));
    if facts.system != "Linux" {
        return Verdict::good(found, wanted).error(Some(format!("runs {}, not Linux", facts.system)));
    }
    let mut wrong = Vec::new();
    match (bundle, facts.architecture.parse::<Arch>()) {
        (Some(arch), here) if here != Ok(arch) => wrong.push(format!(
            "is {}; the bundle of {} is for {}",
            facts.architecture,
            it.intent.spec.version,
            arch.machine()
        )),
        (None, Err(_)) => wrong.push(format!("is {}, for which there are no bundles", facts.architecture)),
        _ => {}
    }
    if !facts.has_systemd {
        wrong.push("is not run by systemd".to_owned());
    }
    Verdict::good(found, wanted).error((!wrong.is_empty()).then(|| wrong.join("; ")))
}

/// A kernel older than 3.10 is refused in the words that are known for it.
fn kernel(it: &Subject<'_>) -> Verdict {
    let release = &it.facts.kernel;
    let verdict = Verdict::good(release.clone(), "3.10 or newer");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return verdict };
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

/// The login is root or may become root.
fn sudo(it: &Subject<'_>) -> Verdict {
    let message =
        (!it.facts.is_root).then(|| "the login is not root and cannot become root by sudo".to_owned());
    let found = if it.facts.is_root { "root" } else { "not root" };
    Verdict::good(found, "root").error(message)
}

/// The older hierarchies work, but Kubernetes is leaving them.
fn cgroup(it: &Subject<'_>) -> Verdict {
    let (found, old) = match it.facts.cgroup {
        Cgroup::V2 => ("v2", false),
        Cgroup::V1 => ("v1", true),
    };
    let message = old.then(|| "has control groups v1: adapted to, but Kubernetes is leaving them".to_owned());
    Verdict::good(found, "v2").warning(message)
}

/// Where SELinux enforces, systemd may start nothing that lies in `/var/lib`. What it would take to go along with it
/// was never tried.
fn selinux(it: &Subject<'_>) -> Verdict {
    let found = match it.facts.selinux_enforces {
        Some(true) => "enforcing",
        Some(false) => "permissive",
        None => "off",
    };
    let message = (it.facts.selinux_enforces == Some(true)).then(|| {
        "its SELinux is enforcing, which is not supported yet: systemd would not start the cluster's programs; have it \
         only warn: setenforce 0, and SELINUX=permissive in /etc/selinux/config"
            .to_owned()
    });
    Verdict::good(found, "permissive or off").error(message)
}

/// Processors.
fn cpu(it: &Subject<'_>) -> Verdict {
    let (cpus, wanted) = (it.facts.cpus, if it.master { MASTER_CPUS } else { 1 });
    let message =
        (cpus > 0 && cpus < wanted).then(|| format!("has only {cpus} CPU, a master wants {wanted}"));
    Verdict::good(cpus.to_string(), wanted.to_string()).warning(message)
}

/// Memory.
fn memory(it: &Subject<'_>) -> Verdict {
    let bytes = it.facts.memory_bytes;
    let message = (bytes < LOW_MEMORY_BYTES).then(|| format!("has only {} MiB of memory", bytes >> 20));
    Verdict::good(mib(bytes), mib(LOW_MEMORY_BYTES)).warning(message)
}

/// Room for the parts that are not there yet, and for what comes later.
fn disk(it: &Subject<'_>) -> Verdict {
    let (free, needed) = (it.facts.disk_free_bytes, missing_bytes(it) + SPARE_BYTES);
    let message = (free < needed)
        .then(|| format!("has {} MiB free for /var/lib/kubeon, {} MiB needed", free >> 20, needed >> 20));
    Verdict::good(mib(free), mib(needed)).error(message)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn missing_bytes(it: &Subject<'_>) -> u64 {
    let artifacts = &it.intent.artifacts;
    let programs = parts(it.master).filter_map(|name| artifacts.parts.get(name));
    let tools =
        missing_tool(it.facts, it.intent.spec.settings.proxy_mode).and(artifacts.parts.get(NET_TOOLS));
    let images = NODE_IMAGES.iter().filter_map(|role| artifacts.images.get(*role)).map(|image| &image.part);
    let missing = programs.chain(tools).chain(images).filter(|part| !it.facts.parts.contains(&part.digest));
    missing.map(|part| part.unpacked_size).sum()
}

/// Files that can still be made.
fn inodes(it: &Subject<'_>) -> Verdict {
    let Some(free) = it.facts.inodes_free else { return Verdict::good("not counted", "enough") };
    let message = (free < FEW_INODES).then(|| format!("has only {free} inodes free for /var/lib/kubeon"));
    Verdict::good(free.to_string(), FEW_INODES.to_string()).warning(message)
}

/// It is turned off when the host is prepared.
fn swap(it: &Subject<'_>) -> Verdict {
    let bytes = it.facts.swap_bytes;
    let message = (bytes > 0).then(|| format!("has {} MiB of swap, which will be turned off", bytes >> 20));
    Verdict::good(mib(bytes), "none").warning(message)
}

/// Its clock goes with the control machine's.
fn clock(it: &Subject<'_>) -> Verdict {
    let offset = it.facts.clock_offset_seconds;
    let way_out = "set the time (chrony, timesyncd)";
    let far = (offset.abs() > CLOCK_LIMIT_SECONDS)
        .then(|| format!("its clock is off by {}; {way_out}", span(offset)));
    let near = (offset.abs() > CLOCK_WARNING_SECONDS)
        .then(|| format!("its clock is off by {}; {way_out}", span(offset)));
    let found = if offset == 0 { "right".to_owned() } else { format!("off by {}", span(offset)) };
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

/// Kernel modules that can be loaded; a missing IPVS is only a warning.
fn modules(it: &Subject<'_>) -> Verdict {
    let known = &it.facts.modules;
    let missing = |names: &[&str]| -> Vec<String> {
        let names = names.iter().filter(|name| known.get(**name) == Some(&false));
        names.map(|name| (*name).to_owned()).collect()
    };
    let found = known.iter().filter(|(_, there)| **there).map(|(name, _)| name.as_str());
    let found = found.collect::<Vec<_>>().join(", ");
    let says = |missing: Vec<String>| {
        (!missing.is_empty()).then(|| format!("its kernel lacks {}", missing.join(", ")))
    };
    let wanted = [&NEEDED_MODULES[..], &USEFUL_MODULES[..]].concat().join(", ");
    Verdict::good(found, wanted).error(says(missing(&NEEDED_MODULES))).warning(says(missing(&USEFUL_MODULES)))
}

/// What kube-proxy uses where it can.
fn nftables(it: &Subject<'_>) -> Verdict {
    let there = it.facts.has_nftables;
    let message = (!there).then(|| "its kernel has no nftables: kube-proxy uses iptables here".to_owned());
    Verdict::good(if there { "there" } else { "missing" }, "there").warning(message)
}

/// What kube-proxy and flannel call.
fn tools(it: &Subject<'_>) -> Verdict {
    let wanted = "nft, or iptables where that is used";
    let Some(tool) = missing_tool(it.facts, it.intent.spec.settings.proxy_mode) else {
        return Verdict::good("there", wanted);
    };
    let package = if tool == "nft" { "nftables" } else { tool };
    let more = match it.facts.package_manager.as_deref() {
        Some(manager) => format!("once installed ({manager}, package {package}), its own is used"),
        None => {
            "it has no package manager either: what comes with later bundles is all that it gets".to_owned()
        }
    };
    let message = format!("has no {tool}: the bundle's is put there for kube-proxy and flannel; {more}");
    Verdict::good("missing", wanted).warning(Some(message))
}

/// Without forwarding there is no pod network.
fn parameters(it: &Subject<'_>) -> Verdict {
    const FORWARD: &str = "net.ipv4.ip_forward";
    let facts = it.facts;
    let forwards = facts.parameters.get(FORWARD).map(String::as_str);
    let message = (forwards == Some("0") && facts.can_set_parameters == Some(false))
        .then(|| format!("{FORWARD} is 0 and cannot be set: pods would reach nobody"));
    let found = forwards.map(|value| format!("{FORWARD} = {value}")).unwrap_or_default();
    Verdict::good(found, format!("{FORWARD} = 1, or may be set")).error(message)
}
