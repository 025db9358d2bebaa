//! Rules of firewalld, in its permanent configuration and at run time. A reload would drop rules that other programs
//! added at run time, so there is one only at the end, and only if there are no such rules.

use std::collections::BTreeSet;
use std::time::Instant;

use kubeon_wire::{PacketMatch, StepFailure};

use super::rule::{FirewallRule, must, ports, source};
use crate::command::{run, step_failure};
use crate::durable::{read_text, remove_file};
use crate::root::Root;

/// The zone that lets everything pass.
const TRUSTED: &str = "trusted";
/// Both configurations: the one that the next start reads, and the one in use.
const CONFIGURATIONS: [&[&str]; 2] = [&["--permanent"], &[]];
/// Rules in one call: the length of a command line is limited.
const RULES_IN_A_CALL: usize = 200;

/// What a reload makes the same as in the permanent configuration.
const KEPT_BY_A_RELOAD: [&[&str]; 5] = [
    &["--list-all-zones"],
    &["--list-all-policies"],
    &["--direct", "--get-all-rules"],
    &["--direct", "--get-all-chains"],
    &["--direct", "--get-all-passthroughs"],
];

/// Zones that the owner changed, and those that firewalld brings. A changed zone hides the other one.
const CHANGED_ZONES: &str = "/etc/firewalld/zones";
const DEFAULT_ZONES: &str = "/usr/lib/firewalld/zones";

/// The files with the changed zones, and their copies before the last change, that do not exist.
pub(super) fn absent_files(root: &Root, zone: &str) -> BTreeSet<String> {
    let files = [zone, TRUSTED].into_iter().flat_map(|zone| {
        let file = format!("{CHANGED_ZONES}/{zone}.xml");
        [format!("{file}.old"), file]
    });
    files.filter(|file| !root.at(file).exists()).collect()
}

/// Removes the `new_files` of zones that are as firewalld brings them. firewalld keeps them when the last rule is removed.
///
/// # Errors
/// If a file cannot be read or removed.
pub(super) fn remove_copies_of_defaults(
    root: &Root,
    new_files: &BTreeSet<String>,
) -> Result<(), StepFailure> {
    for file in new_files.iter().filter(|file| file.ends_with(".xml")) {
        let default = file.replacen(CHANGED_ZONES, DEFAULT_ZONES, 1);
        let (changed, default) = (read_text(&root.at(file))?, read_text(&root.at(&default))?);
        if changed.is_none() || changed != default {
            continue;
        }
        remove_file(&root.at(file))?;
        let old = format!("{file}.old");
        if new_files.contains(&old) {
            remove_file(&root.at(&old))?;
        }
    }
    Ok(())
}

/// Lets firewalld make its packet rules again if a reload loses nothing. Otherwise it keeps rules of removed links, which match
/// no packet, until its next reload: it forgets which of them it made before its last start.
///
/// # Errors
/// If the reload fails.
pub(super) fn drop_rules_of_removed_links(deadline: Instant) -> Result<(), StepFailure> {
    let list = |arguments: &[&str]| {
        let done = run("firewall-cmd", arguments, None, deadline).map_err(step_failure)?;
        // Older versions know no policies.
        Ok::<_, StepFailure>(if done.success() { done.stdout } else { String::new() })
    };
    for what in KEPT_BY_A_RELOAD {
        let (in_use, permanent) = (list(what)?, list(&[&["--permanent"][..], what].concat())?);
        if comparable(&in_use) != comparable(&permanent) {
            return Ok(());
        }
    }
    // The entries of sets are not listed with the zones.
    if !list(&["--get-ipsets"])?.trim().is_empty() {
        return Ok(());
    }
    must("firewall-cmd", &["--reload"], deadline).map(drop)
}

/// A list without what differs between the two configurations of every host: links and sources make a zone active, and a
/// reload keeps the zones of links.
fn comparable(list: &str) -> Vec<&str> {
    let lines = list.lines().filter(|line| !line.trim_start().starts_with("interfaces:"));
    let marks = [" (active)", " (default, active)", " (default)"];
    lines.map(|line| marks.iter().find_map(|mark| line.strip_suffix(mark)).unwrap_or(line).trim()).collect()
}

/// The zone of a link: its own, or the default one.
pub(super) fn zone(link: &str, deadline: Instant) -> Result<String, StepFailure> {
    let own = format!("--get-zone-of-interface={link}");
    let found = run("firewall-cmd", &[&own], None, deadline).map_err(step_failure)?;
    let text =
        if found.success() { found.stdout } else { must("firewall-cmd", &["--get-default-zone"], deadline)? };
    Ok(text.trim().to_owned())
}

/// The rich rule that lets the packets in.
pub(super) fn rule(packets: &PacketMatch) -> Option<String> {
    let (protocol, ports) = ports(packets, '-')?;
    let source = source(packets).map(|source| format!(" source address=\"{source}\"")).unwrap_or_default();
    Some(format!("rule family=\"ipv4\"{source} port port=\"{ports}\" protocol=\"{protocol}\" accept"))
}

/// The rules of `wanted` that both configurations have.
pub(super) fn present(
    zone: &str,
    wanted: &BTreeSet<FirewallRule>,
    deadline: Instant,
) -> Result<BTreeSet<FirewallRule>, StepFailure> {
    let mut present = wanted.clone();
    for configuration in CONFIGURATIONS {
        let list = |zone: &str, what| {
            let zone = format!("--zone={zone}");
            must("firewall-cmd", &[configuration, &[&zone, what]].concat(), deadline)
        };
        let (rules, links) = (list(zone, "--list-rich-rules")?, list(TRUSTED, "--list-interfaces")?);
        let (rules, links): (BTreeSet<&str>, BTreeSet<&str>) =
            (rules.lines().map(str::trim).collect(), links.split_whitespace().collect());
        present.retain(|rule| match rule {
            FirewallRule::LetIn(text) => rules.contains(text.as_str()),
            FirewallRule::PodLink(link) => links.contains(link.as_str()),
        });
    }
    Ok(present)
}

/// Adds or removes the rules in both configurations. firewalld ignores what is done already.
pub(super) fn change(
    zone: &str,
    verb: &str,
    rules: &BTreeSet<FirewallRule>,
    deadline: Instant,
) -> Result<(), StepFailure> {
    let (mut in_zone, mut in_trusted) = (Vec::new(), Vec::new());
    for rule in rules {
        match rule {
            FirewallRule::LetIn(text) => in_zone.push(format!("--{verb}-rich-rule={text}")),
            FirewallRule::PodLink(link) => in_trusted.push(format!("--{verb}-interface={link}")),
        }
    }
    for (zone, options) in [(zone, in_zone), (TRUSTED, in_trusted)] {
        let zone = format!("--zone={zone}");
        for options in options.chunks(RULES_IN_A_CALL) {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            for configuration in CONFIGURATIONS {
                must("firewall-cmd", &[configuration, &[&zone], &options].concat(), deadline)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kubeon_wire::Transport;

    use super::super::rule::tests::packets;
    use super::*;

    #[test]
    fn a_zone_file_that_kubeon_caused_goes_when_it_is_the_default_again() {
        let bench = crate::testing::Bench::new();
        let root = &bench.host.root;
        let file = |zone: &str| format!("{CHANGED_ZONES}/{zone}.xml");
        bench.write(&file("public"), "<zone><!-- of the owner --></zone>");
        let new_files = absent_files(root, "public");
        let trusted = [file("trusted"), format!("{}.old", file("trusted"))];
        assert_eq!(
            new_files,
            [format!("{}.old", file("public"))].into_iter().chain(trusted.clone()).collect()
        );
        for zone in ["public", "trusted"] {
            bench.write(&format!("{DEFAULT_ZONES}/{zone}.xml"), "<zone/>");
            bench.write(&format!("{}.old", file(zone)), "<zone><interface name=\"cni0\"/></zone>");
        }
        bench.write(&file("trusted"), "<zone><service name=\"of-the-owner\"/></zone>");
        remove_copies_of_defaults(root, &new_files).unwrap();
        assert!(trusted.iter().all(|file| root.at(file).exists()), "the owner changed the zone since");
        bench.write(&file("trusted"), "<zone/>");
        remove_copies_of_defaults(root, &new_files).unwrap();
        assert!(trusted.iter().all(|file| !root.at(file).exists()));
        assert!(root.at(&file("public")).exists());
    }

    #[test]
    fn zones_are_compared_without_what_makes_them_active() {
        let in_use =
            "public (default, active)\n  interfaces: eth0\n  services: ssh\n\ntrusted\n  services: \n";
        let permanent = "public (default)\n  interfaces: \n  services: ssh\n\ntrusted\n  services: \n";
        assert_eq!(comparable(in_use), comparable(permanent));
        assert_ne!(comparable(in_use), comparable(&permanent.replace("ssh", "ssh http")));
    }

    #[test]
    fn a_rule_has_the_form_in_which_firewalld_lists_it() {
        assert_eq!(
            rule(&packets(Some("10.0.0.2/32"), Transport::Tcp, (2379, 2380))).unwrap(),
            "rule family=\"ipv4\" source address=\"10.0.0.2\" port port=\"2379-2380\" protocol=\"tcp\" accept"
        );
        assert_eq!(
            rule(&packets(None, Transport::Udp, (8472, 8472))).unwrap(),
            "rule family=\"ipv4\" port port=\"8472\" protocol=\"udp\" accept"
        );
        assert_eq!(rule(&PacketMatch::default()), None);
    }
}
