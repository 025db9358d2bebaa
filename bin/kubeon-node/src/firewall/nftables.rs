//! Rules of a firewall that its owner loads with nft. A table of kubeon could not overrule a chain that drops packets, so
//! the rules are inserted at the begin of the owner's chains, each with a comment by which it is found again.

use std::collections::BTreeSet;
use std::time::Instant;

use kubeon_wire::{PacketMatch, StepFailure};
use serde_json::Value;

use super::rule::{FirewallRule, must, must_with, ports, source};
use crate::failure::failed;

/// Begin of the comment at every rule of kubeon.
const COMMENT: &str = "kubeon: ";
/// Begins of the names of tables that programs of the cluster own.
const OF_CLUSTER: [&str; 3] = ["kube-", "flannel", "cni_"];

/// A chain through which packets to the host or through it go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BaseChain {
    family: String,
    table: String,
    name: String,
    hook: String,
}

impl BaseChain {
    /// `inet filter input`.
    fn path(&self) -> String {
        format!("{} {} {}", self.family, self.table, self.name)
    }
}

/// The rule that lets the packets in.
pub(super) fn rule(packets: &PacketMatch) -> Option<String> {
    let (protocol, ports) = ports(packets, '-')?;
    let source = source(packets).map(|source| format!("ip saddr {source} ")).unwrap_or_default();
    Some(format!("{source}{protocol} dport {ports}"))
}

/// The chains of the owner.
pub(super) fn chains(deadline: Instant) -> Result<Vec<BaseChain>, StepFailure> {
    let listed = json(&must("nft", &["-j", "list", "chains"], deadline)?)?;
    Ok(objects(&listed, "chain").filter_map(owned).collect())
}

/// Whether the chain `INPUT` of iptables refuses what no rule lets in.
pub(super) fn is_closed_by_iptables(deadline: Instant) -> Result<bool, StepFailure> {
    let listed = json(&must("nft", &["-j", "list", "chains"], deadline)?)?;
    Ok(objects(&listed, "chain").any(is_closed_input_of_iptables))
}

fn is_closed_input_of_iptables(chain: &Value) -> bool {
    chain["family"] == "ip"
        && chain["name"] == "INPUT"
        && chain["hook"] == "input"
        && chain["policy"] == "drop"
}

/// The chain, if it belongs to the owner. The tables of iptables have chains in capitals, and nft must not change them.
fn owned(chain: &Value) -> Option<BaseChain> {
    let text = |field: &str| Some(chain[field].as_str()?.to_owned());
    let (family, table, name, hook) = (text("family")?, text("table")?, text("name")?, text("hook")?);
    let is_filter = chain["type"] == "filter" && ["input", "forward"].contains(&hook.as_str());
    let is_ip = ["ip", "inet"].contains(&family.as_str());
    let of_cluster = OF_CLUSTER.iter().any(|prefix| table.starts_with(prefix));
    let of_iptables = name == hook.to_uppercase();
    let owned = is_filter && is_ip && !of_cluster && !of_iptables;
    owned.then_some(BaseChain { family, table, name, hook })
}

/// The rules of nft for a rule, with the hook of their chains.
fn texts(rule: &FirewallRule) -> Vec<(&'static str, String)> {
    match rule {
        FirewallRule::LetIn(text) => vec![("input", text.clone())],
        FirewallRule::PodLink(link) => vec![
            ("input", format!("iifname {link}")),
            ("forward", format!("iifname {link}")),
            ("forward", format!("oifname {link}")),
        ],
    }
}

/// The rules of `wanted` that every chain has.
pub(super) fn present(
    wanted: &BTreeSet<FirewallRule>,
    deadline: Instant,
) -> Result<BTreeSet<FirewallRule>, StepFailure> {
    let chains = chains(deadline)?;
    let own = chains
        .iter()
        .map(|chain| Ok((chain, own_rules(chain, deadline)?)))
        .collect::<Result<Vec<_>, StepFailure>>()?;
    let has = |hook: &str, text: &str| {
        let mut of_hook = own.iter().filter(|(chain, _)| chain.hook == hook);
        of_hook.all(|(_, rules)| rules.iter().any(|(own, _)| own == text))
    };
    let complete = |rule: &&FirewallRule| texts(rule).iter().all(|(hook, text)| has(hook, text));
    Ok(wanted.iter().filter(complete).cloned().collect())
}

/// Inserts rules, all or none of them.
pub(super) fn add(rules: &BTreeSet<FirewallRule>, deadline: Instant) -> Result<(), StepFailure> {
    let mut commands = String::new();
    for chain in chains(deadline)? {
        let own = own_rules(&chain, deadline)?;
        let texts = rules.iter().flat_map(texts).filter(|(hook, _)| *hook == chain.hook);
        for (_, text) in texts.filter(|(_, text)| !own.iter().any(|(own, _)| own == text)) {
            commands += &format!("insert rule {} {text} accept comment \"{COMMENT}{text}\"\n", chain.path());
        }
    }
    apply(commands, deadline)
}

/// Removes rules, if the chains have them.
pub(super) fn remove(rules: &BTreeSet<FirewallRule>, deadline: Instant) -> Result<(), StepFailure> {
    let texts: BTreeSet<(&str, String)> = rules.iter().flat_map(texts).collect();
    let mut commands = String::new();
    for chain in chains(deadline)? {
        for (text, handle) in own_rules(&chain, deadline)? {
            if texts.contains(&(chain.hook.as_str(), text)) {
                commands += &format!("delete rule {} handle {handle}\n", chain.path());
            }
        }
    }
    apply(commands, deadline)
}

fn apply(commands: String, deadline: Instant) -> Result<(), StepFailure> {
    if commands.is_empty() {
        return Ok(());
    }
    must_with("nft", &["-f", "-"], Some(commands), deadline).map(drop)
}

/// The rules of kubeon in a chain, with their handles.
fn own_rules(chain: &BaseChain, deadline: Instant) -> Result<Vec<(String, u64)>, StepFailure> {
    let BaseChain { family, table, name, .. } = chain;
    let listed = json(&must("nft", &["-j", "-a", "list", "chain", family, table, name], deadline)?)?;
    Ok(rules_with_comment(&listed))
}

fn rules_with_comment(listed: &Value) -> Vec<(String, u64)> {
    let own = |rule: &Value| {
        let text = rule["comment"].as_str()?.strip_prefix(COMMENT)?;
        Some((text.to_owned(), rule["handle"].as_u64()?))
    };
    objects(listed, "rule").filter_map(own).collect()
}

fn json(text: &str) -> Result<Value, StepFailure> {
    serde_json::from_str(text).map_err(|error| failed(format!("nft printed no JSON: {error}")))
}

fn objects<'a>(listed: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let objects = listed["nftables"].as_array().into_iter().flatten();
    objects.filter_map(move |object| object.get(kind))
}

#[cfg(test)]
mod tests {
    use kubeon_wire::Transport;
    use serde_json::json;

    use super::super::rule::tests::packets;
    use super::*;

    #[test]
    fn rules_have_the_form_of_nft() {
        let of_a_host = packets(Some("10.0.0.2/32"), Transport::Tcp, (2379, 2380));
        assert_eq!(rule(&of_a_host).unwrap(), "ip saddr 10.0.0.2 tcp dport 2379-2380");
        assert_eq!(rule(&packets(None, Transport::Udp, (8472, 8472))).unwrap(), "udp dport 8472");
    }

    #[test]
    fn only_chains_of_the_owner_are_changed() {
        let chain = |family: &str, table: &str, name: &str, hook: &str| json!({ "family": family, "table": table, "name": name, "type": "filter", "hook": hook, "prio": 0 });
        let own = owned(&chain("inet", "filter", "input", "input")).unwrap();
        assert_eq!((own.path().as_str(), own.hook.as_str()), ("inet filter input", "input"));
        for (family, table, name, hook) in [
            ("ip", "kube-proxy", "filter-input", "input"),
            ("ip", "filter", "INPUT", "input"),
            ("ip6", "filter", "input", "input"),
            ("inet", "filter", "output", "output"),
            ("inet", "flannel-ipv4", "forward", "forward"),
        ] {
            assert_eq!(owned(&chain(family, table, name, hook)), None, "{family} {table} {name}");
        }
        assert_eq!(owned(&json!({ "family": "inet", "table": "filter", "name": "logged" })), None);
    }

    #[test]
    fn the_policy_of_iptables_closes_a_host() {
        let chain = |name: &str, policy: &str| json!({ "family": "ip", "table": "filter", "name": name, "type": "filter", "hook": "input", "prio": 0, "policy": policy });
        assert!(is_closed_input_of_iptables(&chain("INPUT", "drop")));
        assert!(!is_closed_input_of_iptables(&chain("INPUT", "accept")));
        assert!(!is_closed_input_of_iptables(&chain("input", "drop")), "a chain of the owner");
        assert!(!is_closed_input_of_iptables(&json!({ "family": "ip", "table": "filter", "name": "INPUT" })));
    }

    #[test]
    fn own_rules_are_found_by_their_comment() {
        let listed = json!({ "nftables": [
            { "metainfo": {} },
            { "rule": { "handle": 4, "expr": [], "comment": "of the owner" } },
            { "rule": { "handle": 9, "expr": [], "comment": "kubeon: iifname cni0" } },
            { "rule": { "handle": 5, "expr": [] } },
        ]});
        assert_eq!(rules_with_comment(&listed), [("iifname cni0".to_owned(), 9)]);
    }
}
