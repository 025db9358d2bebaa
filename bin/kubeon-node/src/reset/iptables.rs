//! Removes the iptables rules and chains of the cluster. Other rules are neither read back nor written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use kubeon_wire::StepFailure;

use super::programs::{call, check};
use crate::failure::failed;

/// Prefixes of the chains of kubelet, kube-proxy and flannel.
const CHAINS: [&str; 2] = ["KUBE-", "FLANNEL-"];
/// The prefix of the chains of network plugins. Other programs use the same plugins.
const PLUGIN_CHAINS: &str = "CNI-";
/// How the comments of network plugins name the pod network of the cluster.
const POD_NETWORK: &str = r#"name: \"kubeon\""#;

/// Removes the rules and chains of every variant of iptables that the host has.
pub(super) fn clear(kind: &str, family: &str) -> Result<(), StepFailure> {
    let program = format!("{family}{kind}");
    // Listing the legacy tables would create them; the kernel's list contains only the tables in use.
    let names =
        if family.starts_with("ip6") { "/proc/net/ip6_tables_names" } else { "/proc/net/ip_tables_names" };
    if kind == "-legacy" && fs::read_to_string(names).unwrap_or_default().trim().is_empty() {
        return Ok(());
    }
    let Some(saved) = call(&format!("{program}-save"), &[], None)?.filter(|done| done.success()) else {
        return Ok(());
    };
    let Some(commands) = removal(&saved.stdout) else { return Ok(()) };
    match call(&format!("{program}-restore"), &["--noflush"], Some(commands))? {
        Some(done) => check(&done, &format!("{program}-restore")),
        None => {
            Err(failed(format!("cannot remove iptables rules: the host has no program {program}-restore")))
        }
    }
}

/// One table in the output of `iptables-save`.
#[derive(Default)]
struct Table<'a> {
    name: &'a str,
    chains: Vec<&'a str>,
    /// The rules as `CHAIN MATCHES`.
    rules: Vec<&'a str>,
}

/// The input of `iptables-restore --noflush` that removes the rules and chains of the cluster; `None` if there
/// are none.
fn removal(saved: &str) -> Option<String> {
    let mut commands = String::new();
    for table in tables(saved) {
        let plugin = table.plugin_chains_of_others();
        let own = |chain: &str| {
            CHAINS.iter().any(|prefix| chain.starts_with(prefix))
                || chain.starts_with(PLUGIN_CHAINS) && !plugin.contains(chain)
        };
        let chains: Vec<&str> = table.chains.iter().copied().filter(|chain| own(chain)).collect();
        if chains.is_empty() {
            continue;
        }
        let _ = writeln!(commands, "*{}", table.name);
        // A line of this form empties the chain.
        for chain in &chains {
            let _ = writeln!(commands, ":{chain} - [0:0]");
        }
        for rule in &table.rules {
            if !own(chain(rule)) && target(rule).is_some_and(own) {
                let _ = writeln!(commands, "-D {rule}");
            }
        }
        for chain in &chains {
            let _ = writeln!(commands, "-X {chain}");
        }
        commands.push_str("COMMIT\n");
    }
    (!commands.is_empty()).then_some(commands)
}

fn tables(saved: &str) -> Vec<Table<'_>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            tables.push(Table { name, ..Table::default() });
        }
        let Some(table) = tables.last_mut() else { continue };
        table.chains.extend(line.strip_prefix(':').and_then(|chain| chain.split_whitespace().next()));
        table.rules.extend(line.strip_prefix("-A "));
    }
    tables
}

impl<'a> Table<'a> {
    /// The chains of network plugins that another pod network of the host uses, such as podman's.
    fn plugin_chains_of_others(&self) -> BTreeSet<&'a str> {
        let of_others = |rule: &&&str| rule.contains(r#"name: \""#) && !rule.contains(POD_NETWORK);
        let rules = self.rules.iter().filter(of_others);
        let mut chains: BTreeSet<&str> =
            rules.flat_map(|rule| [Some(chain(rule)), target(rule)]).flatten().collect();
        if !chains.is_empty() {
            // Chains without a network in their rules, which all networks share.
            let shared = |chain: &&str| {
                ["CNI-HOSTPORT-", "CNI-FORWARD", "CNI-ADMIN"].iter().any(|prefix| chain.starts_with(prefix))
            };
            chains.extend(self.chains.iter().copied().filter(shared));
        }
        chains
    }
}

/// The chain that contains a rule.
fn chain(rule: &str) -> &str {
    rule.split_whitespace().next().unwrap_or_default()
}

/// The chain to which a rule jumps.
fn target(rule: &str) -> Option<&str> {
    let words: Vec<&str> = rule.split_whitespace().collect();
    words.windows(2).rev().find(|pair| matches!(pair[0], "-j" | "-g")).map(|pair| pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_the_rules_and_chains_of_the_cluster() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:MINE - [0:0]\n:CNI-0123abc - [0:0]\n\
                     -A PREROUTING -m comment --comment \"x y\" -j KUBE-SERVICES\n-A KUBE-SERVICES -j RETURN\n\
                     -A PREROUTING -m comment --comment KUBE-like -j MINE\n\
                     -A POSTROUTING -s 10.0.0.0/8 -j CNI-0123abc\nCOMMIT\n\
                     *filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n";
        assert_eq!(
            removal(saved).unwrap(),
            "*nat\n:KUBE-SERVICES - [0:0]\n:CNI-0123abc - [0:0]\n\
             -D PREROUTING -m comment --comment \"x y\" -j KUBE-SERVICES\n\
             -D POSTROUTING -s 10.0.0.0/8 -j CNI-0123abc\n-X KUBE-SERVICES\n-X CNI-0123abc\nCOMMIT\n"
        );
        let others = "*nat\n:MINE - [0:0]\n-A PREROUTING -m comment --comment KUBE-like -j MINE\nCOMMIT\n";
        assert_eq!(removal(others), None, "without rules of the cluster nothing is written");
    }

    #[test]
    fn keeps_the_plugin_chains_of_another_pod_network() {
        let rule = |network: &str, chain: &str| {
            format!(
                "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"{network}\\\" id: \\\"1\\\"\" -j {chain}\n"
            )
        };
        let saved = format!(
            "*nat\n:CNI-DN-1 - [0:0]\n:CNI-DN-2 - [0:0]\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-HOSTPORT-MASQ - [0:0]\n\
             {}{}-A OUTPUT -j CNI-HOSTPORT-DNAT\n-A CNI-DN-1 -j DNAT --to-destination 10.88.0.2:80\nCOMMIT\n",
            rule("podman", "CNI-DN-1"),
            rule("kubeon", "CNI-DN-2")
        );
        let own = rule("kubeon", "CNI-DN-2").replace("-A ", "-D ");
        assert_eq!(removal(&saved).unwrap(), format!("*nat\n:CNI-DN-2 - [0:0]\n{own}-X CNI-DN-2\nCOMMIT\n"));
        let alone = saved.replace("podman", "kubeon");
        assert!(removal(&alone).unwrap().contains("-X CNI-HOSTPORT-MASQ\n"));
    }
}
