//! Removes links and packet rules of pods and services. The routes of a link disappear with it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use kubeon_wire::StepFailure;

use super::failures::ResetFailures;
use super::iptables;
use super::programs::{PROGRAM_TIMEOUT, call, check};
use crate::failure::failed;
use crate::job::Job;
use crate::{original, packet_tables};

/// Links that the pod network creates.
const LINKS: [&str; 2] = ["cni0", "flannel.1"];
/// Tables of nftables that belong to kube-proxy, flannel and the port mapping plugin.
const TABLES: [&str; 4] = ["kube-proxy", "flannel-ipv4", "flannel-ipv6", "cni_hostport"];

/// Removes them all, on a real host only.
pub(super) fn clear(job: &Job<'_>, failures: &mut ResetFailures) {
    if !job.host.root.is_live() {
        return;
    }
    for link in pod_links() {
        failures.record(delete_link(&link));
    }
    failures.record(nftables());
    for kind in ["", "-legacy", "-nft"] {
        for family in ["iptables", "ip6tables"] {
            failures.record(iptables::clear(kind, family));
        }
    }
    if let Some(tables) = failures.record(original::tables(&job.host.root)).flatten() {
        failures.record(packet_tables::remove_empty(&tables, Instant::now() + PROGRAM_TIMEOUT));
    }
}

/// The links of the pod network and the host's ends of the pods' links.
fn pod_links() -> Vec<String> {
    let ends = fs::read_dir("/sys/class/net/cni0/brif").into_iter().flatten().flatten();
    let mut links: Vec<String> = ends.map(|end| end.file_name().to_string_lossy().into_owned()).collect();
    links.extend(LINKS.map(str::to_owned));
    links.retain(|link| Path::new("/sys/class/net").join(link).exists());
    links
}

fn delete_link(link: &str) -> Result<(), StepFailure> {
    match call("ip", &["link", "delete", link], None)? {
        None => Err(failed(format!("cannot delete the link {link}: the host has no program ip"))),
        // It may have been deleted together with its other end.
        Some(done) if done.success() || !Path::new("/sys/class/net").join(link).exists() => Ok(()),
        Some(done) => Err(failed(format!("cannot delete the link {link}: {}", done.last_line()))),
    }
}

fn nftables() -> Result<(), StepFailure> {
    let Some(listed) = call("nft", &["list", "tables"], None)?.filter(|done| done.success()) else {
        return Ok(());
    };
    for line in listed.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["table", family, name] = words[..]
            && TABLES.contains(&name)
            && let Some(done) = call("nft", &["delete", "table", family, name], None)?
        {
            check(&done, "nft delete table")?;
        }
    }
    Ok(())
}
