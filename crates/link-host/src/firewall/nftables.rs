//! Base chains of nftables with the hooks `input` and `forward`, as `nft list chain` prints them.

use kubeon_wire::PacketMatch;

use super::matches::{Chain, network, ports, transport};

/// The chains of the hook.
pub(super) fn chains(lines: &[&str], hook: &str) -> Vec<Chain> {
    let ends = |line: &&str| line.starts_with('}');
    let tables = lines.split_inclusive(ends).filter(|lines| is_for_ipv4(lines));
    tables.filter_map(|lines| chain(lines, hook)).collect()
}

fn is_for_ipv4(table: &[&str]) -> bool {
    table.iter().any(|line| line.starts_with("table ip ") || line.starts_with("table inet "))
}

/// The chain in these lines; `None` if it has another hook.
fn chain(lines: &[&str], hook: &str) -> Option<Chain> {
    let mut rules = lines.iter().map(|line| line.trim());
    let head = rules.find(|line| line.starts_with("type filter hook "))?;
    if head.split_whitespace().nth(3) != Some(hook) {
        return None;
    }
    // The chains of iptables have names in capitals. Its program is missing on the host, so nft was asked.
    let is_of_iptables = lines.iter().any(|line| matches!(line.trim(), "chain INPUT {" | "chain FORWARD {"));
    let mut chain = Chain { restricts: head.contains("policy drop"), is_of_iptables, ..Chain::default() };
    for rule in rules.take_while(|line| *line != "}") {
        let words = words(rule);
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            // Rules after one that refuses every packet have no effect.
            ["drop"] | ["reject", ..] => {
                chain.restricts = true;
                break;
            }
            ref words => add(&mut chain, words),
        }
    }
    Some(chain)
}

/// The words of a rule without counters and comments. A set in braces is one word.
fn words(rule: &str) -> Vec<String> {
    let rule = rule.split(" comment \"").next().unwrap_or_default();
    let (mut words, mut open) = (Vec::<String>::new(), false);
    for word in rule.split_whitespace() {
        match (open, words.last_mut()) {
            (true, Some(last)) => last.push_str(word),
            _ => words.push(word.to_owned()),
        }
        open = (open || word.starts_with('{')) && !word.ends_with('}');
    }
    if let Some(at) = words.iter().position(|word| word == "counter") {
        let counted = words.get(at + 1).is_some_and(|word| word == "packets");
        words.drain(at..(at + if counted { 5 } else { 1 }).min(words.len()));
    }
    words
}

fn add(chain: &mut Chain, rule: &[&str]) {
    match rule.last() {
        Some(&"accept") => match matched(&rule[..rule.len() - 1]) {
            Some(passes) => chain.rules.extend(passes),
            None => chain.unclear |= !irrelevant(rule),
        },
        _ if rule.iter().any(|word| matches!(*word, "jump" | "goto")) => chain.unclear = true,
        _ if rule.contains(&"vmap") => chain.unclear |= !irrelevant(rule),
        _ => {
            if let Some(end) = rule.iter().position(|word| matches!(*word, "drop" | "reject")) {
                chain.deny(matched(&rule[..end]));
            }
        }
    }
}

/// Whether the rule is about ICMP or IPv6, or about packets of known connections only.
fn irrelevant(rule: &[&str]) -> bool {
    if rule.iter().any(|word| word.contains("icmp") || *word == "ip6") {
        return true;
    }
    let states = rule.iter().skip_while(|word| **word != "state").skip(1);
    rule.starts_with(&["ct", "state"]) && !states.clone().any(|word| word.contains("new"))
}

/// The packets that match the conditions; `None` if one of them is not understood.
fn matched(conditions: &[&str]) -> Option<Vec<PacketMatch>> {
    let mut all = vec![PacketMatch::default()];
    let mut rest = conditions;
    while !rest.is_empty() {
        let each: Vec<PacketMatch>;
        (each, rest) = match rest {
            ["ip", "saddr", value, rest @ ..] => {
                let of = |word| Some(PacketMatch { source: Some(network(word)?), ..PacketMatch::default() });
                (set(value).map(of).collect::<Option<_>>()?, rest)
            }
            ["iifname" | "iif", value, rest @ ..] => {
                let link = |word: &str| Some(word.trim_matches('"').to_owned());
                (
                    set(value)
                        .map(|word| PacketMatch { link: link(word), ..PacketMatch::default() })
                        .collect(),
                    rest,
                )
            }
            ["meta", "l4proto", value, rest @ ..] | ["ip", "protocol", value, rest @ ..] => {
                let of =
                    |word| Some(PacketMatch { transport: Some(transport(word)?), ..PacketMatch::default() });
                (set(value).map(of).collect::<Option<_>>()?, rest)
            }
            [protocol, "dport", value, rest @ ..] => {
                let transport = Some(transport(protocol)?);
                let of = |word| {
                    Some(PacketMatch { transport, ports: Some(ports(word)?), ..PacketMatch::default() })
                };
                (set(value).map(of).collect::<Option<_>>()?, rest)
            }
            ["ct", "state", value, rest @ ..] if value.contains("new") => {
                (vec![PacketMatch::default()], rest)
            }
            _ => return None,
        };
        all = all.iter().flat_map(|one| each.iter().map(|other| joined(one, other))).collect();
    }
    Some(all)
}

fn joined(one: &PacketMatch, other: &PacketMatch) -> PacketMatch {
    PacketMatch {
        source: other.source.or(one.source),
        link: other.link.clone().or_else(|| one.link.clone()),
        transport: other.transport.or(one.transport),
        ports: other.ports.or(one.ports),
        denied: false,
    }
}

/// The elements of `{a,b}`, or the word itself. Names of sets are elements that no parser accepts.
fn set(word: &str) -> impl Iterator<Item = &str> {
    word.trim_matches(['{', '}']).split(',').filter(|word| !word.is_empty())
}
