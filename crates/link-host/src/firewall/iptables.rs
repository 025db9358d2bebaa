//! The rules of the chains `INPUT` and `FORWARD`, as `iptables -S` prints them.

use kubeon_wire::{FirewallFact, FirewallProgram, PacketMatch};

use super::matches::{Chain, network, of_chains, ports, transport};

/// The rules; `None` if neither chain restricts packets.
pub(super) fn read(lines: &[&str]) -> Option<FirewallFact> {
    of_chains(FirewallProgram::Iptables, chain(lines, "INPUT"), chain(lines, "FORWARD"))
}

fn chain(lines: &[&str], name: &str) -> Chain {
    let mut chain = Chain::default();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["-P", own, policy] if own == name => chain.restricts = policy == "DROP",
            // Rules after one that refuses every packet have no effect.
            ["-A", own, "-j", "DROP" | "REJECT", ..] if own == name => {
                chain.restricts = true;
                break;
            }
            ["-A", own, ref rule @ ..] if own == name => add(&mut chain, rule),
            _ => {}
        }
    }
    chain
}

fn add(chain: &mut Chain, rule: &[&str]) {
    let target = rule.iter().skip_while(|word| !matches!(**word, "-j" | "-g")).nth(1);
    match target {
        Some(&"ACCEPT") => match accepted(rule) {
            Some(passes) => chain.passes.extend(passes),
            None => chain.unclear |= !irrelevant(rule),
        },
        Some(&("DROP" | "REJECT" | "LOG")) | None => {}
        Some(_) => chain.unclear = true,
    }
}

/// Whether the rule is about ICMP, or about packets of known connections only.
fn irrelevant(rule: &[&str]) -> bool {
    rule.iter().any(|word| *word == "icmp" || word.contains("ESTABLISHED") && !word.contains("NEW"))
}

/// The packets of a rule; `None` if it has other conditions.
fn accepted(rule: &[&str]) -> Option<Vec<PacketMatch>> {
    let (mut base, mut ranges) = (PacketMatch::default(), Vec::new());
    let mut words = rule.iter();
    while let Some(word) = words.next() {
        let value = *words.next()?;
        match *word {
            "-s" => base.source = Some(network(value)?),
            "-i" => base.link = Some(value.to_owned()),
            "-p" => base.transport = Some(transport(value)?),
            "--dport" => ranges.push(ports(value)?),
            "--dports" => ranges.extend(value.split(',').map(ports).collect::<Option<Vec<_>>>()?),
            "-m" if matches!(value, "tcp" | "udp" | "multiport" | "state" | "conntrack") => {}
            "--state" | "--ctstate" if value.contains("NEW") => {}
            "-j" => break,
            _ => return None,
        }
    }
    if ranges.is_empty() {
        return Some(vec![base]);
    }
    Some(ranges.into_iter().map(|range| PacketMatch { ports: Some(range), ..base.clone() }).collect())
}
