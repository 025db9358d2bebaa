//! The rules of ufw, as `ufw status verbose` prints them.

use kubeon_wire::{FirewallFact, FirewallProgram, PacketMatch, Transport};

use super::matches::{network, ports, transport};

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
    let (mut lets_in_rest, mut forwards_rest) = (None, None);
    for line in lines {
        if let Some(policies) = line.trim().strip_prefix("Default: ") {
            let allows = |direction| policies.contains(&format!("allow ({direction})"));
            lets_in_rest = allows("incoming").then(PacketMatch::default);
            forwards_rest = allows("routed").then(PacketMatch::default);
        } else {
            add(&mut fact, line);
        }
    }
    fact.lets_in.extend(lets_in_rest);
    fact.forwards.extend(forwards_rest);
    Some(fact)
}

/// The words of ufw about packets, whether they are forwarded, and whether they are refused.
const ACTIONS: [(&str, bool, bool); 7] = [
    ("ALLOW IN", false, false),
    ("LIMIT IN", false, false),
    ("DENY IN", false, true),
    ("REJECT IN", false, true),
    ("ALLOW FWD", true, false),
    ("DENY FWD", true, true),
    ("REJECT FWD", true, true),
];

/// `TO   ALLOW IN   FROM   # comment`.
fn add(fact: &mut FirewallFact, line: &str) {
    let line = line.split(" # ").next().unwrap_or_default();
    let rule = ACTIONS.iter().find_map(|(action, forwarded, denied)| {
        Some((line.split_once(&format!(" {action} "))?, *forwarded, *denied))
    });
    let Some(((to, from), forwarded, denied)) = rule.filter(|_| !line.contains("(v6)")) else { return };
    // A rule that refuses packets to one address leaves the other addresses of the host open.
    if denied && to.split([' ', '/']).any(|word| network(word).is_some()) {
        return;
    }
    let Some(packets) = matches(to.trim(), from.trim(), forwarded) else { return };
    let packets = packets.into_iter().map(|packets| PacketMatch { denied, ..packets });
    if forwarded { fact.forwards.extend(packets) } else { fact.lets_in.extend(packets) }
}

/// The packets of a rule; `None` if it is not understood.
fn matches(to: &str, from: &str, forwarded: bool) -> Option<Vec<PacketMatch>> {
    let (to, from) = (without_remarks(to), without_remarks(from));
    let ((to, to_link), (from, from_link)) = (link(&to), link(&from));
    let link = if forwarded { from_link } else { to_link }.map(str::to_owned);
    let (from, _) = protocol(from);
    let source = if from == "Anywhere" { None } else { Some(network(from)?) };
    let (to, transport) = protocol(to);
    let base = PacketMatch { source, link, transport, ..PacketMatch::default() };
    let ports_of = |list: &str| -> Option<Vec<PacketMatch>> {
        list.split(',').map(|text| Some(PacketMatch { ports: Some(ports(text)?), ..base.clone() })).collect()
    };
    match to.split_whitespace().collect::<Vec<_>>()[..] {
        ["Anywhere"] => Some(vec![base]),
        // A rule about one destination of forwarded packets lets others pass no better.
        _ if forwarded => None,
        [address] if network(address).is_some() => Some(vec![base]),
        [list] => ports_of(list),
        [address, list] if network(address).is_some() => ports_of(list),
        _ => None,
    }
}

/// The text without the name of an application and the word about the log, which are in parentheses.
fn without_remarks(column: &str) -> String {
    let mut parts = column.split('(');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// The text before the protocol, and the protocol.
fn protocol(text: &str) -> (&str, Option<Transport>) {
    let text = text.trim();
    let split = text.rsplit_once('/').and_then(|(rest, name)| Some((rest, Some(transport(name)?))));
    split.unwrap_or((text, None))
}

/// The part before ` on LINK`, and the link.
fn link(column: &str) -> (&str, Option<&str>) {
    column.split_once(" on ").map_or((column, None), |(rest, link)| (rest, Some(link.trim())))
}
