//! The rules of the chains `INPUT` and `FORWARD`, as `iptables -S` prints them.

use kubeon_wire::PacketMatch;

use super::matches::{Chain, network, ports, transport};

/// The chains with the name: one of each variant of iptables with rules. Each begins with its policy.
pub(super) fn chains(lines: &[&str], name: &str) -> Vec<Chain> {
    let (mut chains, mut ended) = (Vec::<Chain>::new(), false);
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["-P", own, policy] = words[..] {
            if own == name {
                chains.push(Chain { restricts: policy == "DROP", is_of_iptables: true, ..Chain::default() });
                ended = false;
            }
            continue;
        }
        let Some(chain) = chains.last_mut().filter(|_| !ended) else { continue };
        match words[..] {
            // Rules after one that refuses every packet have no effect.
            ["-A", own, "-j", "DROP" | "REJECT", ..] if own == name => {
                chain.restricts = true;
                ended = true;
            }
            ["-A", own, ref rule @ ..] if own == name => add(chain, rule),
            _ => {}
        }
    }
    chains
}

fn add(chain: &mut Chain, rule: &[&str]) {
    let target = rule.iter().skip_while(|word| !matches!(**word, "-j" | "-g")).nth(1);
    match target {
        Some(&"ACCEPT") => match matched(rule) {
            Some(passes) => chain.rules.extend(passes),
            None => chain.unclear |= !irrelevant(rule),
        },
        Some(&("DROP" | "REJECT")) => chain.deny(matched(rule)),
        Some(&"LOG") | None => {}
        Some(_) => chain.unclear = true,
    }
}

/// Whether the rule is about ICMP, or about packets of known connections only.
fn irrelevant(rule: &[&str]) -> bool {
    rule.iter().any(|word| *word == "icmp" || word.contains("ESTABLISHED") && !word.contains("NEW"))
}

/// The packets of a rule; `None` if it has other conditions.
fn matched(rule: &[&str]) -> Option<Vec<PacketMatch>> {
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
