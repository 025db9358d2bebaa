//! The rules of ufw, as `ufw status verbose` prints them.

use kubeon_wire::{FirewallFact, FirewallProgram, PacketMatch};

use super::{network, ports, transport};

/// The rules; `None` if ufw is not active.
pub(super) fn read(lines: &[&str]) -> Option<FirewallFact> {
    if !lines.iter().any(|line| line.trim() == "Status: active") {
        return None;
    }
    let mut fact = FirewallFact {
        program: FirewallProgram::Ufw,
        lets_in: Vec::new(),
        forwards: Vec::new(),
        understood: true,
    };
    for line in lines {
        if let Some(policies) = line.trim().strip_prefix("Default: ") {
            let allows = |direction| policies.contains(&format!("allow ({direction})"));
            fact.lets_in.extend(allows("incoming").then(PacketMatch::default));
            fact.forwards.extend(allows("routed").then(PacketMatch::default));
        } else {
            add(&mut fact, line);
        }
    }
    Some(fact)
}

/// `TO   ALLOW IN   FROM   # comment`.
fn add(fact: &mut FirewallFact, line: &str) {
    let line = line.split(" # ").next().unwrap_or_default();
    let rule = ["ALLOW IN ", "LIMIT IN ", "ALLOW FWD "]
        .iter()
        .find_map(|action| Some((line.split_once(&format!(" {action}"))?, action.contains("FWD"))));
    let Some(((to, from), forwarded)) = rule.filter(|_| !line.contains("(v6)")) else { return };
    let Some(passes) = matches(to.trim(), from.trim(), forwarded) else { return };
    if forwarded { fact.forwards.extend(passes) } else { fact.lets_in.extend(passes) }
}

/// The packets of a rule; `None` if it is not understood, such as the name of an application.
fn matches(to: &str, from: &str, forwarded: bool) -> Option<Vec<PacketMatch>> {
    let ((to, out), (from, arrives)) = (link(to), link(from));
    let source = match from.split_whitespace().collect::<Vec<_>>()[..] {
        ["Anywhere"] => None,
        [address] => Some(network(address)?),
        _ => return None,
    };
    let link = if forwarded { arrives } else { out.or(arrives) }.map(str::to_owned);
    let base = PacketMatch { source, link, ..PacketMatch::default() };
    let destination = match to.split_whitespace().collect::<Vec<_>>()[..] {
        ["Anywhere"] => return Some(vec![base]),
        [only] if network(only).is_some() => return Some(vec![base]).filter(|_| !forwarded),
        [ports] => ports,
        [address, ports] if network(address).is_some() && !forwarded => ports,
        _ => return None,
    };
    let (list, protocol) = destination.split_once('/').map_or((destination, None), |(list, p)| (list, Some(p)));
    let transport = match protocol {
        Some(protocol) => Some(transport(protocol)?),
        None => None,
    };
    let range = |text: &str| Some(PacketMatch { transport, ports: Some(ports(text)?), ..base.clone() });
    list.split(',').map(range).collect()
}

/// The part before ` on LINK`, and the link.
fn link(column: &str) -> (&str, Option<&str>) {
    column.split_once(" on ").map_or((column, None), |(rest, link)| (rest, Some(link.trim())))
}
