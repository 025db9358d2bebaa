//! Removes links, routes and packet rules of pods and services.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kubeon_process::{ProgramError, ProgramOutput};
use kubeon_wire::StepFailure;

use super::failures::ResetFailures;
use crate::command::{run, step_failure};
use crate::failure::failed;
use crate::job::Job;

/// Links that the pod network creates.
const LINKS: [&str; 4] = ["cni0", "flannel.1", "kube-ipvs0", "kube-bridge"];
/// Tables of nftables that belong to kube-proxy, flannel and the port mapping plugin.
const TABLES: [&str; 4] = ["kube-proxy", "flannel-ipv4", "flannel-ipv6", "cni_hostport"];
/// Prefixes of the iptables chains of the same programs.
const CHAINS: [&str; 3] = ["KUBE-", "FLANNEL-", "CNI-"];
/// The time limit of one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Removes them all, on a real host only.
pub(super) fn clear(job: &Job<'_>, failures: &mut ResetFailures) {
    if !job.host.root.is_live() {
        return;
    }
    failures.record(routes());
    for link in pod_links() {
        failures.record(delete_link(&link));
    }
    failures.record(nftables());
    for kind in ["", "-legacy", "-nft"] {
        for family in ["iptables", "ip6tables"] {
            failures.record(iptables(&format!("{family}{kind}"), kind));
        }
    }
}

fn routes() -> Result<(), StepFailure> {
    let text = fs::read_to_string("/run/flannel/subnet.env").unwrap_or_default();
    for network in text.lines().filter_map(|line| line.strip_prefix("FLANNEL_NETWORK=")) {
        if let Some(done) = call("ip", &["-4", "route", "flush", "root", network], None)? {
            check(&done, "ip route flush")?;
        }
    }
    Ok(())
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

fn iptables(program: &str, kind: &str) -> Result<(), StepFailure> {
    // Listing the legacy tables would create them; the kernel's list contains only the tables in use.
    let names =
        if program.starts_with("ip6") { "/proc/net/ip6_tables_names" } else { "/proc/net/ip_tables_names" };
    if kind == "-legacy" && fs::read_to_string(names).unwrap_or_default().trim().is_empty() {
        return Ok(());
    }
    let Some(saved) = call(&format!("{program}-save"), &[], None)?.filter(|done| done.success()) else {
        return Ok(());
    };
    let Some(rest) = without_cluster_rules(&saved.stdout) else { return Ok(()) };
    match call(&format!("{program}-restore"), &[], Some(rest))? {
        Some(done) => check(&done, &format!("{program}-restore")),
        None => {
            Err(failed(format!("cannot remove iptables rules: the host has no program {program}-restore")))
        }
    }
}

/// The rules without those of the cluster; `None` if the cluster has no rules.
fn without_cluster_rules(saved: &str) -> Option<String> {
    let named = |word: &str| CHAINS.iter().any(|chain| word.starts_with(chain));
    let is_cluster_rule = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        line.strip_prefix(':').is_some_and(named)
            || words.windows(2).any(|pair| matches!(pair[0], "-A" | "-j" | "-g") && named(pair[1]))
    };
    if !saved.lines().any(|line| is_cluster_rule(&line)) {
        return None;
    }
    let mut rest = saved.lines().filter(|line| !is_cluster_rule(line)).collect::<Vec<_>>().join("\n");
    rest.push('\n');
    Some(rest)
}

/// Runs a program; `None` if the host does not have it.
fn call(
    program: &str,
    arguments: &[&str],
    input: Option<String>,
) -> Result<Option<ProgramOutput>, StepFailure> {
    match run(program, arguments, input, Instant::now() + PROGRAM_TIMEOUT) {
        Ok(done) => Ok(Some(done)),
        Err(ProgramError::Missing { .. }) => Ok(None),
        Err(other) => Err(step_failure(other)),
    }
}

fn check(done: &ProgramOutput, what: &str) -> Result<(), StepFailure> {
    if done.success() { Ok(()) } else { Err(failed(format!("{what} failed: {}", done.last_line()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_the_chains_of_the_cluster_and_keeps_the_others() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:MINE - [0:0]\n\
                     -A PREROUTING -m comment --comment \"x\" -j KUBE-SERVICES\n-A KUBE-SERVICES -j RETURN\n\
                     -A PREROUTING -m comment --comment KUBE-like -j MINE\n\
                     -A POSTROUTING -s 10.0.0.0/8 -j CNI-0123abc\nCOMMIT\n";
        let rest = without_cluster_rules(saved).unwrap();
        assert_eq!(
            rest,
            "*nat\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\n\
             -A PREROUTING -m comment --comment KUBE-like -j MINE\nCOMMIT\n"
        );
        assert_eq!(without_cluster_rules(&rest), None, "without rules of the cluster nothing is restored");
    }
}
