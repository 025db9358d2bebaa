//! Opens the active firewall of a host for a cluster, and closes it again. Rules of the owner are never changed: what
//! kubeon adds is recorded before it is added, and only recorded rules are removed.
//!
//! ```text
//!   wanted rules ─► those that are missing ─► firewall.json ─► add       no longer wanted, or reset ─► remove
//! ```

mod firewalld;
mod nftables;
mod rule;
mod ufw;

use std::collections::BTreeSet;
use std::time::Instant;

use kubeon_wire::{FirewallProgram, PacketMatch, StepFailure};
use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::durable::{read_text, write_file};
use crate::failure::failed;
use crate::job::{Job, StepEffect};
use crate::paths;
use crate::root::Root;
use rule::FirewallRule;

/// The rules that kubeon added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Added {
    program: FirewallProgram,
    /// The zone of firewalld that has the rules about ports.
    zone: String,
    rules: BTreeSet<FirewallRule>,
    /// Files of firewalld that did not exist before the first rule.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    new_files: BTreeSet<String>,
}

/// Adds the rules that are missing in the active firewall, and removes those that an earlier run added and that are no
/// longer wanted. A host without an active firewall is left as it is.
///
/// # Errors
/// If only rules of iptables refuse packets, the firewall refuses a rule, or the record cannot be read or written.
pub fn open(
    job: &Job<'_>,
    link: &str,
    lets_in: &[PacketMatch],
    pod_links: &[String],
) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let recorded = read(root)?;
    let Some(program) = active(root, job.deadline)? else {
        if is_closed_by_iptables(root, job.deadline)? {
            let why = "rules of iptables refuse the packets of other hosts, and kubeon adds no rules to them";
            return Err(failed(why));
        }
        job.note("the host has no active firewall of firewalld, ufw or nft");
        return Ok(StepEffect::default());
    };
    let firewall = Firewall::of(program, link, job.deadline)?;
    let wanted: BTreeSet<FirewallRule> = lets_in
        .iter()
        .filter_map(|packets| firewall.rule(packets))
        .map(FirewallRule::LetIn)
        .chain(pod_links.iter().cloned().map(FirewallRule::PodLink))
        .collect();
    let own = recorded.filter(|added| (added.program, &added.zone) == (program, &firewall.zone));
    let (own, new_files) = match own {
        Some(added) => (added.rules, added.new_files),
        None => (BTreeSet::new(), firewall.absent_files(root)),
    };
    let present = firewall.present(&wanted)?;
    let missing: BTreeSet<FirewallRule> = wanted.difference(&present).cloned().collect();
    let obsolete: BTreeSet<FirewallRule> = own.difference(&wanted).cloned().collect();
    let added = |rules| Added { program, zone: firewall.zone.clone(), rules, new_files: new_files.clone() };
    // Before the change, so that an interrupted step leaves no rule that nobody removes.
    write(root, &added(own.union(&missing).cloned().collect()))?;
    firewall.add(&missing)?;
    firewall.remove(&obsolete)?;
    write(root, &added(own.union(&missing).filter(|rule| wanted.contains(rule)).cloned().collect()))?;
    Ok(StepEffect { changed: !missing.is_empty() || !obsolete.is_empty(), marks: Vec::new() })
}

/// Adds the recorded rules that are missing: at boot, and after the owner loaded the rules again. firewalld and ufw keep
/// their rules themselves.
///
/// # Errors
/// If the record cannot be read, or the firewall refuses a rule.
pub fn restore(root: &Root, deadline: Instant) -> Result<(), StepFailure> {
    match read(root)? {
        Some(Added { program: FirewallProgram::Nftables, rules, .. }) if root.is_live() => {
            nftables::add(&rules, deadline)
        }
        _ => Ok(()),
    }
}

/// Removes every rule that kubeon added.
///
/// # Errors
/// If the record cannot be read, or the firewall refuses to remove a rule.
pub fn close(root: &Root, deadline: Instant) -> Result<(), StepFailure> {
    match read(root)? {
        Some(Added { program, zone, rules, new_files }) if root.is_live() => {
            Firewall { program, zone, deadline }.remove(&rules)?;
            firewalld::remove_copies_of_defaults(root, &new_files)?;
            if program == FirewallProgram::Firewalld {
                firewalld::drop_rules_of_removed_links(deadline)
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

/// A firewall and the zone of the host's link.
struct Firewall {
    program: FirewallProgram,
    zone: String,
    deadline: Instant,
}

impl Firewall {
    fn of(program: FirewallProgram, link: &str, deadline: Instant) -> Result<Self, StepFailure> {
        let zone = if program == FirewallProgram::Firewalld {
            firewalld::zone(link, deadline)?
        } else {
            String::new()
        };
        Ok(Self { program, zone, deadline })
    }

    /// The files that adding rules may create.
    fn absent_files(&self, root: &Root) -> BTreeSet<String> {
        let has_files = self.program == FirewallProgram::Firewalld;
        if has_files { firewalld::absent_files(root, &self.zone) } else { BTreeSet::new() }
    }

    /// The rule for packets to ports; `None` for other packets.
    fn rule(&self, packets: &PacketMatch) -> Option<String> {
        match self.program {
            FirewallProgram::Firewalld => firewalld::rule(packets),
            FirewallProgram::Ufw => ufw::rule(packets),
            FirewallProgram::Nftables | FirewallProgram::Iptables => nftables::rule(packets),
        }
    }

    /// The rules of `wanted` that it has.
    fn present(&self, wanted: &BTreeSet<FirewallRule>) -> Result<BTreeSet<FirewallRule>, StepFailure> {
        match self.program {
            FirewallProgram::Firewalld => firewalld::present(&self.zone, wanted, self.deadline),
            FirewallProgram::Ufw => ufw::present(wanted, self.deadline),
            FirewallProgram::Nftables | FirewallProgram::Iptables => nftables::present(wanted, self.deadline),
        }
    }

    fn add(&self, rules: &BTreeSet<FirewallRule>) -> Result<(), StepFailure> {
        match self.program {
            FirewallProgram::Firewalld => firewalld::change(&self.zone, "add", rules, self.deadline),
            FirewallProgram::Ufw => rules.iter().try_for_each(|rule| ufw::add(rule, self.deadline)),
            FirewallProgram::Nftables | FirewallProgram::Iptables => nftables::add(rules, self.deadline),
        }
    }

    fn remove(&self, rules: &BTreeSet<FirewallRule>) -> Result<(), StepFailure> {
        match self.program {
            FirewallProgram::Firewalld => firewalld::change(&self.zone, "remove", rules, self.deadline),
            FirewallProgram::Ufw => rules.iter().try_for_each(|rule| ufw::remove(rule, self.deadline)),
            FirewallProgram::Nftables | FirewallProgram::Iptables => nftables::remove(rules, self.deadline),
        }
    }
}

/// The program that owns the active firewall.
///
/// # Errors
/// If nft cannot list the chains: that they are open is not known then.
fn active(root: &Root, deadline: Instant) -> Result<Option<FirewallProgram>, StepFailure> {
    if !root.is_live() {
        return Ok(None);
    }
    let succeeds = |program, arguments: &[&str]| {
        run(program, arguments, None, deadline).is_ok_and(|done| done.success())
    };
    if succeeds("systemctl", &["--quiet", "is-active", "firewalld"]) {
        return Ok(Some(FirewallProgram::Firewalld));
    }
    let status = run("ufw", &["status"], None, deadline);
    if status.is_ok_and(|status| status.stdout.contains("Status: active")) {
        return Ok(Some(FirewallProgram::Ufw));
    }
    if !succeeds("nft", &["--version"]) {
        return Ok(None);
    }
    let chains = nftables::chains(deadline)?;
    Ok((!chains.is_empty()).then_some(FirewallProgram::Nftables))
}

/// Whether the policy of iptables refuses packets to the host, on a host without another firewall.
fn is_closed_by_iptables(root: &Root, deadline: Instant) -> Result<bool, StepFailure> {
    let has_nft = || run("nft", &["--version"], None, deadline).is_ok_and(|done| done.success());
    if root.is_live() && has_nft() { nftables::is_closed_by_iptables(deadline) } else { Ok(false) }
}

fn read(root: &Root) -> Result<Option<Added>, StepFailure> {
    let Some(text) = read_text(&root.at(paths::FIREWALL))? else { return Ok(None) };
    let unreadable = |error| failed(format!("cannot read {}: {error}", paths::FIREWALL));
    serde_json::from_str(&text).map(Some).map_err(unreadable)
}

fn write(root: &Root, added: &Added) -> Result<(), StepFailure> {
    let text = serde_json::to_vec(added)
        .map_err(|error| failed(format!("cannot encode the rules of the firewall: {error}")))?;
    write_file(&root.at(paths::FIREWALL), &text, 0o600)
}

#[cfg(test)]
mod tests {
    use kubeon_wire::Transport;

    use super::rule::tests::packets;
    use super::*;

    #[test]
    fn the_record_is_read_as_it_was_written() {
        let bench = crate::testing::Bench::new();
        let root = &bench.host.root;
        assert_eq!(read(root).unwrap(), None);
        let rules = [FirewallRule::PodLink("cni0".into()), FirewallRule::LetIn("a rule".into())].into();
        let new_files = ["/etc/firewalld/zones/public.xml".to_owned()].into();
        let added = Added { program: FirewallProgram::Firewalld, zone: "public".into(), rules, new_files };
        write(root, &added).unwrap();
        assert_eq!(read(root).unwrap(), Some(added));
        bench.write(paths::FIREWALL, "{");
        assert!(read(root).unwrap_err().cause.contains("firewall.json"));
    }

    #[test]
    fn a_host_without_a_firewall_is_left_as_it_is() {
        let bench = crate::testing::Bench::new();
        let all = [packets(None, Transport::Tcp, (6443, 6443))];
        let effect = open(&bench.job(), "eth0", &all, &["cni0".to_owned()]).unwrap();
        assert_eq!(effect, StepEffect::default());
        assert!(bench.output().contains("no active firewall"), "{}", bench.output());
    }
}
