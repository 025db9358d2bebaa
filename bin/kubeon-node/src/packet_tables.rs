//! The tables of iptables in nftables. Programs create them when they first use iptables and never remove
//! them. Listing them creates none.

use std::collections::BTreeSet;
use std::time::Instant;

use kubeon_process::{ProgramError, ProgramOutput};
use kubeon_wire::StepFailure;

use crate::command::{run, step_failure};
use crate::failure::failed;

const FAMILIES: [(&str, &str); 2] = [("ip", "iptables-save"), ("ip6", "ip6tables-save")];
const NAMES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// The tables as `FAMILY NAME`, such as `ip filter`; `None` if they cannot be listed.
#[must_use]
pub fn list(deadline: Instant) -> Option<BTreeSet<String>> {
    match run("nft", &["list", "tables"], None, deadline) {
        Ok(done) if done.success() => Some(iptables_tables(&done.stdout)),
        Err(ProgramError::Missing { .. }) => saved(deadline),
        Ok(_) | Err(_) => None,
    }
}

/// Removes the tables that are not in `original`, have no rule, and let every packet pass.
///
/// # Errors
/// If a table cannot be removed.
pub fn remove_empty(original: &BTreeSet<String>, deadline: Instant) -> Result<(), StepFailure> {
    let call = |arguments: &[&str]| run("nft", arguments, None, deadline).map_err(step_failure);
    let listed = match run("nft", &["list", "tables"], None, deadline) {
        Ok(done) if done.success() => done,
        // Without the program or its kernel module, no table can be removed.
        Ok(_) | Err(ProgramError::Missing { .. }) => return Ok(()),
        Err(error) => return Err(step_failure(error)),
    };
    for table in iptables_tables(&listed.stdout).difference(original) {
        let Some((family, name)) = table.split_once(' ') else { continue };
        let content = call(&["list", "table", family, name])?;
        if content.success() && is_empty(&content.stdout) {
            check(&call(&["delete", "table", family, name])?, table)?;
        }
    }
    Ok(())
}

fn check(done: &ProgramOutput, table: &str) -> Result<(), StepFailure> {
    if done.success() {
        return Ok(());
    }
    Err(failed(format!("cannot delete the empty table {table}: {}", done.last_line())))
}

/// The tables of iptables in the output of `nft list tables`.
fn iptables_tables(output: &str) -> BTreeSet<String> {
    let table = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["table", family, name]
            if NAMES.contains(&name) && FAMILIES.iter().any(|(known, _)| *known == family) =>
        {
            Some(format!("{family} {name}"))
        }
        _ => None,
    };
    output.lines().filter_map(table).collect()
}

/// The tables of a host without nft, as iptables lists them. A host with neither program has no tables.
fn saved(deadline: Instant) -> Option<BTreeSet<String>> {
    let mut tables = BTreeSet::new();
    for (family, program) in FAMILIES {
        match run(program, &[], None, deadline) {
            Ok(done) if done.success() => {
                let names = done.stdout.lines().filter_map(|line| line.strip_prefix('*'));
                tables.extend(names.map(|name| format!("{family} {name}")));
            }
            Err(ProgramError::Missing { .. }) => {}
            Ok(_) | Err(_) => return None,
        }
    }
    Some(tables)
}

/// Whether the output of `nft list table` has only chains of hooks that accept every packet and have no rule.
fn is_empty(table: &str) -> bool {
    let mut lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut open = lines.next().is_some_and(|line| line.starts_with("table "));
    while let Some(line) = lines.next() {
        if line == "}" {
            // The end of the table.
            return open && lines.next().is_none();
        }
        let hook =
            lines.next().is_some_and(|rule| rule.starts_with("type ") && rule.ends_with("policy accept;"));
        open &= line.starts_with("chain ") && hook && lines.next() == Some("}");
        if !open {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {\n\
                         \tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n\n\
                         \tchain OUTPUT {\n\t\ttype nat hook output priority dstnat; policy accept;\n\t}\n}\n";

    #[test]
    fn a_table_with_a_rule_a_policy_a_chain_or_a_set_is_not_empty() {
        assert!(is_empty(EMPTY));
        assert!(is_empty("table ip raw {\n}\n"));
        let chain = "\tchain OUTPUT {\n\t\ttype nat hook output priority dstnat; policy accept;\n";
        for content in [
            EMPTY.replace(chain, &format!("{chain}\t\tcounter packets 0 bytes 0 drop\n")),
            EMPTY.replacen("policy accept", "policy drop", 1),
            EMPTY.replace(chain, &format!("\tchain mine {{\n\t}}\n\n{chain}")),
            EMPTY.replace(chain, &format!("\tset mine {{\n\t\ttype ipv4_addr\n\t}}\n\n{chain}")),
            EMPTY.trim_end().trim_end_matches('}').to_owned(),
            String::new(),
        ] {
            assert!(!is_empty(&content), "{content}");
        }
    }

    #[test]
    fn lists_only_the_tables_of_iptables() {
        let output =
            "table ip filter\ntable ip6 nat\ntable inet filter\ntable ip kube-proxy\ntable inet firewalld\n";
        assert_eq!(iptables_tables(output), ["ip filter".to_owned(), "ip6 nat".to_owned()].into());
    }
}
