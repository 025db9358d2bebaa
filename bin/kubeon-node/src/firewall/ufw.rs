//! Rules of ufw. Each change is one call, because ufw takes one rule at a time.

use std::collections::BTreeSet;
use std::time::Instant;

use kubeon_wire::{PacketMatch, StepFailure};

use super::rule::{FirewallRule, must, ports, source};

/// The comment at every rule of kubeon, for people.
const COMMENT: [&str; 2] = ["comment", "kubeon"];

/// The rule that lets the packets in, as `ufw show added` prints it, without `ufw`.
pub(super) fn rule(packets: &PacketMatch) -> Option<String> {
    let (protocol, ports) = ports(packets, ':')?;
    Some(match source(packets) {
        Some(source) => format!("allow from {source} to any port {ports} proto {protocol}"),
        None => format!("allow {ports}/{protocol}"),
    })
}

/// The rules of ufw for a rule.
fn texts(rule: &FirewallRule) -> Vec<String> {
    match rule {
        FirewallRule::LetIn(text) => vec![text.clone()],
        FirewallRule::PodLink(link) => {
            vec![format!("allow in on {link}"), format!("route allow in on {link}")]
        }
    }
}

/// The rules of `wanted` that ufw has.
pub(super) fn present(
    wanted: &BTreeSet<FirewallRule>,
    deadline: Instant,
) -> Result<BTreeSet<FirewallRule>, StepFailure> {
    let output = must("ufw", &["show", "added"], deadline)?;
    let known = known(&output);
    let has = |rule: &&FirewallRule| texts(rule).iter().all(|text| known.contains(text.as_str()));
    Ok(wanted.iter().filter(has).cloned().collect())
}

/// The rules in the output of `ufw show added`, without their comments.
fn known(output: &str) -> BTreeSet<&str> {
    let rule = |line| {
        let rule = str::strip_prefix(line, "ufw ")?;
        Some(rule.split(" comment ").next().unwrap_or(rule).trim())
    };
    output.lines().filter_map(rule).collect()
}

/// Adds a rule. ufw skips a rule that it has.
pub(super) fn add(rule: &FirewallRule, deadline: Instant) -> Result<(), StepFailure> {
    texts(rule).iter().try_for_each(|text| {
        let words: Vec<&str> = text.split(' ').chain(COMMENT).collect();
        must("ufw", &words, deadline).map(drop)
    })
}

/// Removes a rule, if ufw has it.
pub(super) fn remove(rule: &FirewallRule, deadline: Instant) -> Result<(), StepFailure> {
    let output = must("ufw", &["show", "added"], deadline)?;
    let known = known(&output);
    texts(rule)
        .iter()
        .filter(|text| known.contains(text.as_str()))
        .try_for_each(|text| must("ufw", &removal(text), deadline).map(drop))
}

/// The arguments that remove a rule: `route delete allow …`, or `delete allow …`.
fn removal(text: &str) -> Vec<&str> {
    match text.strip_prefix("route ") {
        Some(rest) => ["route", "delete"].into_iter().chain(rest.split(' ')).collect(),
        None => std::iter::once("delete").chain(text.split(' ')).collect(),
    }
}

#[cfg(test)]
mod tests {
    use kubeon_wire::Transport;

    use super::super::rule::tests::packets;
    use super::*;

    #[test]
    fn a_rule_has_the_form_in_which_ufw_lists_it() {
        let of_a_host = packets(Some("10.0.0.2/32"), Transport::Tcp, (2379, 2380));
        assert_eq!(rule(&of_a_host).unwrap(), "allow from 10.0.0.2 to any port 2379:2380 proto tcp");
        assert_eq!(rule(&packets(None, Transport::Tcp, (6443, 6443))).unwrap(), "allow 6443/tcp");
    }

    #[test]
    fn rules_are_known_whatever_their_comments() {
        let output = "Added user rules (see 'ufw status' for running firewall):\n\
                      ufw allow 22/tcp\n\
                      ufw allow in on cni0 comment 'kubeon'\n\
                      ufw route allow in on cni0 comment 'kubeon'\n";
        assert_eq!(known(output), ["allow 22/tcp", "allow in on cni0", "route allow in on cni0"].into());
        assert_eq!(removal("route allow in on cni0"), ["route", "delete", "allow", "in", "on", "cni0"]);
        assert_eq!(removal("allow 22/tcp"), ["delete", "allow", "22/tcp"]);
    }
}
